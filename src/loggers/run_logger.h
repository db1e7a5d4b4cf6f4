/*
 * loggers/run_logger.h -- a run's machine-readable logs: JSON lines, the reference's text,
 * TensorBoard, CSV
 *
 *     DLLL {"timestamp": "1577836800.123456", "datetime": "...", "elapsedtime": "1.25",
 *           "type": "LOG", "step": [0, 10], "data": {"train.loss": 2.3, ...}}
 *
 *     DLL 2020-01-01 00:00:00.123456 - Epoch: 0 Iteration: 10  train.loss : 2.30000 None ...
 *
 * A record is begun, filled and ended once and goes to every output that was asked for.  Names,
 * units and record shapes are those of the reference programs' logger.  Files are begun anew unless
 * a run is resumed; every record is flushed.  A NULL report ignores everything.
 */
#ifndef TD_LOGGERS_RUN_LOGGER_H
#define TD_LOGGERS_RUN_LOGGER_H

#include "base/text.h"

/* in a workspace, when no other name was given */
#define TD_REPORT_NAME "experiment_raport.json"

typedef struct td_report td_report;

typedef struct {
    const char *path;           /* of the JSON lines */
    bool to_log;                /* text lines too */
    const char *tensorboard;    /* folder of event files */
    const char *csv;            /* a row for every epoch */
    const char *csv_iterations; /* a row for every record inside epochs */
    bool is_compat;             /* the reference's arithmetic, and files always overwritten */
    bool has_tf_names;          /* TensorFlow's names of the results in addition */
    bool has_l2_loss;           /* what weight decay adds to the loss is among the results */
    bool detects;               /* scores are those of boxes */
    bool is_benchmark;          /* figures of the reference's benchmarks are among the results */
    int topk;                   /* 0: 5 */
    int n_classes;              /* classes with an AP metric, "val.AP.NAME"; the first 200 */
    const char *const *classes; /* [n_classes] names */
    bool is_continued; /* append after the complete records; an incomplete one is cut off */
    int64_t at[2];     /* epoch and iteration where the run begins */
    int64_t batches;   /* of an epoch, for numbers of steps */
} td_run_logger_opts;

/** Open, and write the metadata of all metrics.  Without any output *out is NULL. */
td_status td_report_open(const td_run_logger_opts *o, td_report **out) TD_CHECKED;

/** Settings or metadata of the run: one flat JSON object. */
td_status td_report_parameters(td_report *r, const char *json) TD_CHECKED;

/** A line of text as the reference programs print it, if text lines are enabled. */
void td_report_log(td_report *r, const char *fmt, ...) TD_PRINTF(2, 3);

/** Is text in the reference's form enabled? */
bool td_report_has_text(const td_report *r);

bool td_report_is_compat(const td_report *r);
bool td_report_has_tf_names(const td_report *r);

/** Begin a record at a step: n numbers, [epoch, iteration, validation iteration]. */
void td_report_begin(td_report *r, int n, const int64_t *step);
void td_report_add(td_report *r, const char *metric, double value);

/** AP of class i of those that td_run_logger_opts names; nothing of others. */
void td_report_add_class(td_report *r, int i, double ap);

/** Write it.  TD_EIO names the file. */
td_status td_report_end(td_report *r) TD_CHECKED;

/**
 * A record of its own type, in the JSON lines alone: `data` are the members of its object; epoch
 * -1: of no epoch.  TD_EIO.
 */
td_status td_report_record(td_report *r, const char *type, int64_t epoch,
                           const char *data) TD_CHECKED;

/** Also reports a failure of earlier writes that only closing shows. */
td_status td_report_close(td_report *r) TD_CHECKED;

#endif
