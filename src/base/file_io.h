/*
 * base/file_io.h -- reads and writes whole files, lists folders, checks the standard streams
 *
 * Paths are bytes; nothing assumes UTF-8.  Failures name the path and strerror's text.
 */
#ifndef TD_BASE_FILE_IO_H
#define TD_BASE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/**
 * Read a whole file of at most `max_bytes`; *out is td_alloc'ed, with a NUL byte after the content.
 * TD_ENOTFOUND no such file; TD_EIO unreadable, a folder, not a regular file (fifo, device);
 * TD_ELIMIT larger; TD_ENOMEM.
 */
TD_CHECKED td_status td_file_read(const char *path, size_t max_bytes, char **out, size_t *n_bytes);

/** Read up to `max` bytes of a regular file; 0 when it is unreadable or not a regular file. */
size_t td_file_head(const char *path, void *out, size_t max);

/** Like td_file_read, into a reused buffer that grows (td_resize): for reading many files. */
TD_CHECKED td_status td_file_read_into(const char *path, size_t max_bytes, char **buf, size_t *cap,
                                       size_t *n_bytes);

/** Create or replace `path` with these bytes (not atomic; io/atomic.h is). */
TD_CHECKED td_status td_file_write(const char *path, const void *bytes, size_t n_bytes);

typedef struct {
    char **names;    /* sorted by strcmp; without "." and ".."; owned */
    bool *is_folder; /* links followed */
    size_t n;
} td_listing;

TD_CHECKED td_status td_list_folder(const char *path, td_listing *out);
void td_listing_release(td_listing *l);

/** Columns of the terminal on stdout; 0 when stdout is not a terminal. */
int td_terminal_columns(void);

/**
 * Open /dev/null for each closed descriptor of 0, 1 and 2, so that no file opened later gets one of
 * these numbers and receives log lines or results.  Reading from such a descriptor 0 returns end of
 * file; writing to such a descriptor 1 fails, as before.
 */
void td_standard_files_open(void);

#endif
