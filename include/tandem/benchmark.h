/*
 * tandem/benchmark.h -- measure training, inference, the input pipeline, single ops, sums over
 * ranks, and predict training on many ranks
 */
#ifndef TD_BENCHMARK_H
#define TD_BENCHMARK_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/allreduce.h"
#include "tandem/amp.h"
#include "tandem/device.h"
#include "tandem/input.h"
#include "tandem/model.h"
#include "tandem/report_opts.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What is measured. */
typedef enum {
    TD_BENCHMARK_TRAINING,
    TD_BENCHMARK_INFERENCE,
    TD_BENCHMARK_DATA,
    TD_BENCHMARK_OP,
    TD_BENCHMARK_ALLREDUCE,
    TD_BENCHMARK_SCALING
} td_benchmark_mode;

/** What iters and warmup count. */
typedef enum { TD_BENCHMARK_BATCHES } td_benchmark_unit;

typedef struct {
    td_benchmark_mode mode;
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    int batch_size;
    const char *batch_sizes; /* "1,2,4": measure each of these; NULL: batch_size */
    const char *nproc;       /* likewise, "1,2": ranks, started as td_ranks_run does; NULL: one */
    const char *precisions;  /* likewise, "fp32,bf16"; NULL: set by `amp` */
    int iters, warmup;
    td_benchmark_unit iter_unit;
    bool walkthrough, largest_batch;
    td_allreduce_opts allreduce;
    const char *ranks;      /* scaling: numbers of ranks to predict; NULL: up to 1,024 */
    const char *bandwidth;  /* scaling: of a machine's link, Gbit/s; NULL: measured, or "25,200" */
    double latency;         /* scaling: of a message, microseconds; 0: measured, or 20 */
    int ranks_per_machine;  /* scaling with one rank; several ranks: as they are placed */
    double compute_speedup; /* scaling: divides the measured times of kernels */
    int64_t memory_limit;   /* bytes of the process; 0: none, or for largest_batch the machine's */
    bool as_table;          /* return lines and tables for people, not JSON */
    td_device_opts device;
    const char *lines;          /* op mode: file of problem lines */
    const char *filter;         /* op mode: glob on op names */
    bool bound;                 /* also measure bound_images_per_s */
    bool kernels;               /* per-node times in the result */
    const char *weights;        /* inference: weight file; NULL: random weights */
    const char *checkpoint_dir; /* inference: use the checkpoint in this folder */
    const char *workspace; /* folder of a relative report.file; without one, of benchmark.json */
    td_report_opts report; /* a record every print_freq iterations, and a summary */
    int print_freq;
    const char *pipeline_config_path, *hparams_overrides; /* td_pipeline_options has read them */
    const char *trace; /* write a trace of the kernels of the last iterations */
    int prof;          /* iterations to measure with a profile; -1: `iters`, without a profile */
    char **profile;    /* receives the tables (td_text_free); NULL: added to the JSON */
    const char *log;
} td_benchmark_opts;

TD_API const struct td_field *td_benchmark_fields(void);
TD_API void td_benchmark_defaults(td_benchmark_opts *opts);

/** Run the benchmark; *json receives one JSON object, or with as_table text (td_text_free). */
TD_API TD_CHECKED td_status td_benchmark(const td_benchmark_opts *opts, char **json);

#ifdef __cplusplus
}
#endif
#endif
