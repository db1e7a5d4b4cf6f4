/*
 * benchmark/benchmark_text.h -- a benchmark's result as lines and tables with units
 */
#ifndef TD_BENCHMARK_TEXT_H
#define TD_BENCHMARK_TEXT_H

#include "base/status.h"
#include "base/text.h"

/**
 * Print the JSON object `json` of one network, of the data, of ops or of allreduce.
 *   TD_EFORMAT  no such object
 */
td_status td_benchmark_text(const char *json, td_text *out) TD_CHECKED;

#endif
