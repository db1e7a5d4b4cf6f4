/*
 * base/os.h -- what the operating system offers: time, files, folders, memory, the processor
 *
 * Paths are bytes; nothing assumes UTF-8.  Failures name the path and strerror's text.
 */
#ifndef TD_BASE_OS_H
#define TD_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

/** Monotonic clock. */
int64_t td_now_ns(void);

/** Wall clock, seconds since 1970. */
double td_wall_s(void);

/** Nanoseconds since this process was started (from /proc; td_now_ns based). */
int64_t td_since_start_ns(void);

/* --- files ----------------------------------------------------------------------------------- */

/**
 * Read a whole file of at most `max_bytes`; *out is td_alloc'ed, with a NUL byte after the content.
 * TD_ENOTFOUND no such file; TD_EIO unreadable, a folder, not a regular file (fifo, device);
 * TD_ELIMIT larger; TD_ENOMEM.
 */
TD_CHECKED td_status td_file_read(const char *path, size_t max_bytes, char **out, size_t *n_bytes);

/** The first bytes of a regular file, `max` at most; 0 where it cannot be read, or is none. */
size_t td_file_head(const char *path, void *out, size_t max);

/** As td_file_read, into a buffer that is kept and grown (td_resize): for readers of many files. */
TD_CHECKED td_status td_file_read_into(const char *path, size_t max_bytes, char **buf, size_t *cap,
                                       size_t *n_bytes);

/** Create or replace `path` with these bytes (not atomic; io/atomic.h is). */
TD_CHECKED td_status td_file_write(const char *path, const void *bytes, size_t n_bytes);

/** Columns of the terminal that stdout is; 0: it is none. */
int td_terminal_columns(void);

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

typedef struct {
    char **names;    /* sorted by strcmp; without "." and ".."; owned */
    bool *is_folder; /* links followed */
    size_t n;
} td_listing;

TD_CHECKED td_status td_list_folder(const char *path, td_listing *out);
void td_listing_release(td_listing *l);

/* --- the machine ----------------------------------------------------------------------------- */

int td_cpu_count(void);        /* that this process may run on: affinity and cgroup quota */
const char *td_cpu_name(void); /* "AMD EPYC ..." or "unknown" */
const char *td_cpu_isa(void);  /* "avx512_bf16", "avx512", "avx2", "generic" */
int64_t td_memory_total_bytes(void);
int64_t td_memory_peak_bytes(void); /* this process's peak resident set */
int64_t td_memory_now_bytes(void);

/** Give freed memory that the C library holds back to the system; takes milliseconds. */
void td_memory_trim(void);

/**
 * Zeroed pages straight from the system.  For the slabs; counts
 * as one allocation for td_alloc_fail_at.
 */
void *td_pages_alloc(size_t bytes) TD_CHECKED;
void td_pages_free(void *p, size_t bytes);

/**
 * Open /dev/null where descriptors 0, 1 or 2 are closed, so that no file opened later gets their
 * number and the log lines or results meant for them.  Reading from such a descriptor 0 finds the
 * end; writing to such a descriptor 1 fails, as it did before.
 */
void td_standard_files_open(void);

/* --- signals --------------------------------------------------------------------------------- */

/**
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 set a flag; the second of any of them ends the process at
 * once with 128 + signal.  (SIGUSR1 is how a batch system says that the time is nearly over, as
 * Slurm with --signal.  SIGHUP comes when a terminal is closed, from the shell and from the kernel:
 * one after another signal does nothing; under nohup it stays ignored.)
 * Also ignores SIGPIPE and SIGXFSZ: such writes fail instead.
 */
void td_signals_catch(void);

/** A write beyond the file size limit (ulimit -f) fails with EFBIG, instead of killing. */
void td_signals_ignore_file_limit(void);

/** 0, or the signal that came. */
int td_signal_caught(void);

#endif
