/*
 * evaluation/evaluator.h -- one pass over a data set without training, shared by evaluate and
 * validation
 */
#ifndef TD_EVALUATION_EVALUATOR_H
#define TD_EVALUATION_EVALUATOR_H

#include "comm/comm.h"
#include "comm/gather.h"
#include "evaluation/metrics.h"
#include "evaluation/multi_label.h"
#include "loggers/progress.h"
#include "loggers/run_logger.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/loader.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct td_evaluator td_evaluator;

typedef struct {
    td_counts counts;
    double compute_s, data_s;        /* sums over the batches, without other work */
    double p50, p90, p95, p99, p100; /* batch latency, s, nearest rank */
    double compute_rates,
        total_rates; /* sums of the batches' images/s, without and with the wait */
    double seconds;  /* from begin to end */
    int64_t n_batches;
    const double *latency; /* [n_batches] s, in order; owned by the evaluator, until its next run */
    bool was_stopped;
    bool is_multi_label; /* counts have only n and the loss; all images' scores: */
    td_multi_scores multi;
    bool detects;        /* a detector: only counts.n, the number of images, is set, and: */
    int64_t n_evaluated; /* evaluated images; fewer with --sample-1-of-n-eval-examples */
    double boxes[TD_BOX_METRICS];
} td_eval_result;

enum { TD_EVALUATOR_TOPK = 5 }; /* the default, for any number of classes */

typedef struct {
    int batch, topk;
    int64_t max_batches;    /* -1: all */
    double smoothing;       /* label smoothing of the loss */
    double threshold;       /* multi-label: probability from which a class is predicted; 0: 0.5 */
    bool mirrors;           /* logits are means over each image and its mirror image */
    const td_norm *norm;    /* of loaders that give pixels (td_loader_pixel_norm); NULL: images */
    const td_amp_opts *amp; /* resolved */
    td_comm *comm;          /* ranks that share the data set; counts include all; NULL: one rank */
    const char *skip_passes, *dump_after;
    int64_t planned_runs; /* as td_compile_opts */
    td_report *report;    /* records every print_freq batches, or NULL */
    const char *prefix;   /* prefix of the metrics: "val" (NULL) or "val_ema" */
    int print_freq;
    int64_t step[2];         /* epoch and iteration in the records */
    td_progress progress;    /* logs the progress; not yet begun */
    const char *logits;      /* file for raw outputs, the same on all ranks, or NULL */
    td_gather *outcomes;     /* the prediction of each image (evaluation/outcomes.h), or NULL */
    int64_t *confusion;      /* [classes, classes], incremented at [label, best class], or NULL */
    td_label_scores *labels; /* multi-label: [classes], the scores of each, or NULL */
} td_evaluator_opts;

/**
 * Compile the evaluation program.  `model`'s classes and image size must be resolved.  TD_EUSAGE:
 * topk is neither the default nor at most the number of classes.
 */
td_status td_evaluator_new(const td_model_opts *model, td_device *dev,
                           const td_evaluator_opts *opts, td_evaluator **out) TD_CHECKED;
void td_evaluator_free(td_evaluator *e);

/** The program, for setting weights. */
td_program *td_evaluator_program(td_evaluator *e);

/**
 * Evaluate one epoch of `ld`.
 *   TD_EFORMAT  more bad images than allowed, on all ranks together
 */
td_status td_evaluator_run(td_evaluator *e, td_loader *ld, const td_evaluator_opts *opts,
                           td_eval_result *out) TD_CHECKED;

/** Percent, percent, mean loss. */
typedef struct {
    double top1, topk, loss;
} td_eval_result_scores;

/** Compute p50 ... p100 from `latency`. */
td_status td_eval_result_quantiles(td_eval_result *v) TD_CHECKED;

/** Add the results to the current record: PREFIX.top1, PREFIX.loss and so on. */
void td_eval_result_report(const td_eval_result *v, const char *prefix, int topk, td_report *r);

/** Add only the speeds and latencies. */
void td_eval_result_report_times(const td_eval_result *v, const char *prefix, td_report *r);

/** Add all results, but `scores` instead of those in v->counts. */
void td_eval_result_report_as(const td_eval_result *v, const td_eval_result_scores *scores,
                              const char *prefix, int topk, td_report *r);

/* Scores that a rule checks: percent, percent, mean loss, of n images; n 0 meets no rule. */
typedef struct {
    int64_t n;
    double top1, topk, loss;
    const td_multi_scores *multi; /* of a multi-label network; NULL: of another */
} td_scores;

/** Check that td_require can parse the rule: TD_EUSAGE if not; NULL is fine. */
td_status td_require_check(const char *rule, int topk) TD_CHECKED;

/**
 * Check a rule, "top1>=95", "loss<=0.3" ("top5" for topk 5).  TD_EUSAGE: malformed; TD_EREQUIRED:
 * not met.
 */
td_status td_require(const char *rule, const td_scores *s, int topk) TD_CHECKED;

#endif
