/*
 * launch/supervisor.h -- processes that `tandem launch` starts, watched until all have ended
 *
 *     td_children_make, then for each: fork, exec;  watch;  tell whose fault it was;  release
 *
 * Children are in process groups of their own, so that Ctrl-C reaches them through the parent
 * alone: twice it would end them at once.  They die with the parent, however that ends.  One that
 * starts ranks on another machine cannot be sent a signal through the connection: it has a
 * lifeline instead, its stdin, where a line says "stop" and whose end means that its parent is
 * gone.
 */
#ifndef TD_LAUNCH_SUPERVISOR_H
#define TD_LAUNCH_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { TD_CHILD_TAIL = 4096 }; /* bytes of what it said that are kept */

typedef struct {
    char name[96]; /* "rank 1", "machine 'b'" */
    pid_t pid;     /* 0: it has ended */
    int code;      /* then; 128 + signal where one ended it */
    bool by_signal;
    bool is_ended; /* by us, because of another */
    int out;       /* what it says; -1: to the terminal, or closed */
    int file;      /* where that goes, too; -1: nowhere */
    int lifeline;  /* our end; -1: it gets signals */
    char tail[TD_CHILD_TAIL];
    size_t n_tail;
} td_child;

typedef struct {
    int n, n_living;
    td_child *at;                 /* [n] */
    const td_child *first_failed; /* the cause, as far as it is known; NULL: none failed */
    int64_t failed_ns;
    td_child *blamed; /* whom the others name as the cause; NULL: nobody, or not one of these */
    bool was_told;    /* of a signal */
    int lifeline;     /* the parent's own, as a child of another launch; -1: none */
} td_children;

/** `n` that have not been started; owned, td_children_release. */
TD_CHECKED td_status td_children_make(int n, td_children *out);

/** NULL and an unused one are fine.  Does not end anybody. */
void td_children_release(td_children *c);

/** How a child is reached. */
typedef struct {
    bool is_heard;     /* what it says is kept, instead of going to the terminal */
    bool has_lifeline; /* else its stdin is empty */
} td_child_ways;

/**
 * fork().  *is_child: this is the new process, with its stdin, stdout and stderr, which has to exec
 * or _exit.  TD_EIO: there is none.
 */
TD_CHECKED td_status td_child_fork(td_children *c, int i, td_child_ways ways, bool *is_child);

/** To all that live, or by their lifelines. */
void td_children_signal(const td_children *c, int sig);

/**
 * Until all have ended.  Signals are handed on; one that fails ends the others after a moment, in
 * which they may tell why by themselves.
 */
TD_CHECKED td_status td_children_watch(td_children *c);

/**
 * The child that was the cause: the first that failed, or the one that failed ranks blame, unless
 * the first was killed or refused its command line.  NULL: none failed.
 */
const td_child *td_children_cause(const td_children *c);

/**
 * Into the log: who was the cause, and what it said last where `is_shown`.  Returns its exit code,
 * 0 for none.
 */
int td_children_tell(const td_children *c, bool is_shown);

/** 3 and 4: stopped after saving, below --require; all end alike and say so themselves. */
bool td_child_is_quiet(int code);

#endif
