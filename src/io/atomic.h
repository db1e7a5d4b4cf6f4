/*
 * io/atomic.h -- replaces files atomically
 *
 * The content is written to `path`.tmp.<pid> in the same folder; commit makes it durable and
 * renames it:
 *
 *     write ... write | fsync file | close | rename | fsync folder
 *     `path` is unchanged --------------->| new -------------->  new, even after a power failure
 *
 *     td_atomic *a;  TD_TRY(td_atomic_open("run/last.safetensors", &a));
 *     st = td_atomic_write(a, bytes, n);
 *     if (st == TD_OK)
 *         st = td_atomic_commit(a);
 *     td_atomic_close(a);                 without a commit it removes the temporary
 *
 * A symbolic link at `path` is replaced, not followed.  An existing file's permissions are kept.
 * Two writers of one path at a time are an error.  SIGXFSZ must be ignored, so that a file size
 * limit (ulimit -f) is an error and does not end the process.
 */
#ifndef TD_IO_ATOMIC_H
#define TD_IO_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct td_atomic td_atomic;

/**
 * Start writing `path`.  Removes temporaries that ended processes have left.
 *
 *   TD_EIO     the folder does not exist or cannot be written; `path` is a folder or a device;
 *              another process is writing it
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_atomic_open(const char *path, td_atomic **out);

/** Append.  TD_EIO (disk full, ...): every later write and the commit fail too. */
TD_CHECKED td_status td_atomic_write(td_atomic *a, const void *bytes, size_t n_bytes);

/** The path of the temporary; it has the whole content after everything was appended. */
const char *td_atomic_temporary(const td_atomic *a);

/**
 * Remove the temporaries of all files that are being written; call it when the process is about to
 * end.  Async-signal-safe; the files can no longer be committed.
 */
void td_atomic_remove_all(void);

/**
 * Put the new content in place.  TD_EIO: `path` is unchanged, unless only the last step, the flush
 * of the folder, failed: then the new content is in place but may be lost in a power failure.
 */
TD_CHECKED td_status td_atomic_commit(td_atomic *a);

/** Close; removes the temporary if it was not committed.  `a` may be NULL. */
void td_atomic_close(td_atomic *a);

/** Open, write one block, commit and close. */
TD_CHECKED td_status td_atomic_save(const char *path, const void *bytes, size_t n_bytes);

/** TD_EIO if the file cannot be written; to be called before a long job.  `path` may be NULL. */
td_status td_output_check(const char *path) TD_CHECKED;

/** The same, and TD_EARG if the file exists, unless `may_overwrite`. */
td_status td_output_check_new(const char *path, bool may_overwrite) TD_CHECKED;

/* --- for tests ------------------------------------------------------------------------------- */

/** The system calls that a save uses, as in <fcntl.h>, <unistd.h> and <stdio.h>. */
typedef struct {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t n_bytes);
    int (*fsync)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*close)(int fd);
} td_atomic_calls;

/** Replace them (borrowed); NULL restores the system's.  Must not be called while a file is
    open. */
void td_atomic_set_calls(const td_atomic_calls *calls);

#endif
