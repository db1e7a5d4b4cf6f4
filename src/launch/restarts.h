/*
 * launch/restarts.h -- `tandem launch --restarts`: starts the ranks again after one was lost
 *
 *     attempt -> a rank is lost -> read its record -> environment of the next start -> attempt ...
 *
 * The caller starts the ranks and waits for them, on one machine or by mpirun; here is decided what
 * follows.  The record (transport/restart.h) names the last checkpoint of a training; other verbs
 * write none and begin again.
 */
#ifndef TD_LAUNCH_RESTARTS_H
#define TD_LAUNCH_RESTARTS_H

#include <stdbool.h>

#include "launch/supervisor.h"

/** How the ranks ended; filled in by a td_attempt_run. */
typedef struct {
    int code;                   /* of the launch, if they are not started again */
    bool is_lost;               /* a rank or a machine was lost: a restart may help */
    int n_left;                 /* ranks that can still be started */
    int n_suspect;              /* of these, ranks that a restart should rather leave out */
    char cause[TD_CAUSE_BYTES]; /* "": none, or the ranks have printed it */
} td_attempt;

/** Start `ranks` ranks and wait until they have ended; `out` is zero, but n_left is `ranks`. */
typedef td_status td_attempt_run(void *ctx, int ranks, td_attempt *out);

typedef struct {
    int ranks;     /* of the first attempt */
    int restarts;  /* at most */
    int min_ranks; /* 0: ranks */
    bool is_here;  /* all ranks run on this machine and inherit descriptors */
} td_restart_plan;

/**
 * Run attempts until one does not lose a rank, or no more are allowed; then log its cause.  *code:
 * of the last attempt.  A signal that this process has caught ends everything.
 *   TD_EUSAGE  min_ranks contradicts the other numbers
 *   TD_EIO     the record cannot be created or read
 */
TD_CHECKED td_status td_restarts_run(const td_restart_plan *plan, td_attempt_run *run, void *ctx,
                                     int *code);

/**
 * The number of ranks of a restart: the largest from `min` to `most` that divides the images of an
 * optimizer step in whole batches; 0: none.  images 0: unknown, most.
 */
int td_restart_ranks(int most, int min, int64_t images, int64_t batch);

#endif
