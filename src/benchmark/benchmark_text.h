/*
 * benchmark/benchmark_text.h -- a benchmark's result as lines and tables with units
 */
#ifndef TD_BENCHMARK_TEXT_H
#define TD_BENCHMARK_TEXT_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

/**
 * Print the JSON object `json` of one network, of the data, of ops or of allreduce.
 *   TD_EFORMAT  no such object
 */
td_status td_benchmark_text(const char *json, td_text *out) TD_CHECKED;

/**
 * The peak of memory in a measurement's JSON, in bytes: of the device if that has its own, which
 * *of_device is then, else of the process.  TD_EFORMAT: none.
 */
td_status td_benchmark_peak(const td_json *doc, double *bytes, bool *of_device) TD_CHECKED;

#endif
