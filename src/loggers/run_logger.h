/*
 * loggers/run_logger.h -- a run's machine-readable logs: JSON lines, the reference's text,
 * TensorBoard, CSV
 *
 *     DLLL {"timestamp": "1577836800.123456", "datetime": "...", "elapsedtime": "1.25",
 *           "type": "LOG", "step": [0, 10], "data": {"train.loss": 2.3, ...}}
 *
 *     DLL 2020-01-01 00:00:00.123456 - Epoch: 0 Iteration: 10  train.loss : 2.30000 None ...
 *
 * td_report_begin starts a record, td_report_add fills it, td_report_end writes it to every enabled
 * output.  Names, units and the form of records are those of the reference programs' logger.  Files
 * are overwritten unless a run is resumed; every record is flushed.  All functions accept a NULL
 * report and do nothing.
 */
#ifndef TD_LOGGERS_RUN_LOGGER_H
#define TD_LOGGERS_RUN_LOGGER_H

#include "base/text.h"

/* default name in a workspace */
#define TD_REPORT_NAME "experiment_raport.json"

typedef struct td_report td_report;

typedef struct {
    const char *path;           /* file of JSON lines */
    bool to_log;                /* text lines too */
    const char *tensorboard;    /* folder of event files */
    const char *csv;            /* file with a row per epoch */
    const char *csv_iterations; /* file with a row per record inside epochs */
    bool is_compat;             /* the reference's arithmetic, and files always overwritten */
    bool has_tf_names;          /* TensorFlow's names of the results in addition */
    bool has_l2_loss;           /* also report weight decay's part of the loss */
    bool has_grad_norm;         /* also report the norm of gradients */
    bool detects;               /* report scores of boxes */
    bool is_multi_label;        /* report scores of any number of classes */
    bool is_benchmark;          /* also report the results of the reference's benchmarks */
    int topk;                   /* 0: 5 */
    int n_classes;              /* classes with a metric "val.AP.NAME"; at most the first 200 */
    const char *const *classes; /* [n_classes] names */
    bool is_continued;          /* append after the last complete record */
    int64_t at[2];              /* epoch and iteration at which the run begins */
    int64_t batches;            /* batches per epoch, to compute step numbers */
} td_run_logger_opts;

/**
 * Open the outputs and write the metadata of all metrics.  *out is NULL if no output is enabled.
 */
td_status td_report_open(const td_run_logger_opts *o, td_report **out) TD_CHECKED;

/** Write settings or metadata of the run, one flat JSON object. */
td_status td_report_parameters(td_report *r, const char *json) TD_CHECKED;

/** Log a line as the reference programs print it, if text lines are enabled. */
void td_report_log(td_report *r, const char *fmt, ...) TD_PRINTF(2, 3);

/** Are text lines in the reference's form enabled? */
bool td_report_has_text(const td_report *r);

bool td_report_is_compat(const td_report *r);
bool td_report_has_tf_names(const td_report *r);

/** Begin a record at a step, the first n numbers of [epoch, iteration, validation iteration]. */
void td_report_begin(td_report *r, int n, const int64_t *step);
void td_report_add(td_report *r, const char *metric, double value);

/** Add the AP of class i; ignored if td_run_logger_opts does not name the class. */
void td_report_add_class(td_report *r, int i, double ap);

/** Write the record.  TD_EIO names the file. */
td_status td_report_end(td_report *r) TD_CHECKED;

/**
 * Write a record of another type, to the JSON lines only: `data` are the members of its object;
 * epoch -1: none.  TD_EIO.
 */
td_status td_report_record(td_report *r, const char *type, int64_t epoch,
                           const char *data) TD_CHECKED;

/** Close all outputs; also reports failures of earlier writes that are detected only now. */
td_status td_report_close(td_report *r) TD_CHECKED;

#endif
