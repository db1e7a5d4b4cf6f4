/*
 * comm/comm.h -- the ranks of a run: sums, broadcasts, agreement
 *
 *     td_rank_place place;  td_comm *c;
 *     TD_TRY(td_ranks_here(&place));
 *     if (place.size > 1)
 *         TD_TRY(td_comm_open(&place, NULL, &c));
 *     TD_OUT(td_comm_sum_i64(c, counts, 3));              every rank gets the sums
 *     td_comm_close(c, st);                               and the others learn how it ended
 *
 * Every rank makes the same calls in the same order.  A communication thread of its own does the
 * work, so that sums of gradients (reduction.h) go on while the caller computes, and so that a rank
 * which is lost is noticed by the others whatever they do.  NULL is a run of one rank: sums are
 * what they were.
 *
 * All functions but td_comm_close: TD_EDEVICE, a rank was lost or has failed, by name.
 */
#ifndef TD_COMM_COMM_H
#define TD_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/transport.h"

typedef struct td_comm td_comm;

TD_CHECKED td_status td_comm_open(const td_rank_place *place, const td_transport_opts *opts,
                                  td_comm **out);

/**
 * Leave: after TD_OK in peace, else the others are told this thread's error message.  Every job
 * that was begun is done then.
 */
void td_comm_close(td_comm *c, td_status st);

int td_comm_rank(const td_comm *c);
int td_comm_size(const td_comm *c);
const char *td_comm_name(const td_comm *c, int rank);

/** Ranks on this machine, and which of them this is; found by asking the machine. */
int td_comm_local_rank(const td_comm *c);
int td_comm_local_size(const td_comm *c);

/** Threads for this rank: the processors it may use, shared with ranks that may use the same. */
int td_comm_threads(const td_comm *c);

/** Has anybody been lost?  For loops that make no other calls here. */
TD_CHECKED td_status td_comm_check(td_comm *c);

/** Rank 0's bytes everywhere. */
TD_CHECKED td_status td_comm_broadcast(td_comm *c, void *data, size_t n);

/** Every rank's n bytes, in the order of ranks, in all[size][n]; with NULL: mine. */
TD_CHECKED td_status td_comm_gather(td_comm *c, const void *mine, size_t n, void *all);

/**
 * Every rank's bytes to rank 0, as many as each has.  There `take` is called with one block after
 * the other in the order of ranks, its own and empty ones included; the bytes are lent for the
 * call, and no more than one block is held.  The others wait for it; where `take` fails, until rank
 * 0 has left.
 */
typedef td_status td_comm_take(void *ctx, int rank, const void *bytes, size_t n);
TD_CHECKED td_status td_comm_collect(td_comm *c, const void *mine, size_t n, td_comm_take *take,
                                     void *ctx);

/** Sums in the order of ranks, the same bits on all of them. */
TD_CHECKED td_status td_comm_sum_i64(td_comm *c, int64_t *x, int n);
TD_CHECKED td_status td_comm_sum_f64(td_comm *c, double *x, int n);

/**
 * Do all have the same text?  TD_EARG: rank r has not what rank 0 has; `what` names it in the
 * message, which shows where the two differ.  Every rank fails or none.
 */
TD_CHECKED td_status td_comm_agree(td_comm *c, const char *what, const char *text);

/* --- for reduction.c: work that the communication thread does in its turn --------------------- */

typedef struct td_comm_job td_comm_job;
struct td_comm_job {
    td_status (*run)(td_comm *c, void *ctx);
    void *ctx;
    td_comm_job *next; /* comm.c's, as all below */
    atomic_bool is_done;
};

/** Have `j` done after all that were begun before; it must live until td_comm_wait returned. */
void td_comm_begin(td_comm *c, td_comm_job *j);
TD_CHECKED td_status td_comm_wait(td_comm *c, td_comm_job *j);

/** Inside a job only. */
td_transport *td_comm_transport(td_comm *c);

#endif
