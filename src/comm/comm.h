/*
 * comm/comm.h -- communication between the ranks of a run: sums, broadcasts, agreement
 *
 *     td_rank_place place;  td_comm *c;
 *     TD_TRY(td_ranks_here(&place));
 *     if (place.size > 1)
 *         TD_TRY(td_comm_open(&place, NULL, &c));
 *     TD_OUT(td_comm_sum_i64(c, counts, 3));              every rank gets the sums
 *     td_comm_close(c, st);                               and the others learn how it ended
 *
 * Every rank makes the same calls in the same order.  A communication thread does the work, so that
 * sums of gradients (reduction.h) proceed while the caller computes, and a lost rank is noticed by
 * the others at any time.  A NULL td_comm is a run of one rank: sums leave their arguments
 * unchanged.
 *
 * All functions except td_comm_close: TD_EDEVICE when a rank was lost or failed; names the rank.
 */
#ifndef TD_COMM_COMM_H
#define TD_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/allreduce.h"
#include "transport/transport.h"

typedef struct td_comm td_comm;

TD_CHECKED td_status td_comm_open(const td_rank_place *place, const td_transport_opts *opts,
                                  td_comm **out);

/**
 * Leave the run; unless `st` is TD_OK, send this thread's error message to the others.
 * All jobs begun are finished when this returns.
 */
void td_comm_close(td_comm *c, td_status st);

int td_comm_rank(const td_comm *c);
int td_comm_size(const td_comm *c);
const char *td_comm_name(const td_comm *c, int rank);

/** Ranks on this machine, and this one's index among them; found by exchanging machine ids. */
int td_comm_local_rank(const td_comm *c);
int td_comm_local_size(const td_comm *c);

/** How the ranks are spread over machines. */
typedef struct {
    int n, n_ranks; /* n machines of n_ranks consecutive ranks each; 0: in another way */
    int index;      /* this rank's machine: 0 .. n - 1 */
} td_comm_machines;

td_comm_machines td_comm_machines_of(const td_comm *c);

/** How reductions created from now on add; exact until then. */
void td_comm_set_allreduce(td_comm *c, const td_allreduce_opts *o);
const td_allreduce_opts *td_comm_allreduce(const td_comm *c);

/** What was set, whether or not the transport can add: for devices that add by themselves. */
const td_allreduce_opts *td_comm_wanted_allreduce(const td_comm *c);

/** Threads for this rank: the cores it may use, divided among ranks that share them. */
int td_comm_threads(const td_comm *c);

/** TD_EDEVICE if a rank was lost.  For loops that make no other calls to comm. */
TD_CHECKED td_status td_comm_check(td_comm *c);

/** Copy rank 0's bytes to every rank. */
TD_CHECKED td_status td_comm_broadcast(td_comm *c, void *data, size_t n);

/** Gather every rank's n bytes in rank order into all[size][n]; with a NULL comm: mine. */
TD_CHECKED td_status td_comm_gather(td_comm *c, const void *mine, size_t n, void *all);

/**
 * Send every rank's bytes, n of its own choice, to rank 0.  There `take` is called with one block
 * after the other in rank order, its own and empty ones included; a block is valid during the call,
 * and only one is in memory.  The other ranks wait; if `take` fails, until rank 0 has
 * left.
 */
typedef td_status td_comm_take(void *ctx, int rank, const void *bytes, size_t n);
TD_CHECKED td_status td_comm_collect(td_comm *c, const void *mine, size_t n, td_comm_take *take,
                                     void *ctx);

/** Sums in rank order, bit-equal on all ranks. */
TD_CHECKED td_status td_comm_sum_i64(td_comm *c, int64_t *x, int n);
TD_CHECKED td_status td_comm_sum_f64(td_comm *c, double *x, int n);

/**
 * Check that all ranks have the same text.  TD_EARG: rank r differs from rank 0; the message has
 * `what` and the place where the two differ.  Every rank fails or none.
 */
TD_CHECKED td_status td_comm_agree(td_comm *c, const char *what, const char *text);

/* --- for reduction.c: jobs of the communication thread ---------------------------------------- */

typedef struct td_comm_job td_comm_job;
struct td_comm_job {
    td_status (*run)(td_comm *c, void *ctx);
    void *ctx;
    td_comm_job *next; /* internal to comm.c, like all below */
    atomic_bool is_done;
};

/** Queue `j` after all jobs begun before; it must live until td_comm_wait has returned. */
void td_comm_begin(td_comm *c, td_comm_job *j);
TD_CHECKED td_status td_comm_wait(td_comm *c, td_comm_job *j);

/** Exchange only inside a job. */
td_transport *td_comm_transport(td_comm *c);

#endif
