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
                                         .norm = opts->norm,
                                         .amp = opts->amp,
                                         .skip_passes = opts->skip_passes,
                                         .dump_after = opts->dump_after,
                                         .planned_runs = opts->planned_runs,
                                         .is_whole = true };
    *out = NULL;
    td_detector_evaluator *e = TD_NEW(td_detector_evaluator);
    if (!e)
        return TD_ENOMEM;
    td_status st = td_detector_runner_new(model, dev, &fo, &e->runner);
    if (st == TD_OK)
        *out = e;
    else
        td_detector_evaluator_free(e);
    return st;
}

static void forget_run(td_detector_evaluator *e)
{
    td_coco_metrics_release(&e->metrics);
    td_gather_clear(&e->found);
    e->n_ground_truths = 0;
}

void td_detector_evaluator_free(td_detector_evaluator *e)
{
    if (!e)
        return;
    forget_run(e);
    td_free(e->ground_truths);
    td_gather_release(&e->found);
    td_free(e->latency);
    td_detector_runner_free(e->runner);
    td_free(e);
}

td_program *td_detector_evaluator_program(td_detector_evaluator *e)
{
    return td_detector_runner_program(e->runner);
}

const td_coco_metrics *td_detector_evaluator_metrics(const td_detector_evaluator *e)
{
    return &e->metrics;
}

const td_coco_detection *td_detector_evaluator_found(const td_detector_evaluator *e, size_t *n)
{
    *n = e->found.n_bytes / sizeof(td_coco_detection);
    return (const td_coco_detection *)(const void *)e->found.bytes;
}

/* --- a batch ---------------------------------------------------------------------------------- */

/* Keep the boxes of an image, in its pixels; drop classes that the data set does not have. */
static td_status keep_found(td_detector_evaluator *e, const td_dataset *ds, int64_t sample,
                            const td_detection *found, int n)
{
    const td_annotated a = td_dataset_annotated(ds, sample);
    const double w = a.width, h = a.height;
    TD_TRY(td_gather_begin(&e->found, sample));
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
        TD_TRY(td_gather_put(&e->found, &d, sizeof d));
    }
    return TD_OK;
}

static td_status keep_ground_truths(td_detector_evaluator *e, const td_dataset *ds, int64_t sample)
{
    int n;
    const td_annotated a = td_dataset_annotated(ds, sample);
    const td_annotation *t = td_dataset_annotations(ds, sample, &n);
    TD_TRY(td_reserve(&e->ground_truths, &e->cap_ground_truths, e->n_ground_truths + (size_t)n,
                      sizeof *e->ground_truths));
    for (int i = 0; i < n; i++)
        e->ground_truths[e->n_ground_truths++] =
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

static td_status note_rows(td_detector_evaluator *e, const td_dataset *ds, const td_batch *b,
                           const td_detector_evaluator_opts *o, int64_t *n_evaluated)
{
    const td_detection *found;
    int n;
    for (int i = 0; i < b->n; i++) {
        if (is_left_out(o, b->samples[i]))
            continue;
        found = td_detector_runner_found(e->runner, i, &n);
        TD_TRY(keep_found(e, ds, b->samples[i], found, n));
        ++*n_evaluated;
    }
    return TD_OK;
}

static td_status show_rows(td_detector_evaluator *e, const td_batch *b,
                           const td_detector_evaluator_opts *o, int64_t *spent_ns)
{
    const int64_t t0 = td_now_ns();
    int n;
    for (int i = 0; o->each && i < b->n; i++) {
        const td_detection *found = td_detector_runner_found(e->runner, i, &n);
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

static td_status evaluate_batch(td_detector_evaluator *e, const td_dataset *ds, const td_batch *b,
                                const td_detector_evaluator_opts *o, td_eval_result *v)
{
    const int64_t t0 = td_now_ns();
    const td_nms_opts nms = td_boxes_nms(o->boxes, td_detector_runner_anchors(e->runner)->kind);
    TD_TRY(td_detector_runner_run(e->runner, td_batch_images(b), b->n, &nms));
    TD_TRY(note_rows(e, ds, b, o, &v->n_evaluated));
    TD_TRY(td_reserve(&e->latency, &e->cap_latency, (size_t)v->n_batches + 1, sizeof *e->latency));
    const double compute_s = (double)(td_now_ns() - t0) * 1e-9;
    const double data_s = b->wait_s + (td_report_is_compat(o->report) ? e->log_s : 0);
    e->log_s = 0;
    e->latency[v->n_batches] = compute_s;
    add_times(v, b->n, data_s, compute_s);
    add_times(&e->window, b->n, data_s, compute_s);
    return TD_OK;
}

/* Every print_freq batches, write a record of the sums since the last one. */
static td_status report_batches(td_detector_evaluator *e, const td_detector_evaluator_opts *o,
                                const td_eval_result *v)
{
    if (!o->report || !o->print_freq || v->n_batches % o->print_freq)
        return TD_OK;
    const int64_t t0 = td_now_ns();
    const int64_t step[3] = { o->step[0], o->step[1], v->n_batches };
    e->window.latency = e->latency + (v->n_batches - e->window.n_batches);
    e->window.detects = true;
    for (int i = 0; i < TD_BOX_METRICS; i++)
        e->window.boxes[i] = (double)NAN; /* none for part of a data set */
    TD_TRY(td_eval_result_quantiles(&e->window));
    td_report_begin(o->report, 3, step);
    td_eval_result_report(&e->window, o->prefix, 0, o->report);
    td_status st = td_report_end(o->report);
    e->window = (td_eval_result){ 0 };
    e->log_s = (double)(td_now_ns() - t0) * 1e-9;
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
static td_status measure(td_detector_evaluator *e, const td_dataset *ds,
                         const td_detector_evaluator_opts *o, td_eval_result *v)
{
    const td_coco_metrics_opts co = { .box_areas = o->boxes->box_areas };
    size_t n;
    TD_TRY(td_gather_run(&e->found, o->comm));
    const td_coco_detection *found = td_detector_evaluator_found(e, &n);
    if (td_comm_rank(o->comm) == 0) {
        for (size_t i = 0; i < e->found.n; i++)
            TD_TRY(keep_ground_truths(e, ds, e->found.images[i].sample));
        TD_TRY(td_coco_metrics_compute(e->ground_truths, e->n_ground_truths, found, n, &co,
                                       &e->metrics));
        memcpy(v->boxes, e->metrics.value, sizeof v->boxes);
    }
    return td_comm_broadcast(o->comm, v->boxes, sizeof v->boxes);
}

static td_status run(td_detector_evaluator *e, const td_dataset *ds, td_loader *ld,
                     const td_detector_evaluator_opts *opts, td_progress *progress,
                     td_eval_result *out)
{
    const td_batch *b;
    const int64_t t0 = td_now_ns();
    int64_t shown_ns = 0;
    *out = e->window = (td_eval_result){ .detects = true };
    forget_run(e);
    e->log_s = 0;
    while (!out->was_stopped && (opts->max_batches < 0 || out->n_batches < opts->max_batches)) {
        const td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            break;
        TD_TRY(st);
        if (b->n == 0)
            continue;
        TD_TRY(evaluate_batch(e, ds, b, opts, out));
        TD_TRY(show_rows(e, b, opts, &shown_ns));
        td_progress_step(progress, out->n_batches, out->counts.n);
        TD_TRY(report_batches(e, opts, out));
        out->was_stopped = td_signal_caught() != 0;
        TD_TRY(td_comm_check(opts->comm));
    }
    TD_TRY(share_counts(opts->comm, ld, out));
    TD_TRY(measure(e, ds, opts, out));
    out->seconds = (double)(td_now_ns() - t0 - shown_ns) * 1e-9;
    out->latency = e->latency;
    return td_eval_result_quantiles(out);
}

td_status td_detector_evaluator_run(td_detector_evaluator *e, const td_dataset *ds, td_loader *ld,
                                    const td_detector_evaluator_opts *opts, td_eval_result *out)
{
    td_progress progress = opts->progress;
    td_progress_begin(&progress, ld, opts->max_batches);
    const td_status st = run(e, ds, ld, opts, &progress, out);
    td_progress_end(&progress);
    return st;
}
