/*
 * comm/reduction.h -- sums over all ranks of many float32 numbers, in buckets, while others go on
 *
 *     td_reduction_new(comm, n, floats, ...)
 *     each step:  memcpy(td_reduction_own(r, b), gradients, ...);  td_reduction_begin(r, b);
 *                 ... computing goes on ...
 *                 TD_TRY(td_reduction_wait(r, b, &sum));
 *
 *     rank 0:  own [ a0 | b0 ]  ---\     slice 0 of a bucket is summed by rank 0, slice 1 by
 *     rank 1:  own [ a1 | b1 ]  ----->   rank 1: ((start + a0) + a1) + ..., in the order of ranks;
 *              sum [ a  | b  ]  <--/     then everybody gets all slices
 *
 * So a sum has the same bits on every rank, on every run, and as one rank has that adds the numbers
 * up one after the other.  On one machine all of it lies in memory that the ranks share, and the
 * connections only say when; across machines the slices travel.
 */
#ifndef TD_COMM_REDUCTION_H
#define TD_COMM_REDUCTION_H

#include "comm/comm.h"

typedef struct td_reduction td_reduction;

/**
 * For n buckets of n_floats[b] numbers.  Every rank calls it.  Memory: a copy of the numbers per
 * rank and one of the sums, on one machine in common; with `starts` also one to start from.
 * c NULL: a run of one rank.
 */
TD_CHECKED td_status td_reduction_new(td_comm *c, int n, const int64_t *n_floats, bool starts,
                                      td_reduction **out);
void td_reduction_free(td_reduction *r); /* NULL is fine; also when the comm has been closed */

/** Where this rank's numbers of a bucket go, and what the sum starts from (the same on all). */
float *td_reduction_own(td_reduction *r, int bucket);
float *td_reduction_start(td_reduction *r, int bucket);

/** They are there. */
void td_reduction_begin(td_reduction *r, int bucket);

/** The sums, until the same bucket is begun again.  TD_EDEVICE: a rank was lost. */
TD_CHECKED td_status td_reduction_wait(td_reduction *r, int bucket, const float **sum);

/** How long td_reduction_wait has waited so far. */
double td_reduction_waited_s(const td_reduction *r);

/** Do the ranks share memory for it? */
bool td_reduction_is_shared(const td_reduction *r);

#endif
