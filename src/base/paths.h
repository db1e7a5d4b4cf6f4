/*
 * base/paths.h -- paths: what they name, how they are joined; makes folders
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
bool td_path_is_file(const char *path); /* a regular one */

/** Create a folder and its parents; fine when it exists. */
TD_CHECKED td_status td_make_folder(const char *path);

/** Create a folder in one that exists; *is_new: false when there is something of that name. */
TD_CHECKED td_status td_make_new_folder(const char *path, bool *is_new);

/** "a/b", td_alloc'ed; `b` alone when it is absolute or `a` is "".  NULL: no memory. */
char *td_path_join(const char *a, const char *b) TD_CHECKED;

/** "folder/name" in the arena, whatever the two are.  NULL: no memory. */
char *td_path_append(td_arena *a, const char *folder, const char *name) TD_CHECKED;

/**
 * Do two paths name one file?  Existing ones are compared as the system does, through links; of
 * others the folder and the name.
 */
bool td_path_is_same(const char *a, const char *b);

/** The part after the last '/'. */
const char *td_path_base(const char *path);

#endif
