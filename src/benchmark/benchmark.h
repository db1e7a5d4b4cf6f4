/*
 * benchmark/benchmark.h -- the modes of `tandem benchmark`
 */
#ifndef TD_BENCHMARK_BENCHMARK_H
#define TD_BENCHMARK_BENCHMARK_H

#include "base/text.h"
#include "tandem/benchmark.h"

/**
 * Measure training or inference of one network by `o`; one JSON object.  With several ranks
 * (`tandem launch`) only training, all together; only rank 0 adds text.
 */
td_status td_benchmark_network(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * The four steps of NVIDIA's article on automatic mixed precision in TensorFlow: float32, mixed,
 * mixed and fused, and that with twice the batch; a table, or with !o->as_table JSON.
 */
td_status td_benchmark_walkthrough(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/** The largest batch that trains within o->memory_limit, by precision; a table, or JSON. */
td_status td_benchmark_largest_batch(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * Sums over the ranks that this process is one of, by size; of rank 0 JSON, of the others nothing.
 * TD_EDEVICE: a rank was lost.
 */
td_status td_benchmark_allreduce(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

/**
 * One network at the precisions, numbers of ranks and batch sizes of o's lists, all with all; a
 * table, or with !o->as_table JSON.  Ranks are this program started again (td_ranks_run).
 *
 *   TD_EUSAGE    a list is malformed or too long
 *   TD_ESTOPPED  a signal came
 *   TD_EDEVICE   a rank failed and logged the error; also errors of td_benchmark_network
 */
td_status td_benchmark_sweep(const td_benchmark_opts *o, td_text *out) TD_CHECKED;

#endif
