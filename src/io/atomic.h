/*
 * io/atomic.h -- replace a file whole or not at all
 *
 * The bytes go to `path`.tmp.<pid> in the same folder; commit makes them durable and renames:
 *
 *     write ... write | fsync file | close | rename | fsync folder
 *     `path` is as it was ---------------->| new -------------->  new, and stays after a power cut
 *
 *     td_atomic *a;  TD_TRY(td_atomic_open("run/last.safetensors", &a));
 *     st = td_atomic_write(a, bytes, n);
 *     if (st == TD_OK)
 *         st = td_atomic_commit(a);
 *     td_atomic_close(a);                 without a commit: the temporary is removed
 *
 * A symbolic link at `path` is replaced, not followed.  An existing file's permissions are kept.
 * Two writers of one path at a time are refused.  SIGXFSZ must be ignored for a file size limit
 * (ulimit -f) to be an error instead of the end of the process.
 */
#ifndef TD_IO_ATOMIC_H
#define TD_IO_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct td_atomic td_atomic;

/**
 * Start a new content of `path`.  Temporaries of it left by processes that are gone are removed.
 *
 *   TD_EIO     the folder does not exist or cannot be written; `path` is a folder or a device;
 *              another writer is at it
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_atomic_open(const char *path, td_atomic **out);

/** Append.  TD_EIO (disk full, ...): every later write and the commit fail too. */
TD_CHECKED td_status td_atomic_write(td_atomic *a, const void *bytes, size_t n_bytes);

/** Where the new content is until it is committed: whole once everything was appended. */
const char *td_atomic_temporary(const td_atomic *a);

/**
 * Remove the temporaries of all files that are being written, for a process that is about to end.
 * Async-signal-safe; the files cannot be committed any more.
 */
void td_atomic_remove_all(void);

/**
 * Put the new content in place.  TD_EIO: `path` is as it was; except that when only the last step
 * failed, the flush of the folder, the new content is in place but a power cut may undo that.
 */
TD_CHECKED td_status td_atomic_commit(td_atomic *a);

/** End it; what was not committed is removed.  NULL is fine. */
void td_atomic_close(td_atomic *a);

/** All of the above for one block. */
TD_CHECKED td_status td_atomic_save(const char *path, const void *bytes, size_t n_bytes);

/** Can the file be written?  TD_EIO says why not; asked before the work begins.  NULL is fine. */
td_status td_output_check(const char *path) TD_CHECKED;

/** The same for a result that replaces no file unless `may_overwrite`; TD_EARG: there is one. */
td_status td_output_check_new(const char *path, bool may_overwrite) TD_CHECKED;

/* --- for tests ------------------------------------------------------------------------------- */

/** The system calls a save goes through, as in <fcntl.h>, <unistd.h> and <stdio.h>. */
typedef struct {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t n_bytes);
    int (*fsync)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*close)(int fd);
} td_atomic_calls;

/** Put others in their place (kept); NULL goes back to the system's.  Not while a file is open. */
void td_atomic_set_calls(const td_atomic_calls *calls);

#endif
