/*
 * loggers/report_metrics.h -- the one table of a run's metrics: names, units, formats, levels
 *
 * A name is "train." or "val." or "val_ema." and the name in the table; TensorFlow's names of the
 * same things have no such part.  "top5" stands for any top K.
 */
#ifndef TD_LOGGERS_REPORT_METRICS_H
#define TD_LOGGERS_REPORT_METRICS_H

#include <stdbool.h>

#include "base/text.h"

#define TD_METRIC_CLASS "val.AP." /* and a class's name: its AP, at ends of epochs */

enum { TD_METRIC_CLASSES_MAX = 200 };

enum { TD_METRIC_JSON_ONLY = 3 }; /* td_metric.level */

#define TD_UNIT_NULL "" /* the reference writes a null unit; without unit: NULL */

typedef struct {
    const char *name, *unit;
    int decimals; /* -1: as many as the number has */
    int level;    /* 0: in every line of text, 1: at ends of epochs and of the run only, 2: never,
                     3: in the JSON lines alone */
    int of;       /* 0: every job; otherwise classes or boxes */
} td_metric;

/** NULL: there is no such metric. */
const td_metric *td_metric_find(const char *name);

/** The properties that select a run's metrics. */
typedef struct {
    int topk; /* K of top5 */
    bool has_tf_names, has_l2_loss;
    bool detects;      /* boxes' scores in the place of accuracies */
    bool is_benchmark; /* and what the reference's benchmarks print */
} td_metric_choice;

/** Call `each` with every full name. */
td_status td_metric_each(const td_metric_choice *choice,
                         td_status (*each)(void *ctx, const char *name, const td_metric *m),
                         void *ctx) TD_CHECKED;

/** A real number as Python prints it: the shortest that reads back, with a point. */
void td_metric_add_real(td_text *out, double x);

/** A value in the metric's format; "None" if it is not finite. */
void td_metric_add_value(td_text *out, const td_metric *m, double x);

#endif
