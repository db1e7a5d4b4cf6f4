/*
 * detector_evaluator.c -- runs a detector over a data set and computes the metrics
 *
 *     batch -> detector runner -> boxes in pixels of the image  (rank 0 gathers those of all ranks)
 *     all boxes, in the order of the data set -> metrics
 */
#include "evaluation/detector_evaluator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/signals.h"
#include "comm/gather.h"
#include "data/bad_limit.h"
#include "inference/inputs.h"
#include "optim/training_graph.h"

struct td_detector_evaluator {
    td_detector_runner *runner;
    double *latency; /* [n_batches] s, grown */
    size_t cap_latency;
    td_eval_result window; /* since the last record */
    double log_s;          /* seconds to write it */

    td_gather found; /* td_coco_detection, of each evaluated image */
    td_coco_ground_truth *ground_truths;
    size_t n_ground_truths, cap_ground_truths;
    td_coco_metrics metrics;
};

/* --- the evaluator ---------------------------------------------------------------------------- */

td_status td_detector_evaluator_new(const td_model_opts *model, td_device *dev,
                                    const td_detector_evaluator_opts *opts,
                                    td_detector_evaluator **out)
{
    const td_detector_runner_opts fo = { .batch = opts->batch,
                                         .amp = opts->amp,
                                         .skip_passes = opts->skip_passes,
                                         .dump_after = opts->dump_after };
    *out = NULL;
    td_detector_evaluator *j = TD_NEW(td_detector_evaluator);
    if (!j)
        return TD_ENOMEM;
    td_status st = td_detector_runner_new(model, dev, &fo, &j->runner);
    if (st == TD_OK)
        *out = j;
    else
        td_detector_evaluator_free(j);
    return st;
}

static void forget_run(td_detector_evaluator *j)
{
    td_coco_metrics_release(&j->metrics);
    td_gather_clear(&j->found);
    j->n_ground_truths = 0;
}

void td_detector_evaluator_free(td_detector_evaluator *j)
{
    if (!j)
        return;
    forget_run(j);
    td_free(j->ground_truths);
    td_gather_release(&j->found);
    td_free(j->latency);
    td_detector_runner_free(j->runner);
    td_free(j);
}

td_program *td_detector_evaluator_program(td_detector_evaluator *j)
{
    return td_detector_runner_program(j->runner);
}

const td_coco_metrics *td_detector_evaluator_metrics(const td_detector_evaluator *j)
{
    return &j->metrics;
}

const td_coco_detection *td_detector_evaluator_found(const td_detector_evaluator *j, size_t *n)
{
    *n = j->found.n_bytes / sizeof(td_coco_detection);
    return (const td_coco_detection *)(const void *)j->found.bytes;
}

/* --- a batch ---------------------------------------------------------------------------------- */

/* Keep the boxes of an image, in its pixels; drop classes that the data set does not have. */
static td_status keep_found(td_detector_evaluator *j, const td_dataset *ds, int64_t sample,
                            const td_detection *found, int n)
{
    const td_annotated a = td_dataset_annotated(ds, sample);
    const double w = a.width, h = a.height;
    TD_TRY(td_gather_begin(&j->found, sample));
    for (int i = 0; i < n; i++) {
        const td_rect r = found[i].box;
        const int label = found[i].label;
        const int64_t category =
            label <= td_dataset_classes(ds) ? td_dataset_category(ds, label) : -1;
        if (category < 0)
            continue;
        const td_coco_detection d = { .image = a.id,
                                      .category = category,
                                      .box = { (double)r.xmin * w, (double)r.ymin * h,
                                               (double)(r.xmax - r.xmin) * w,
                                               (double)(r.ymax - r.ymin) * h },
                                      .score = (double)found[i].score };
        TD_TRY(td_gather_put(&j->found, &d, sizeof d));
    }
    return TD_OK;
}

static td_status keep_ground_truths(td_detector_evaluator *j, const td_dataset *ds, int64_t sample)
{
    int n;
    const td_annotated a = td_dataset_annotated(ds, sample);
    const td_annotation *t = td_dataset_annotations(ds, sample, &n);
    TD_TRY(td_reserve(&j->ground_truths, &j->cap_ground_truths, j->n_ground_truths + (size_t)n,
                      sizeof *j->ground_truths));
    for (int i = 0; i < n; i++)
        j->ground_truths[j->n_ground_truths++] =
            (td_coco_ground_truth){ .image = a.id,
                                    .category = td_dataset_category(ds, t[i].label),
                                    .box = { t[i].x, t[i].y, t[i].width, t[i].height },
                                    .area = t[i].area,
                                    .is_crowd = t[i].is_crowd };
    return TD_OK;
}

static bool is_left_out(const td_detector_evaluator_opts *o, int64_t sample)
{
    return o->boxes->sample_1_of_n > 1 && sample % o->boxes->sample_1_of_n != 0;
}

static td_status note_rows(td_detector_evaluator *j, const td_dataset *ds, const td_batch *b,
                           const td_detector_evaluator_opts *o, int64_t *n_evaluated)
{
    const td_detection *found;
    int n;
    for (int i = 0; i < b->n; i++) {
        if (is_left_out(o, b->samples[i]))
            continue;
        found = td_detector_runner_found(j->runner, i, &n);
        TD_TRY(keep_found(j, ds, b->samples[i], found, n));
        ++*n_evaluated;
    }
    return TD_OK;
}

static td_status show_rows(td_detector_evaluator *j, const td_batch *b,
                           const td_detector_evaluator_opts *o, int64_t *spent_ns)
{
    const int64_t t0 = td_now_ns();
    int n;
    for (int i = 0; o->each && i < b->n; i++) {
        const td_detection *found = td_detector_runner_found(j->runner, i, &n);
        if (!is_left_out(o, b->samples[i]))
            TD_TRY(o->each(o->ctx, b->samples[i], found, n));
    }
    *spent_ns += td_now_ns() - t0;
    return TD_OK;
}

static void add_times(td_eval_result *v, int n, double data_s, double compute_s)
{
    v->n_batches++;
    v->counts.n += n;
    v->compute_s += compute_s;
    v->data_s += data_s;
    v->compute_rates += n / compute_s;
    v->total_rates += n / (data_s + compute_s);
}

static td_status evaluate_batch(td_detector_evaluator *j, const td_dataset *ds, const td_batch *b,
                                const td_detector_evaluator_opts *o, td_eval_result *v)
{
    const int64_t t0 = td_now_ns();
    const td_nms_opts nms = td_boxes_nms(o->boxes, td_detector_runner_anchors(j->runner)->kind);
    TD_TRY(td_detector_runner_run(j->runner, b->images, b->n, &nms));
    TD_TRY(note_rows(j, ds, b, o, &v->n_evaluated));
    TD_TRY(td_reserve(&j->latency, &j->cap_latency, (size_t)v->n_batches + 1, sizeof *j->latency));
    const double compute_s = (double)(td_now_ns() - t0) * 1e-9;
    const double data_s = b->wait_s + (td_report_is_compat(o->report) ? j->log_s : 0);
    j->log_s = 0;
    j->latency[v->n_batches] = compute_s;
    add_times(v, b->n, data_s, compute_s);
    add_times(&j->window, b->n, data_s, compute_s);
    return TD_OK;
}

/* Every print_freq batches, write a record of the sums since the last one. */
static td_status report_batches(td_detector_evaluator *j, const td_detector_evaluator_opts *o,
                                const td_eval_result *v)
{
    if (!o->report || !o->print_freq || v->n_batches % o->print_freq)
        return TD_OK;
    const int64_t t0 = td_now_ns();
    const int64_t step[3] = { o->step[0], o->step[1], v->n_batches };
    j->window.latency = j->latency + (v->n_batches - j->window.n_batches);
    j->window.detects = true;
    for (int i = 0; i < TD_BOX_METRICS; i++)
        j->window.boxes[i] = (double)NAN; /* none for part of a data set */
    TD_TRY(td_eval_result_quantiles(&j->window));
    td_report_begin(o->report, 3, step);
    td_eval_result_report(&j->window, o->prefix, 0, o->report);
    td_status st = td_report_end(o->report);
    j->window = (td_eval_result){ 0 };
    j->log_s = (double)(td_now_ns() - t0) * 1e-9;
    return st;
}

/* Sum the counts of all ranks; stopped if one rank was. */
static td_status share_counts(td_comm *comm, const td_loader *ld, td_eval_result *v)
{
    int64_t counts[3] = { v->counts.n, v->n_evaluated, v->was_stopped };
    TD_TRY(td_bad_limit_check(comm, ld));
    TD_TRY(td_comm_sum_i64(comm, counts, 3));
    v->counts.n = counts[0];
    v->n_evaluated = counts[1];
    v->was_stopped = counts[2] > 0;
    return TD_OK;
}

/* Rank 0 computes the metrics and broadcasts them. */
static td_status measure(td_detector_evaluator *j, const td_dataset *ds,
                         const td_detector_evaluator_opts *o, td_eval_result *v)
{
    const td_coco_metrics_opts co = { .box_areas = o->boxes->box_areas };
    size_t n;
    TD_TRY(td_gather_run(&j->found, o->comm));
    const td_coco_detection *found = td_detector_evaluator_found(j, &n);
    if (td_comm_rank(o->comm) == 0) {
        for (size_t i = 0; i < j->found.n; i++)
            TD_TRY(keep_ground_truths(j, ds, j->found.images[i].sample));
        TD_TRY(td_coco_metrics_compute(j->ground_truths, j->n_ground_truths, found, n, &co,
                                       &j->metrics));
        memcpy(v->boxes, j->metrics.value, sizeof v->boxes);
    }
    return td_comm_broadcast(o->comm, v->boxes, sizeof v->boxes);
}

static td_status run(td_detector_evaluator *j, const td_dataset *ds, td_loader *ld,
                     const td_detector_evaluator_opts *opts, td_progress *progress,
                     td_eval_result *out)
{
    const td_batch *b;
    const int64_t t0 = td_now_ns();
    int64_t shown_ns = 0;
    *out = j->window = (td_eval_result){ .detects = true };
    forget_run(j);
    j->log_s = 0;
    while (!out->was_stopped && (opts->max_batches < 0 || out->n_batches < opts->max_batches)) {
        const td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            break;
        TD_TRY(st);
        if (b->n == 0)
            continue;
        TD_TRY(evaluate_batch(j, ds, b, opts, out));
        TD_TRY(show_rows(j, b, opts, &shown_ns));
        td_progress_step(progress, out->n_batches, out->counts.n);
        TD_TRY(report_batches(j, opts, out));
        out->was_stopped = td_signal_caught() != 0;
        TD_TRY(td_comm_check(opts->comm));
    }
    TD_TRY(share_counts(opts->comm, ld, out));
    TD_TRY(measure(j, ds, opts, out));
    out->seconds = (double)(td_now_ns() - t0 - shown_ns) * 1e-9;
    out->latency = j->latency;
    return td_eval_result_quantiles(out);
}

td_status td_detector_evaluator_run(td_detector_evaluator *j, const td_dataset *ds, td_loader *ld,
                                    const td_detector_evaluator_opts *opts, td_eval_result *out)
{
    td_progress progress = opts->progress;
    td_progress_begin(&progress, ld, opts->max_batches);
    const td_status st = run(j, ds, ld, opts, &progress, out);
    td_progress_end(&progress);
    return st;
}
