/*
 * evaluation/report_sums.h -- sums over steps and validations: between log lines, per epoch, per
 * run
 *
 * Rates are images / seconds.  With --raport-compat they are means of the steps' rates, as the
 * reference computes them, and a run's loss is the largest of its epochs instead of the smallest.
 */
#ifndef TD_EVALUATION_REPORT_SUMS_H
#define TD_EVALUATION_REPORT_SUMS_H

#include "evaluation/evaluator.h"
#include "loggers/run_logger.h"

/* Values of a detector's step other than its loss. */
enum { TD_PART_CLASS, TD_PART_BOX, TD_PART_POSITIVES, TD_PARTS };

/* Sums over steps. */
typedef struct {
    int64_t n, n_losses; /* steps; steps with a loss, which are those applied */
    double n_images;
    double loss_sum, scale_sum, data_s, compute_s;
    double compute_rates, total_rates; /* sums of the steps' images/s */
    double part_sums[TD_PARTS];
} td_step_sums;

typedef struct {
    double loss; /* NaN: skipped */
    double scale, n_images, data_s, compute_s;
    double parts[TD_PARTS]; /* NaN: no value */
} td_step_metadata;

void td_step_sums_add(td_step_sums *s, const td_step_metadata *f);

/**
 * Add metrics to the current record: train.loss is `loss`, train.lr is `lr`, the others from the
 * sums.
 */
void td_step_sums_report(const td_step_sums *s, double loss, double lr, td_report *r);

/** Mean loss of the applied steps; NaN: no step was applied. */
double td_step_sums_loss(const td_step_sums *s);

/** Images/s, including the time waited for data. */
double td_step_sums_rate(const td_step_sums *s, bool is_compat);

/* Sums over the validations of a run. */
typedef struct {
    td_eval_result all;                /* sums, all.multi the largest; all.latency is `latency` */
    double top1, topk, loss;           /* largest, largest, smallest (compat: largest) */
    td_counts last;                    /* of the last validation */
    double last_boxes[TD_BOX_METRICS]; /* likewise, for a detector; all.boxes are the best */
    double *latency;                   /* [n_latency] s, of all batches */
    size_t n_latency, cap_latency;
} td_val_sums;

td_status td_val_sums_add(td_val_sums *s, const td_eval_result *v, bool is_compat) TD_CHECKED;

/**
 * Raise what the best weights are chosen by to `best` percent, a validation's before the run was
 * resumed: top1, or mAP of several labels.  A detector's metrics, which are those of one
 * validation, become `boxes` [TD_BOX_METRICS] if its AP is larger.
 */
void td_val_sums_raise(td_val_sums *s, double best, const double *boxes);

td_status td_val_sums_report(const td_val_sums *s, const char *prefix, int topk,
                             td_report *r) TD_CHECKED;
void td_val_sums_release(td_val_sums *s);

/** A run's sums; all zero at the beginning, except skipped_seen. */
typedef struct {
    td_step_sums window, epoch, run, warm; /* window: since the last line; warm: after warm-up */
    td_val_sums val, val_ema;
    double *line_rates; /* [n_lines] images/s of every complete line of a detector's training */
    size_t n_lines, cap_lines;
    double loss; /* the smallest of the epochs; compat: the largest */
    int64_t n_epochs;
    int64_t skipped_seen;
    double log_s; /* seconds to write the last line */
} td_run_sums;

void td_run_sums_release(td_run_sums *s);

/** Append a log line's rate, images/s. */
td_status td_run_sums_add_line(td_run_sums *s, double rate) TD_CHECKED;

/**
 * Add a validation's times to the current record under TensorFlow's names: latencies in ms with
 * interpolated quantiles, without the first `n_warm` batches; NaN if no batch is left.
 * td_tf_eval_report adds the accuracies, as fractions, before them.
 */
td_status td_tf_times_report(const td_eval_result *v, int n_warm, td_report *r) TD_CHECKED;
td_status td_tf_eval_report(const td_eval_result *v, int topk, int n_warm, td_report *r) TD_CHECKED;

#endif
