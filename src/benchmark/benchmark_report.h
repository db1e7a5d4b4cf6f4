/*
 * benchmark/benchmark_report.h -- the report file of a benchmark: records of its measured
 * iterations
 *
 *     [0, i]      training: train.compute_ips, train.total_ips, train.data_time ... since the last
 *     [0, 0, i]   inference: val.compute_ips, val.compute_latency ... likewise
 *     []          the same of all, and the figures that the reference's benchmarks print
 *
 * Their shapes and names are those of a run's report (run_logger.h, docs/formats/reports.md).
 */
#ifndef TD_BENCHMARK_BENCHMARK_REPORT_H
#define TD_BENCHMARK_BENCHMARK_REPORT_H

#include "evaluation/report_sums.h"
#include "loggers/run_logger.h"
#include "tandem/benchmark.h"
#include "tandem/program.h"

/* All zero and never opened, its functions do nothing. */
typedef struct {
    const td_benchmark_opts *o;
    td_report *report; /* NULL: none is asked for */
    char *path;        /* of the file, or NULL */
    bool is_training;
    td_detector detector;
    double batch;             /* images an iteration, of all ranks */
    double lr, scale;         /* of the step that is measured */
    td_step_sums steps[2];    /* since the last record, and of all: of training */
    td_eval_result passes[2]; /* likewise: of inference */
    double *compute_s;        /* [iters] seconds without the wait for data */
} td_benchmark_report;

typedef struct {
    td_program *program;
    int ranks;
    int64_t n_images; /* of the data set; 0: made-up images */
    double lr, scale; /* of training; scale 1: without loss scaling */
} td_benchmark_metadata;

/**
 * Open the file that o->workspace and o->report.file name, "benchmark.json" where only the former
 * is given; the settings are written at once.  `o` is kept and must outlive *out.
 *   TD_EIO  it cannot be written
 */
td_status td_benchmark_report_open(const td_benchmark_opts *o,
                                   const td_benchmark_metadata *metadata,
                                   td_benchmark_report *out) TD_CHECKED;

/** Iteration i (from 0) took so many seconds, of which it waited `wait_s`; NaN: no loss. */
td_status td_benchmark_report_step(td_benchmark_report *r, int i, double seconds, double wait_s,
                                   double loss) TD_CHECKED;

/** The record of the whole: seconds [o->iters], in order. */
td_status td_benchmark_report_end(td_benchmark_report *r, const double *seconds) TD_CHECKED;

/** Close it, and pass `st` on, or where that is TD_OK what closing came to. */
td_status td_benchmark_report_close(td_benchmark_report *r, td_status st) TD_CHECKED;

#endif
