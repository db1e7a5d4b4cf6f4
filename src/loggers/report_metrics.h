/*
 * loggers/report_metrics.h -- the table of a run's metrics: names, units, formats, levels
 *
 * A full name is "train.", "val." or "val_ema." and the name in the table; TensorFlow's names have
 * no such prefix.  "top5" matches any top K.
 */
#ifndef TD_LOGGERS_REPORT_METRICS_H
#define TD_LOGGERS_REPORT_METRICS_H

#include <stdbool.h>

#include "base/text.h"

#define TD_METRIC_CLASS "val.AP." /* followed by a class's name: its AP, at ends of epochs */

enum { TD_METRIC_CLASSES_MAX = 200 };

enum { TD_METRIC_JSON_ONLY = 3 }; /* td_metric.level */

#define TD_UNIT_NULL "" /* the reference writes a null unit; NULL: no unit */

typedef struct {
    const char *name, *unit;
    int decimals; /* -1: all digits of the number */
    int level;    /* 0: in every text line, 1: only at ends of epochs and of the run, 2: in no text
                     line, 3: only in the JSON lines */
    int job_kind; /* 0: every job; otherwise jobs with classes, boxes or benchmarks */
} td_metric;

/** The metric with this full name; NULL: none. */
const td_metric *td_metric_find(const char *name);

/** The properties that select a run's metrics. */
typedef struct {
    int topk; /* K of top5 */
    bool has_tf_names, has_l2_loss;
    bool detects;        /* scores of boxes instead of accuracies */
    bool is_benchmark;   /* also the results of the reference's benchmarks */
    bool has_grad_norm;  /* the norm of gradients is limited */
    bool is_multi_label; /* scores of any number of classes instead of accuracies */
} td_metric_choice;

/** Call `each` with every full name. */
td_status td_metric_each(const td_metric_choice *choice,
                         td_status (*each)(void *ctx, const char *name, const td_metric *m),
                         void *ctx) TD_CHECKED;

/** A real number as Python prints it: the shortest text with the same value, with a point. */
void td_metric_add_real(td_text *out, double x);

/** A value in the metric's format; "None" if it is not finite. */
void td_metric_add_value(td_text *out, const td_metric *m, double x);

#endif
