/*
 * evaluator.c -- runs a classifier over a data set and counts the results
 *
 * The program has one batch size; a smaller batch is copied into a buffer of full size and only its
 * rows are counted.
 */
#include "evaluation/evaluator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rule.h"
#include "base/signals.h"
#include "base/stats.h"
#include "base/text.h"
#include "data/bad_limit.h"
#include "data/dataset.h"
#include "evaluation/mirrored.h"
#include "evaluation/outcomes.h"
#include "inference/inputs.h"
#include "io/safetensors.h"
#include "optim/training_graph.h"

struct td_evaluator {
    td_program *program;
    int batch, classes;
    size_t image_bytes;
    bool takes_pixels;
    char *images;    /* [batch] rows of image_bytes, for smaller batches */
    int64_t *labels; /* [batch] */
    bool is_multi_label;
    float *targets;       /* multi-label: [batch, classes] */
    td_mirrored mirrored; /* images NULL: no mirror images */
    double *latency;      /* [n_batches] s, grown */
    size_t cap_latency;
    td_eval_result window; /* since the last record */
    double log_s;          /* seconds to write it */
};

td_status td_evaluator_new(const td_model_opts *model, td_device *dev,
                           const td_evaluator_opts *opts, td_evaluator **out)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_compile_opts compile = { .amp = opts->amp,
                                .skip = opts->skip_passes,
                                .dump_after = opts->dump_after,
                                .planned_runs = opts->planned_runs };
    td_model_opts images = *model;
    *out = NULL;
    if (opts->topk > model->num_classes && opts->topk != TD_EVALUATOR_TOPK)
        return td_error(TD_EUSAGE, "--topk is %d, wanted at most %d, the number of classes",
                        opts->topk, model->num_classes);
    td_evaluator *e = TD_NEW(td_evaluator);
    if (!e)
        return TD_ENOMEM;
    TD_OUT(td_model_resolve_images(&images));
    TD_OUT(td_evaluation_graph(model, opts->batch, opts->smoothing, opts->norm, &g));
    TD_OUT(td_compile(g, dev, &compile, &e->program));
    e->batch = opts->batch;
    e->classes = model->num_classes;
    e->takes_pixels = opts->norm != NULL;
    e->image_bytes = (size_t)td_model_channels(&images) * (size_t)images.image_size *
                     (size_t)images.image_size * (e->takes_pixels ? 1 : sizeof(float));
    if (opts->mirrors)
        TD_OUT(td_mirrored_init(&e->mirrored,
                                &(td_mirrored_shape){ .batch = e->batch,
                                                      .classes = e->classes,
                                                      .channels = td_model_channels(&images),
                                                      .size = images.image_size,
                                                      .is_pixels = e->takes_pixels }));
    e->is_multi_label = model->multi_label;
    if (e->is_multi_label)
        TD_OUT(
            td_alloc_to(&e->targets, (size_t)opts->batch, (size_t)e->classes * sizeof *e->targets));
    e->images = td_alloc((size_t)opts->batch, e->image_bytes);
    e->labels = td_alloc((size_t)opts->batch, sizeof *e->labels);
    if (!e->images || !e->labels)
        TD_OUT(TD_ENOMEM);
    *out = e;
    e = NULL;
out:
    td_graph_free(g);
    td_evaluator_free(e);
    return st;
}

void td_evaluator_free(td_evaluator *e)
{
    if (!e)
        return;
    td_program_free(e->program);
    td_free(e->images);
    td_free(e->labels);
    td_free(e->targets);
    td_free(e->latency);
    td_mirrored_release(&e->mirrored);
    td_free(e);
}

td_program *td_evaluator_program(td_evaluator *e)
{
    return e->program;
}

static bool mirrors(const td_evaluator *e)
{
    return e->mirrored.images != NULL;
}

/* logits [batch, classes] and losses [batch] of the last batch */
static const float *logits_of(const td_evaluator *e)
{
    return mirrors(e) ? e->mirrored.logits : td_program_output(e->program, "logits", NULL);
}

static const float *losses_of(const td_evaluator *e)
{
    return mirrors(e) ? e->mirrored.losses : td_program_output(e->program, "losses", NULL);
}

/* Of a whole batch, where the rows behind those of the loader's batch are any. */
typedef struct {
    const void *images;
    const int64_t *labels;
    const float *targets; /* multi-label */
} fed;

static td_status feed(td_evaluator *e, const td_batch *b, fed *out)
{
    *out = (fed){ .images = td_batch_images(b), .labels = b->labels, .targets = b->targets };
    TD_CHECK(e->takes_pixels == (b->pixels != NULL));
    if (b->n < e->batch) {
        memcpy(e->images, out->images, (size_t)b->n * e->image_bytes);
        memcpy(e->labels, b->labels, (size_t)b->n * sizeof *e->labels);
        out->images = e->images;
        out->labels = e->labels;
    }
    TD_TRY(td_program_bind(e->program, "images", out->images));
    if (!e->is_multi_label)
        return td_program_bind(e->program, "labels", out->labels);
    if (b->n < e->batch) {
        memcpy(e->targets, b->targets, (size_t)b->n * (size_t)e->classes * sizeof *e->targets);
        out->targets = e->targets;
    }
    return td_program_bind(e->program, "targets", out->targets);
}

static td_status run_batch(td_evaluator *e, td_loader *ld, const td_batch *b, double smoothing)
{
    fed in;
    TD_TRY(feed(e, b, &in));
    TD_TRY(td_program_start(e->program));
    if (!mirrors(e))
        TD_TRY(td_program_send_ahead(e->program, "images", td_loader_peek(ld)));
    TD_TRY(td_program_finish(e->program));
    if (!mirrors(e))
        return TD_OK;
    td_mirrored *m = &e->mirrored;
    td_mirrored_keep(m, td_program_output(e->program, "logits", NULL));
    TD_TRY(td_program_bind(e->program, "images", td_mirrored_images(m, in.images)));
    TD_TRY(td_program_start(e->program));
    TD_TRY(td_program_finish(e->program));
    const float *logits = td_program_output(e->program, "logits", NULL);
    if (e->is_multi_label)
        td_mirrored_finish_targets(m, logits, in.targets);
    else
        td_mirrored_finish(m, logits, in.labels, smoothing);
    return TD_OK;
}

static void add_times(td_eval_result *v, int n, double data_s, double compute_s)
{
    v->n_batches++;
    v->compute_s += compute_s;
    v->data_s += data_s;
    v->compute_rates += n / compute_s;
    v->total_rates += n / (data_s + compute_s);
}

/* Count the prediction of each image. */
static void count_confusion(const td_evaluator *e, const td_batch *b, int64_t *confusion)
{
    const float *logits = logits_of(e);
    int best;
    for (int i = 0; i < b->n; i++) {
        if (b->labels[i] < 0 || b->labels[i] >= e->classes)
            continue;
        td_top_k(logits + (size_t)i * (size_t)e->classes, e->classes, 1, &best);
        confusion[b->labels[i] * e->classes + best]++;
    }
}

static td_status evaluate_batch(td_evaluator *e, td_loader *ld, const td_batch *b,
                                const td_evaluator_opts *o, td_eval_result *v)
{
    const td_counts before = v->counts;
    td_counts *w = &e->window.counts;
    int64_t t0 = td_now_ns();
    TD_TRY(run_batch(e, ld, b, o->smoothing));
    td_count_batch(&v->counts, logits_of(e), b->labels, losses_of(e), b->n, e->classes, o->topk);
    if (o->confusion)
        count_confusion(e, b, o->confusion);
    TD_TRY(td_reserve(&e->latency, &e->cap_latency, (size_t)v->n_batches + 1, sizeof *e->latency));
    const double compute_s = (double)(td_now_ns() - t0) * 1e-9;
    /* in the reference, the wait includes the time to write the previous line */
    const double data_s = b->wait_s + (td_report_is_compat(o->report) ? e->log_s : 0);
    e->log_s = 0;
    e->latency[v->n_batches] = compute_s;
    add_times(v, b->n, data_s, compute_s);
    add_times(&e->window, b->n, data_s, compute_s);
    w->n += v->counts.n - before.n;
    w->n_top1 += v->counts.n_top1 - before.n_top1;
    w->n_topk += v->counts.n_topk - before.n_topk;
    w->loss_sum += v->counts.loss_sum - before.loss_sum;
    return TD_OK;
}

td_status td_eval_result_quantiles(td_eval_result *v)
{
    const int n = (int)v->n_batches;
    double *sorted = td_copy_array(v->latency, (size_t)n, sizeof *sorted);
    if (!sorted)
        return TD_ENOMEM;
    v->p50 = td_quantile(sorted, n, 0.5);
    v->p90 = td_quantile(sorted, n, 0.9);
    v->p95 = td_quantile(sorted, n, 0.95);
    v->p99 = td_quantile(sorted, n, 0.99);
    v->p100 = td_quantile(sorted, n, 1);
    td_free(sorted);
    return TD_OK;
}

static void add_metric(td_report *r, const char *prefix, const char *name, double value)
{
    char metric[48];
    snprintf(metric, sizeof metric, "%s.%s", prefix ? prefix : "val", name);
    td_report_add(r, metric, value);
}

/* Every print_freq batches, write a record of the sums since the last one. */
static td_status report_batches(td_evaluator *e, const td_evaluator_opts *o,
                                const td_eval_result *v)
{
    if (!o->report || !o->print_freq || v->n_batches % o->print_freq)
        return TD_OK;
    const int64_t t0 = td_now_ns();
    int64_t step[3] = { o->step[0], o->step[1], v->n_batches };
    e->window.latency = e->latency + (v->n_batches - e->window.n_batches);
    TD_TRY(td_eval_result_quantiles(&e->window));
    td_report_begin(o->report, 3, step);
    td_eval_result_report(&e->window, o->prefix, o->topk, o->report);
    td_status st = td_report_end(o->report);
    e->window = (td_eval_result){ .is_multi_label = e->is_multi_label };
    e->window.multi.map = -1;
    e->log_s = (double)(td_now_ns() - t0) * 1e-9;
    return st;
}

static void add_multi_scores(const td_eval_result *v, double loss, const char *prefix, td_report *r)
{
    if (v->n_batches && v->multi.map >= 0) { /* not those of some batches */
        add_metric(r, prefix, "mAP", v->multi.map);
        add_metric(r, prefix, "micro_f1", v->multi.micro_f1);
        add_metric(r, prefix, "macro_f1", v->multi.macro_f1);
    }
    add_metric(r, prefix, "loss", loss);
}

static void add_scores(const td_eval_result_scores *s, const char *prefix, int topk, td_report *r)
{
    char name[16];
    snprintf(name, sizeof name, "top%d", topk);
    add_metric(r, prefix, "top1", s->top1);
    if (topk > 1)
        add_metric(r, prefix, name, s->topk);
    add_metric(r, prefix, "loss", s->loss);
}

void td_eval_result_report_as(const td_eval_result *v, const td_eval_result_scores *scores,
                              const char *prefix, int topk, td_report *r)
{
    if (v->detects)
        for (int i = 0; i < TD_BOX_METRICS; i++)
            add_metric(r, prefix, td_box_metric_name((td_box_metric)i), v->boxes[i]);
    else if (v->is_multi_label)
        add_multi_scores(v, scores->loss, prefix, r);
    else
        add_scores(scores, prefix, topk, r);
    td_eval_result_report_times(v, prefix, r);
}

void td_eval_result_report_times(const td_eval_result *v, const char *prefix, td_report *r)
{
    const bool is_compat = td_report_is_compat(r);
    const double n = (double)v->counts.n, n_batches = (double)v->n_batches;
    add_metric(r, prefix, "compute_ips",
               is_compat ? v->compute_rates / n_batches : n / v->compute_s);
    add_metric(r, prefix, "total_ips",
               is_compat ? v->total_rates / n_batches : n / (v->data_s + v->compute_s));
    add_metric(r, prefix, "data_time", v->data_s / n_batches);
    add_metric(r, prefix, "compute_latency", v->compute_s / n_batches);
    add_metric(r, prefix, "compute_time", v->compute_s / n_batches);
    add_metric(r, prefix, "compute_latency_at50", v->p50);
    add_metric(r, prefix, "compute_latency_at90", v->p90);
    add_metric(r, prefix, "compute_latency_at95", v->p95);
    add_metric(r, prefix, "compute_latency_at99", v->p99);
    add_metric(r, prefix, "compute_latency_at100", v->p100);
}

void td_eval_result_report(const td_eval_result *v, const char *prefix, int topk, td_report *r)
{
    const td_counts *c = &v->counts;
    const td_eval_result_scores scores = { td_percent(c->n_top1, c->n), td_percent(c->n_topk, c->n),
                                           td_mean_loss(c) };
    td_eval_result_report_as(v, &scores, prefix, topk, r);
}

static td_status keep_logits(const td_evaluator *e, const td_batch *b, td_gather *all)
{
    const char *rows = (const char *)logits_of(e);
    const size_t row = (size_t)e->classes * sizeof(float);
    for (int i = 0; i < b->n; i++) {
        TD_TRY(td_gather_begin(all, b->samples[i]));
        TD_TRY(td_gather_put(all, rows + (size_t)i * row, row));
    }
    return TD_OK;
}

/* Rank 0, which has the logits of all ranks, computes the scores and broadcasts them. */
static td_status score(const td_evaluator *e, const td_dataset *ds, const td_evaluator_opts *o,
                       const td_gather *all, td_multi_scores *out)
{
    const size_t k = (size_t)e->classes;
    const double threshold = o->threshold > 0 ? o->threshold : 0.5;
    td_status st = TD_OK;
    uint8_t *targets = NULL;
    float *row = NULL;
    if (td_comm_rank(o->comm) == 0) {
        TD_OUT(td_alloc_to(&targets, all->n + 1, k));
        TD_OUT(TD_ALLOC(row, k));
        for (size_t i = 0; i < all->n; i++) {
            td_sample_targets(ds, all->images[i].sample, row);
            for (size_t c = 0; c < k; c++)
                targets[i * k + c] = row[c] > 0;
        }
        TD_OUT(td_multi_scores_compute((const float *)(const void *)all->bytes, targets,
                                       (int64_t)all->n, e->classes, threshold, o->labels, out));
        if (out->n_absent)
            td_log(TD_LOG_WARN, "evaluate",
                   "%lld of %d classes have no image here: their average precision counts as 0",
                   (long long)out->n_absent, e->classes);
    }
    TD_OUT(td_comm_broadcast(o->comm, out, sizeof *out));
    if (o->labels)
        st = td_comm_broadcast(o->comm, o->labels, k * sizeof *o->labels);
out:
    td_free(targets);
    td_free(row);
    return st;
}

/* Rank 0 writes the logits of all ranks. */
static td_status write_logits(const td_evaluator *e, const td_evaluator_opts *o,
                              const td_gather *all)
{
    td_tensors *t;
    if (td_comm_rank(o->comm) > 0)
        return TD_OK;
    const int64_t dim[2] = { (int64_t)all->n, e->classes };
    TD_TRY(td_tensors_new(&t));
    td_status st = td_tensors_add(t, "logits", TD_DT_F32, 2, dim, all->bytes ? all->bytes : "");
    if (st == TD_OK)
        st = td_tensors_write(t, o->logits);
    td_tensors_free(t);
    return st;
}

/* Sum the counts of all ranks; stopped if one rank was. */
static td_status sum_counts(td_comm *comm, td_eval_result *v)
{
    td_counts *c = &v->counts;
    int64_t counts[5] = { c->n, c->n_top1, c->n_topk, c->n_nonfinite, v->was_stopped };
    TD_TRY(td_comm_sum_i64(comm, counts, 5));
    TD_TRY(td_comm_sum_f64(comm, &c->loss_sum, 1));
    c->n = counts[0];
    c->n_top1 = counts[1];
    c->n_topk = counts[2];
    c->n_nonfinite = counts[3];
    v->was_stopped = counts[4] > 0;
    return TD_OK;
}

/* Several labels for an image require a multi-label network, and the reverse. */
static td_status check_labels(const td_evaluator *e, const td_dataset *ds)
{
    const bool is_multi_label = td_dataset_is_multi_label(ds);
    if (is_multi_label != e->is_multi_label)
        return td_error(TD_EUSAGE,
                        is_multi_label
                            ? "'%s' has several labels for an image, which requires a multi-label "
                              "network (--multi-label)"
                            : "'%s' has one label for each image, the network is a multi-label one",
                        td_dataset_root(ds));
    if (is_multi_label && td_dataset_classes(ds) != e->classes)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(ds),
                        td_dataset_classes(ds), e->classes);
    return TD_OK;
}

td_status td_evaluator_run(td_evaluator *e, td_loader *ld, const td_evaluator_opts *opts,
                           td_eval_result *out)
{
    td_status st = TD_OK;
    td_gather logits = { 0 };
    const td_batch *b;
    TD_TRY(check_labels(e, td_loader_dataset(ld)));
    int64_t t0 = td_now_ns();
    td_progress progress = opts->progress;
    *out = e->window = (td_eval_result){ .is_multi_label = e->is_multi_label };
    e->window.multi.map = -1;
    e->log_s = 0;
    if (opts->outcomes)
        td_gather_clear(opts->outcomes);
    td_progress_begin(&progress, ld, opts->max_batches);
    while (opts->max_batches < 0 || out->n_batches < opts->max_batches) {
        st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            break;
        TD_OUT(st);
        if (b->n == 0)
            continue;
        TD_OUT(evaluate_batch(e, ld, b, opts, out));
        td_progress_step(&progress, out->n_batches, out->counts.n);
        TD_OUT(report_batches(e, opts, out));
        if (opts->logits || e->is_multi_label)
            TD_OUT(keep_logits(e, b, &logits));
        if (opts->outcomes && !e->is_multi_label)
            TD_OUT(td_outcomes_add(opts->outcomes, b, logits_of(e), e->classes));
        out->was_stopped = td_signal_caught() != 0;
        if (out->was_stopped)
            break;
        TD_OUT(td_comm_check(opts->comm));
    }
    TD_OUT(td_bad_limit_check(opts->comm, ld));
    TD_OUT(sum_counts(opts->comm, out));
    out->seconds = (double)(td_now_ns() - t0) * 1e-9;
    out->latency = e->latency;
    TD_OUT(td_eval_result_quantiles(out));
    if (opts->outcomes && !out->was_stopped)
        TD_OUT(td_gather_run(opts->outcomes, opts->comm));
    if ((opts->logits || e->is_multi_label) && !out->was_stopped)
        TD_OUT(td_gather_run(&logits, opts->comm));
    if (e->is_multi_label && !out->was_stopped)
        TD_OUT(score(e, td_loader_dataset(ld), opts, &logits, &out->multi));
    if (opts->logits && !out->was_stopped)
        st = write_logits(e, opts, &logits);
out:
    td_progress_end(&progress);
    td_gather_release(&logits);
    return st;
}

typedef enum { TOP1, TOPK, LOSS, MAP, MICRO_F1, MACRO_F1 } metric;

static td_status parse_rule(const char *rule, int topk, td_rule *out, metric *what)
{
    char want_topk[16];
    TD_TRY(td_rule_parse(rule, "top1>=95 or loss<=0.3", out));
    snprintf(want_topk, sizeof want_topk, "top%d", topk);
    if (strcmp(out->name, "top1") == 0)
        *what = TOP1;
    else if (strcmp(out->name, "topk") == 0 || strcmp(out->name, want_topk) == 0)
        *what = TOPK;
    else if (strcmp(out->name, "loss") == 0)
        *what = LOSS;
    else if (strcmp(out->name, "mAP") == 0)
        *what = MAP;
    else if (strcmp(out->name, "micro_f1") == 0)
        *what = MICRO_F1;
    else if (strcmp(out->name, "macro_f1") == 0)
        *what = MACRO_F1;
    else
        return td_error(TD_EUSAGE,
                        "--require: unknown metric '%s', wanted one of top1, %s, loss, or of a "
                        "multi-label network mAP, micro_f1, macro_f1, loss",
                        out->name, want_topk);
    return TD_OK;
}

td_status td_require_check(const char *rule, int topk)
{
    td_rule r;
    metric what;
    return rule ? parse_rule(rule, topk, &r, &what) : TD_OK;
}

td_status td_require(const char *rule, const td_scores *s, int topk)
{
    td_rule r;
    metric what;
    if (!rule)
        return TD_OK;
    TD_TRY(parse_rule(rule, topk, &r, &what));
    double is = what == TOP1 ? s->top1 : what == TOPK ? s->topk : s->loss;
    if (what != LOSS && (what >= MAP) != (s->multi != NULL))
        return td_error(TD_EUSAGE, "--require %s: the network is %s", rule,
                        s->multi ? "a multi-label one, with mAP, micro_f1, macro_f1 and loss"
                                 : "no multi-label one");
    if (what >= MAP)
        is = what == MAP        ? s->multi->map
             : what == MICRO_F1 ? s->multi->micro_f1
                                : s->multi->macro_f1;
    if (!isfinite(s->loss))
        return td_error(TD_EREQUIRED, "the loss is not a finite number, %s was required", rule);
    if (s->n && (r.is_at_least ? is >= r.limit : is <= r.limit))
        return TD_OK;
    return td_error(TD_EREQUIRED, "%.*s is %.3f, %s was required", (int)strcspn(rule, "<>"), rule,
                    is, rule);
}
