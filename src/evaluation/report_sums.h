/*
 * evaluation/report_sums.h -- sums over steps and validations: between log lines, in epochs, in a
 * run
 *
 * Rates are images / seconds.  With --raport-compat they are means of the steps' rates, as the
 * reference computes them, and a run's loss is the largest of its epochs where we keep the least.
 */
#ifndef TD_EVALUATION_REPORT_SUMS_H
#define TD_EVALUATION_REPORT_SUMS_H

#include "evaluation/evaluator.h"
#include "loggers/run_logger.h"

/* Values of a detector's step besides its loss. */
enum { TD_PART_CLASS, TD_PART_BOX, TD_PART_POSITIVES, TD_PARTS };

/* Steps. */
typedef struct {
    int64_t n, n_losses; /* steps; those that were applied, whose losses count */
    double n_images;
    double loss_sum, scale_sum, data_s, compute_s;
    double compute_rates, total_rates; /* sums of the steps' images/s */
    double part_sums[TD_PARTS];
} td_step_sums;

typedef struct {
    double loss; /* NaN: skipped */
    double scale, n_images, data_s, compute_s;
    double parts[TD_PARTS]; /* NaN: none */
} td_step_metadata;

void td_step_sums_add(td_step_sums *s, const td_step_metadata *f);

/** train.loss is `loss`; lr as it is; the others from the sums. */
void td_step_sums_report(const td_step_sums *s, double loss, double lr, td_report *r);

/** Mean of the losses that count; NaN: there are none. */
double td_step_sums_loss(const td_step_sums *s);

/** Images/s, waiting for data included. */
double td_step_sums_rate(const td_step_sums *s, bool is_compat);

/* Validations of a run. */
typedef struct {
    td_eval_result all;                /* sums; its latency is ours */
    double top1, topk, loss;           /* the most, the most, the least (compat: the most) */
    td_counts last;                    /* of the last validation */
    double last_boxes[TD_BOX_METRICS]; /* likewise, of a detector; those of `all` are the best */
    double *latency;                   /* [n_latency] of all batches, s */
    size_t n_latency, cap_latency;
} td_val_sums;

td_status td_val_sums_add(td_val_sums *s, const td_eval_result *v, bool is_compat) TD_CHECKED;
td_status td_val_sums_report(const td_val_sums *s, const char *prefix, int topk,
                             td_report *r) TD_CHECKED;
void td_val_sums_release(td_val_sums *s);

/** A run's sums, all zero in the beginning but skipped_seen. */
typedef struct {
    td_step_sums window, epoch, run, warm; /* since the last line; ...; without the first steps */
    td_val_sums val, val_ema;
    double *line_rates; /* [n_lines] images/s of every whole line of a detector's training */
    size_t n_lines, cap_lines;
    double loss; /* of the best epoch; compat: of the worst */
    int64_t n_epochs;
    int64_t skipped_seen;
    double log_s; /* that the last line took */
} td_run_sums;

void td_run_sums_release(td_run_sums *s);

/** One more line of the log, of so many images/s. */
td_status td_run_sums_add_line(td_run_sums *s, double rate) TD_CHECKED;

/**
 * TensorFlow's names of a validation's results into the record that is begun: latencies in ms with
 * quantiles between the two nearest, the first `n_warm` batches left out of the times; NaN where
 * nothing is left.  td_tf_eval_report has the accuracies before them, as fractions.
 */
td_status td_tf_times_report(const td_eval_result *v, int n_warm, td_report *r) TD_CHECKED;
td_status td_tf_eval_report(const td_eval_result *v, int topk, int n_warm, td_report *r) TD_CHECKED;

#endif
