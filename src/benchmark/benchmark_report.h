/*
 * benchmark/benchmark_report.h -- the report file of a benchmark: records of its measured
 * iterations
 *
 *     [0, i]      training: train.compute_ips, train.total_ips, train.data_time ... since the last
 *     [0, 0, i]   inference: val.compute_ips, val.compute_latency ... likewise
 *     []          the same for all iterations, and the results that the reference's benchmarks
 *                 print
 *
 * Their form and names are those of a run's report (run_logger.h, docs/formats/reports.md).
 */
#ifndef TD_BENCHMARK_BENCHMARK_REPORT_H
#define TD_BENCHMARK_BENCHMARK_REPORT_H

#include "evaluation/report_sums.h"
#include "loggers/run_logger.h"
#include "tandem/benchmark.h"
#include "tandem/program.h"

/* If it is all zero and not opened, its functions do nothing. */
typedef struct {
    const td_benchmark_opts *o;
    td_report *report; /* NULL: no report */
    char *path;        /* path of the file, or NULL */
    bool is_training;
    td_detector detector;
    double batch;             /* images per iteration, on all ranks */
    double lr, scale;         /* used in the measured step */
    td_step_sums steps[2];    /* training: since the last record, and in total */
    td_eval_result passes[2]; /* inference: likewise */
    double *compute_s;        /* [iters] seconds without the wait for data */
} td_benchmark_report;

typedef struct {
    td_program *program;
    int ranks;
    int64_t n_images; /* images of the data set; 0: synthetic images */
    double lr, scale; /* of training; scale 1: without loss scaling */
} td_benchmark_metadata;

/**
 * Open the file that o->workspace and o->report.file name ("benchmark.json" if only the workspace
 * is given) and write the settings.  `o` is borrowed and must outlive *out.
 *   TD_EIO  the file cannot be written
 */
td_status td_benchmark_report_open(const td_benchmark_opts *o,
                                   const td_benchmark_metadata *metadata,
                                   td_benchmark_report *out) TD_CHECKED;

/**
 * Report iteration i (from 0), which took `seconds`, including `wait_s` of waiting; loss NaN: none.
 */
td_status td_benchmark_report_step(td_benchmark_report *r, int i, double seconds, double wait_s,
                                   double loss) TD_CHECKED;

/** Write the final record: seconds [o->iters], in order. */
td_status td_benchmark_report_end(td_benchmark_report *r, const double *seconds) TD_CHECKED;

/** Close the report; returns `st`, or if it is TD_OK the status of closing. */
td_status td_benchmark_report_close(td_benchmark_report *r, td_status st) TD_CHECKED;

#endif
