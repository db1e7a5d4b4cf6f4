/*
 * base/paths.h -- tests, joins and compares paths; makes folders
 *
 * Paths are bytes; nothing assumes UTF-8.  Failures name the path and strerror's text.
 */
#ifndef TD_BASE_PATHS_H
#define TD_BASE_PATHS_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

bool td_path_exists(const char *path);
bool td_path_is_folder(const char *path);
bool td_path_is_file(const char *path); /* a regular file */

/** Create a folder and its parents; no error when it exists. */
TD_CHECKED td_status td_make_folder(const char *path);

/** Create a folder in an existing one; *is_new is false when the name is taken. */
TD_CHECKED td_status td_make_new_folder(const char *path, bool *is_new);

/** "a/b", td_alloc'ed; `b` alone when it is absolute or `a` is "".  NULL: no memory. */
char *td_path_join(const char *a, const char *b) TD_CHECKED;

/** "folder/name" in the arena, without checking either.  NULL: no memory. */
char *td_path_append(td_arena *a, const char *folder, const char *name) TD_CHECKED;

/**
 * Do two paths name the same file?  Existing files are compared by device and inode, following
 * links; for others, the folders and the names are compared.
 */
bool td_path_is_same(const char *a, const char *b);

/** The part after the last '/'. */
const char *td_path_base(const char *path);

#endif
