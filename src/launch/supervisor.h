/*
 * launch/supervisor.h -- supervises the processes that `tandem launch` starts
 *
 *     td_children_make, then for each: fork, exec;  watch;  report the cause;  release
 *
 * Children are in their own process groups, so that Ctrl-C reaches them only through the parent
 * (twice would end them at once).  They die with the parent, however it ends.
 */
#ifndef TD_LAUNCH_SUPERVISOR_H
#define TD_LAUNCH_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum {
    TD_CHILD_TAIL = 4096, /* the last bytes of its output are kept */
    TD_CAUSE_BYTES = 400
};

typedef struct {
    char name[96]; /* "rank 1" */
    pid_t pid;     /* 0: it has ended */
    int code;      /* exit code once ended; 128 + signal if killed */
    bool by_signal;
    bool is_ended; /* ended by us, because another failed */
    int out;       /* read end of its output; -1: not captured, or closed */
    int file;      /* a copy of the output; -1: none */
    char tail[TD_CHILD_TAIL];
    size_t n_tail;
} td_child;

typedef struct {
    int n, n_living;
    td_child *at;                 /* [n] */
    const td_child *first_failed; /* the current candidate for the cause; NULL: none failed */
    int64_t failed_ns;
    td_child *blamed;      /* blamed by other ranks; NULL: none, or on another machine */
    int stop_signal;       /* forwarded in place of the signal that was caught; 0: the same one */
    bool was_told;         /* a signal was forwarded */
    bool (*is_over)(void); /* asked now and then: should all have ended?  NULL: never */
    int64_t asked_ns, over_ns; /* when it was asked, and first was true; 0: not yet */
    bool is_forced;            /* children were ended because they did not after is_over */
} td_children;

/** Allocate `n` children, not started; release with td_children_release. */
TD_CHECKED td_status td_children_make(int n, td_children *out);

/** Release; NULL and an unused object are fine.  Does not end processes. */
void td_children_release(td_children *c);

/**
 * fork().  `is_heard`: capture its output instead of writing it to the terminal.  *is_child: in the
 * new process, whose stdin, stdout and stderr are set up; it must exec or _exit.  TD_EIO: fork
 * failed.
 */
TD_CHECKED td_status td_child_fork(td_children *c, int i, bool is_heard, bool *is_child);

/** Signal all running children. */
void td_children_signal(const td_children *c, int sig);

/**
 * Wait until all have ended.  Forwards signals; after a failure ends the others with a short delay,
 * in which they may report their own errors.  Children that do not end although is_over are killed
 * with their process groups.
 */
TD_CHECKED td_status td_children_watch(td_children *c);

/**
 * The child that caused the failure: the first that failed, or the one that failed ranks blame,
 * unless the first was killed or had a usage error.  NULL: none failed.
 */
const td_child *td_children_cause(const td_children *c);

/**
 * Describe the failure in `cause`, "rank 1 was killed by signal 9 (Killed)", and print the end of
 * the child's output with `is_shown`.  Returns its exit code, 0 for none.  `cause` is "" if there
 * is none, and for a quiet exit code.
 */
int td_children_tell(const td_children *c, bool is_shown, char cause[TD_CAUSE_BYTES]);

/** Was the child that caused the failure killed, or did it stop responding, rather than exit? */
bool td_children_lost_one(const td_children *c);

/**
 * Is it 3 (stopped after saving) or 4 (below --require)?  All ranks end with it and log it
 * themselves.
 */
bool td_child_is_quiet(int code);

#endif
