/*
 * report_sums.c -- sums over steps and validations, and their metrics
 */
#include "evaluation/report_sums.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/stats.h"

static const char *const part_names[TD_PARTS] = { "train.loss_class", "train.loss_box",
                                                  "train.positives" };

/* --- steps ------------------------------------------------------------------------------------ */

void td_step_sums_add(td_step_sums *s, const td_step_metadata *f)
{
    s->n++;
    if (!isnan(f->loss)) {
        s->n_losses++;
        s->loss_sum += f->loss;
        for (int i = 0; i < TD_PARTS; i++)
            s->part_sums[i] += f->parts[i];
    }
    s->n_images += f->n_images;
    s->scale_sum += f->scale;
    s->data_s += f->data_s;
    s->compute_s += f->compute_s;
    s->compute_rates += f->n_images / f->compute_s;
    s->total_rates += f->n_images / (f->data_s + f->compute_s);
}

double td_step_sums_loss(const td_step_sums *s)
{
    return s->n_losses ? s->loss_sum / (double)s->n_losses : (double)NAN;
}

double td_step_sums_rate(const td_step_sums *s, bool is_compat)
{
    if (s->n == 0)
        return (double)NAN;
    return is_compat ? s->total_rates / (double)s->n : s->n_images / (s->data_s + s->compute_s);
}

void td_step_sums_report(const td_step_sums *s, double loss, double lr, td_report *r)
{
    const bool is_compat = td_report_is_compat(r);
    const double n = (double)s->n;
    const bool has_tf_names = td_report_has_tf_names(r);
    const double rate = td_step_sums_rate(s, is_compat);
    td_report_add(r, "train.loss", loss);
    for (int i = 0; i < TD_PARTS && s->n_losses; i++)
        if (!isnan(s->part_sums[i]))
            td_report_add(r, part_names[i], s->part_sums[i] / (double)s->n_losses);
    td_report_add(r, "train.compute_ips",
                  is_compat ? s->compute_rates / n : s->n_images / s->compute_s);
    td_report_add(r, "train.total_ips", rate);
    td_report_add(r, "train.data_time", s->data_s / n);
    td_report_add(r, "train.compute_time", s->compute_s / n);
    td_report_add(r, "train.lr", lr);
    td_report_add(r, "train.grad_scale", s->scale_sum / n);
    if (has_tf_names) {
        td_report_add(r, "imgs_per_sec", rate);
        td_report_add(r, "cross_entropy", loss);
        td_report_add(r, "learning_rate", lr);
    }
}

/* --- validations ------------------------------------------------------------------------------ */

/* the largest of each score */
static void raise_multi(td_multi_scores *most, const td_multi_scores *v)
{
    most->map = fmax(most->map, v->map);
    most->micro_f1 = fmax(most->micro_f1, v->micro_f1);
    most->macro_f1 = fmax(most->macro_f1, v->macro_f1);
}

td_status td_val_sums_add(td_val_sums *s, const td_eval_result *v, bool is_compat)
{
    const double n = (double)v->counts.n;
    const double loss = n > 0 ? v->counts.loss_sum / n : (double)NAN;
    const bool is_first = s->all.n_batches == 0;
    TD_TRY(td_reserve(&s->latency, &s->cap_latency, s->n_latency + (size_t)v->n_batches,
                      sizeof *s->latency));
    if (v->n_batches)
        memcpy(s->latency + s->n_latency, v->latency, (size_t)v->n_batches * sizeof *s->latency);
    s->n_latency += (size_t)v->n_batches;
    s->all.counts.n += v->counts.n;
    s->all.n_batches += v->n_batches;
    s->all.data_s += v->data_s;
    s->all.compute_s += v->compute_s;
    s->all.compute_rates += v->compute_rates;
    s->all.total_rates += v->total_rates;
    s->last = v->counts;
    if (v->detects && (is_first || v->boxes[TD_BOX_AP] > s->all.boxes[TD_BOX_AP]))
        memcpy(s->all.boxes, v->boxes, sizeof v->boxes);
    if (v->detects)
        memcpy(s->last_boxes, v->boxes, sizeof v->boxes);
    s->all.detects = v->detects;
    s->all.is_multi_label = v->is_multi_label;
    /* weights with a non-finite loss are never the best */
    const bool is_finite = v->counts.n_nonfinite == 0;
    if (is_first)
        s->all.multi = (td_multi_scores){ -1, -1, -1, 0 };
    if (v->is_multi_label && is_finite)
        raise_multi(&s->all.multi, &v->multi);
    const double top1 = is_finite ? td_percent(s->last.n_top1, s->last.n) : (double)NAN;
    const double topk = is_finite ? td_percent(s->last.n_topk, s->last.n) : (double)NAN;
    s->top1 = is_first ? top1 : fmax(s->top1, top1); /* fmax ignores a NaN */
    s->topk = is_first ? topk : fmax(s->topk, topk);
    s->loss = is_first ? loss : is_compat ? fmax(s->loss, loss) : fmin(s->loss, loss);
    return TD_OK;
}

void td_val_sums_raise(td_val_sums *s, double best, const double *boxes)
{
    if (s->all.n_batches == 0 || best < 0)
        return;
    if (s->all.detects && boxes[TD_BOX_AP] > s->all.boxes[TD_BOX_AP])
        memcpy(s->all.boxes, boxes, sizeof s->all.boxes);
    else if (s->all.detects)
        return;
    else if (s->all.multi.map >= 0)
        s->all.multi.map = fmax(s->all.multi.map, best / 100);
    else if (!s->all.is_multi_label)
        s->top1 = fmax(s->top1, best);
}

td_status td_val_sums_report(const td_val_sums *s, const char *prefix, int topk, td_report *r)
{
    td_eval_result v = s->all;
    if (v.n_batches == 0)
        return TD_OK;
    v.latency = s->latency;
    TD_TRY(td_eval_result_quantiles(&v));
    const td_eval_result_scores best = { s->top1, s->topk, s->loss };
    td_eval_result_report_as(&v, &best, prefix, topk, r);
    return TD_OK;
}

void td_val_sums_release(td_val_sums *s)
{
    td_free(s->latency);
    *s = (td_val_sums){ 0 };
}

void td_run_sums_release(td_run_sums *s)
{
    td_val_sums_release(&s->val);
    td_val_sums_release(&s->val_ema);
    td_free(s->line_rates);
    s->line_rates = NULL;
    s->n_lines = s->cap_lines = 0;
}

td_status td_run_sums_add_line(td_run_sums *s, double rate)
{
    TD_TRY(td_reserve(&s->line_rates, &s->cap_lines, s->n_lines + 1, sizeof *s->line_rates));
    s->line_rates[s->n_lines++] = rate;
    return TD_OK;
}

/* --- TensorFlow's names ----------------------------------------------------------------------- */

/* The sum of n times, and their quantiles q[n_q], interpolated between the two nearest. */
static td_status tf_times(const double *x, int n, double *sum, double *at, const double *q, int n_q)
{
    *sum = 0;
    for (int i = 0; i < n_q; i++)
        at[i] = (double)NAN;
    if (n <= 0)
        return TD_OK;
    double *sorted = td_copy_array(x, (size_t)n, sizeof *sorted);
    if (!sorted)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        *sum += x[i];
    for (int i = 0; i < n_q; i++)
        at[i] = td_quantile_linear(sorted, n, q[i]);
    td_free(sorted);
    return TD_OK;
}

static void add_accuracies(const td_eval_result *v, int topk, td_report *r)
{
    char name[32];
    td_report_add(r, "top1_accuracy", td_percent(v->counts.n_top1, v->counts.n) / 100);
    snprintf(name, sizeof name, "top%d_accuracy", topk);
    if (topk > 1)
        td_report_add(r, name, td_percent(v->counts.n_topk, v->counts.n) / 100);
}

td_status td_tf_times_report(const td_eval_result *v, int n_warm, td_report *r)
{
    static const double q[] = { 0.9, 0.95, 0.99 };
    static const char *const names[] = { "eval_latency_p90", "eval_latency_p95",
                                         "eval_latency_p99" };
    double at[3], sum;
    const int n = (int)v->n_batches - n_warm;
    TD_TRY(tf_times(v->latency + (n > 0 ? n_warm : 0), n, &sum, at, q, 3));
    const double per_batch = v->n_batches ? (double)v->counts.n / (double)v->n_batches : 0;
    const double n_images = n_warm ? per_batch * n : (double)v->counts.n;
    td_report_add(r, "eval_throughput", n > 0 ? n_images / sum : (double)NAN);
    td_report_add(r, "eval_latency_avg", n > 0 ? sum / n * 1e3 : (double)NAN);
    for (int i = 0; i < 3; i++)
        td_report_add(r, names[i], at[i] * 1e3);
    return TD_OK;
}

td_status td_tf_eval_report(const td_eval_result *v, int topk, int n_warm, td_report *r)
{
    if (v->detects)
        for (int i = 0; i < TD_BOX_METRICS; i++)
            td_report_add(r, td_box_metric_log_name((td_box_metric)i), v->boxes[i]);
    else if (!v->is_multi_label)
        add_accuracies(v, topk, r);
    return td_tf_times_report(v, n_warm, r);
}
