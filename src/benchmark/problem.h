/*
 * benchmark/problem.h -- time problem lines: benchmark --mode op
 */
#ifndef TD_BENCHMARK_PROBLEM_H
#define TD_BENCHMARK_PROBLEM_H

#include "base/text.h"
#include "tandem/benchmark.h"

/** Time every line of opts->lines whose op matches opts->filter; appends one JSON object. */
td_status td_problems_benchmark(const td_benchmark_opts *opts, td_text *out) TD_CHECKED;

#endif
