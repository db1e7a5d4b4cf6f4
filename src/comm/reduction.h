/*
 * comm/reduction.h -- sums buckets of float32 numbers over all ranks while the caller computes
 *
 *     td_reduction_new(comm, n, floats, ...)
 *     each step:  memcpy(td_reduction_own(r, b), gradients, ...);  td_reduction_begin(r, b);
 *                 ... compute ...
 *                 TD_TRY(td_reduction_wait(r, b, &sum));
 *
 *     rank 0:  own [ a0 | b0 ]  ---\     slice 0 of a bucket is summed by rank 0, slice 1 by
 *     rank 1:  own [ a1 | b1 ]  ----->   rank 1: ((start + a0) + a1) + ..., in the order of ranks;
 *              sum [ a  | b  ]  <--/     then everybody gets all slices
 *
 * So a sum has the same bits on every rank and in every run, and equals that of one rank that adds
 * the numbers in order.  On one machine all of it is in shared memory, and the transport
 * only synchronizes; between machines numbers are sent (reduction.c).  With --allreduce fast the
 * MPI library adds, in an order of its own.
 */
#ifndef TD_COMM_REDUCTION_H
#define TD_COMM_REDUCTION_H

#include "comm/comm.h"

typedef struct td_reduction td_reduction;

/**
 * Create buckets of n_floats[b] numbers.  Every rank calls it.  Memory: a copy of the numbers per
 * rank and one of the sums, shared on one machine; with `starts` also one to start from.
 * c NULL: a run of one rank.
 */
TD_CHECKED td_status td_reduction_new(td_comm *c, int n, const int64_t *n_floats, bool starts,
                                      td_reduction **out);
void td_reduction_free(td_reduction *r); /* NULL is fine; also when the comm has been closed */

/** Buffers of a bucket: this rank's numbers, and the sum's start (equal on all ranks). */
float *td_reduction_own(td_reduction *r, int bucket);
float *td_reduction_start(td_reduction *r, int bucket);

/** The bucket's numbers are complete: start summing. */
void td_reduction_begin(td_reduction *r, int bucket);

/** Wait for the sums; valid until the same bucket is begun again.  TD_EDEVICE: a rank was lost. */
TD_CHECKED td_status td_reduction_wait(td_reduction *r, int bucket, const float **sum);

/** With `skips` begin and wait do nothing, until it is called with false: for measurements. */
void td_reduction_skip(td_reduction *r, bool skips);

/** Total time spent waiting in td_reduction_wait, seconds. */
double td_reduction_waited_s(const td_reduction *r);

/**
 * Numbers that move along a chain of machines at a time, of `n` that one chain has to move.  Few
 * wait long for the first ones to come back, many pay the latency of every step: the best number
 * of chunks is sqrt(steps * bytes / (bandwidth * latency)), here with 16 KiB for that product.
 */
int64_t td_chain_chunk(int n_machines, int64_t n);

/** Do the ranks use shared memory? */
bool td_reduction_is_shared(const td_reduction *r);

#endif
