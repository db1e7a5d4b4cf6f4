/*
 * benchmark/benchmark.h -- the modes of `tandem benchmark`
 */
#ifndef TD_BENCHMARK_BENCHMARK_H
#define TD_BENCHMARK_BENCHMARK_H

#include "base/text.h"
#include "comm/comm.h"
#include "runtime/device.h"
#include "tandem/benchmark.h"

/**
 * Measure training or inference of one network by `o`; appends one JSON object.  With several ranks
 * (`tandem launch`) only training, all together; only rank 0 appends text.
 */
td_status td_benchmark_network(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * Measure the four steps of NVIDIA's article on automatic mixed precision in TensorFlow: float32,
 * mixed, mixed and fused, the last with twice the batch; appends a table, or with !o->as_table
 * JSON.
 */
td_status td_benchmark_walkthrough(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * Find the largest batch that trains within o->memory_limit, by precision; appends a table, or
 * JSON.
 */
td_status td_benchmark_largest_batch(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * Measure sums over the ranks, one of which is this process, by size; rank 0 appends JSON, the
 * others nothing.  TD_EDEVICE: a rank was lost.
 */
td_status td_benchmark_allreduce(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * Measure a training step without other ranks and, with several ranks, their sums and steps, and
 * predict the step's time on o->ranks ranks; rank 0 appends JSON, the others nothing.
 *
 *   TD_EUSAGE    a list is malformed, or the ranks are spread unevenly over machines
 *   TD_EDEVICE   a rank was lost
 *   TD_ESTOPPED  a signal was received
 */
td_status td_benchmark_scaling(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/* --- sums over ranks, to be timed ------------------------------------------------------------- */

/** A sum of numbers over ranks: between their GPUs if the device adds so, else on the hosts. */
typedef struct td_rank_sum td_rank_sum;

/**
 * td_device_join, for sums that are measured: TD_EUSAGE device cuda, and one rank; TD_ENOTFOUND its
 * GPUs cannot add, for the reason in the message.
 */
td_status td_rank_sums_join(const char *mode, td_device *dev, td_comm *c) TD_CHECKED;

/** All ranks make a sum of n numbers, and run it together.  Errors of memory and devices. */
td_status td_rank_sum_new(td_comm *c, const td_device *dev, int64_t n,
                          td_rank_sum **out) TD_CHECKED;
void td_rank_sum_free(td_rank_sum *s);
bool td_rank_sum_is_shared(const td_rank_sum *s);      /* in shared memory of the host? */
td_status td_rank_sum_fill(td_rank_sum *s) TD_CHECKED; /* each rank's numbers are 1; not timed */
td_status td_rank_sum_run(td_rank_sum *s) TD_CHECKED;  /* add; GPUs may still be adding after it */
td_status td_rank_sum_finish(td_rank_sum *s) TD_CHECKED; /* wait for all that was run */

/** TD_EDEVICE: after fill, run and finish the numbers are not the number of ranks. */
td_status td_rank_sum_check(const td_rank_sum *s) TD_CHECKED;

/** Add to a JSON object which device and library add; nothing for sums on the host. */
void td_rank_sums_describe(const td_device *dev, td_text *out);

/**
 * Join the ranks that the environment defines; *out NULL: one rank.  Sets the number of threads and
 * what several ranks change in `o`.  Errors of td_join.
 */
td_status td_benchmark_join(td_benchmark_opts *o, td_comm **out) TD_CHECKED;

/**
 * Exchange signals between ranks, which also starts the next step on all ranks together.
 * TD_ESTOPPED: a rank received one.
 */
td_status td_benchmark_check_signals(td_comm *c) TD_CHECKED;

/**
 * Measure one network for all combinations of the precisions, numbers of ranks and batch sizes in
 * o's lists; appends a table, or with !o->as_table JSON.  Ranks are new processes of this program
 * (td_ranks_run).
 *
 *   TD_EUSAGE    a list is malformed or too long
 *   TD_ESTOPPED  a signal was received
 *   TD_EDEVICE   a rank failed and logged the error; also errors of td_benchmark_network
 */
td_status td_benchmark_sweep(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

#endif
