/*
 * inspect_amp_stats.c -- summarizes a file of --amp-stats
 *
 * A tensor is rated by its worst step: most overflow as fp16, then most below its smallest
 * subnormal, then most below its smallest normal.
 */
#include "inspect/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/paths.h"
#include "io/atomic.h"
#include "profiler/amp_stats_file.h"

enum { ROWS = 25 }; /* most rows of the table as text */

typedef struct {
    const td_stats_step *step;
    const td_stats_tensor *tensor;
} row;

typedef struct {
    row *rows; /* one per tensor, worst first */
    size_t n, n_marked;
} ranking;

/* --- ranking ---------------------------------------------------------------------------------- */

static bool may_be_half(const td_stats_tensor *t)
{
    return strcmp(t->kind, "gradient") == 0 || strcmp(t->kind, "activation") == 0 ||
           strcmp(t->kind, "weight") == 0;
}

static int more(double a, double b)
{
    return (a < b) - (a > b);
}

/* Worst first; equal ones in the order of the file. */
static int compare(const void *pa, const void *pb)
{
    const row *a = pa, *b = pb;
    const td_stats_half *x = &a->tensor->half[TD_HALF_FP16], *y = &b->tensor->half[TD_HALF_FP16];
    int c = more((double)(a->tensor->nan > 0), (double)(b->tensor->nan > 0));
    c = c ? c : more(x->overflow, y->overflow);
    c = c ? c : more(x->below_subnormal, y->below_subnormal);
    c = c ? c : more(x->below_normal, y->below_normal);
    c = c ? c : (a->step > b->step) - (a->step < b->step);
    return c ? c : (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static bool is_marked(const td_stats_tensor *t)
{
    return t->nan || t->half[TD_HALF_FP16].overflow > 0 || t->half[TD_HALF_FP16].below_normal > 0;
}

/* Keep only the worst step of every tensor. */
static td_status keep_worst_steps(ranking *r)
{
    td_map seen = { 0 };
    td_status st = TD_OK;
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const char *name = r->rows[i].tensor->name;
        if (td_map_has(&seen, name))
            continue;
        TD_OUT(td_map_set(&seen, name, r));
        r->rows[n++] = r->rows[i];
        r->n_marked += is_marked(r->rows[i].tensor);
    }
    r->n = n;
out:
    td_map_release(&seen);
    return st;
}

/* The caller frees r->rows, even after a failure. */
static td_status rank_tensors(const td_stats_file *f, ranking *r)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_steps; i++)
        n += (size_t)f->steps[i].n_tensors;
    TD_TRY(TD_ALLOC(r->rows, n));
    for (size_t i = 0; i < f->n_steps; i++)
        for (int k = 0; k < f->steps[i].n_tensors; k++)
            if (may_be_half(&f->steps[i].tensors[k]))
                r->rows[r->n++] = (row){ &f->steps[i], &f->steps[i].tensors[k] };
    qsort(r->rows, r->n, sizeof *r->rows, compare);
    return keep_worst_steps(r);
}

/* --- gradients of a step ---------------------------------------------------------------------- */

/* The share of non-zero gradients that would be below 2^-24 with this `scale`. */
static double lost_share(const td_stats_gradients *g, double loss_scale, double scale)
{
    int64_t lost = 0;
    const int shift = (int)floor(log2(scale / loss_scale));
    for (int i = 0; i < TD_EXPONENT_BINS; i++)
        if (i + TD_EXPONENT_MIN + shift < td_half_ranges[TD_HALF_FP16].subnormal)
            lost += g->bins[i];
    return g->non_zero ? (double)lost / (double)g->non_zero : 0;
}

/*
 * The largest power of two that keeps all gradients in the range of fp16; 0: they are not finite.
 */
static double largest_scale(const td_stats_gradients *g, double loss_scale)
{
    if (g->infinite || g->nan || !(g->largest > 0))
        return 0;
    return exp2(floor(log2(td_half_ranges[TD_HALF_FP16].largest / g->largest * loss_scale)));
}

static void step_text(const td_stats_step *s, td_text *out)
{
    td_stats_gradients g;
    td_stats_sum_gradients(s, &g);
    const double best = largest_scale(&g, s->loss_scale);
    td_text_add(out, "%8lld %6lld %-9s %10g %11.3e %9.3f %9.3f ", (long long)s->step,
                (long long)s->epoch, s->precision, s->loss_scale, g.largest / s->loss_scale,
                100 * lost_share(&g, s->loss_scale, 1),
                100 * lost_share(&g, s->loss_scale, s->loss_scale));
    if (best > 0)
        td_text_add(out, "%12g %9.3f", best, 100 * lost_share(&g, s->loss_scale, best));
    else
        td_text_add(out, "%12s %9s", "-", "-");
    td_text_add(out, "%s\n", s->is_skipped ? "   skipped" : "");
}

static void step_json(const td_stats_step *s, td_text *out)
{
    td_stats_gradients g;
    td_stats_sum_gradients(s, &g);
    const double best = largest_scale(&g, s->loss_scale);
    td_json_add(out, "step", (double)s->step);
    td_json_add(out, "epoch", (double)s->epoch);
    td_json_add(out, "iteration", (double)s->iteration);
    td_json_add_text(out, "precision", s->precision);
    td_json_add(out, "loss_scale", s->loss_scale);
    td_text_add(out, ", \"skipped\": %s", s->is_skipped ? "true" : "false");
    td_json_add(out, "gradients", (double)g.elements);
    td_json_add(out, "gradients_not_zero", (double)g.non_zero);
    td_json_add(out, "gradients_not_finite", (double)(g.infinite + g.nan));
    td_json_add(out, "largest_gradient", g.largest / s->loss_scale);
    td_json_add(out, "fp16_lost_unscaled", lost_share(&g, s->loss_scale, 1));
    td_json_add(out, "fp16_lost", lost_share(&g, s->loss_scale, s->loss_scale));
    td_json_add(out, "fp16_largest_scale", best > 0 ? best : (double)NAN);
    td_json_add(out, "fp16_lost_at_largest_scale",
                best > 0 ? lost_share(&g, s->loss_scale, best) : (double)NAN);
    td_text_add(out, "}");
}

/* --- tensors ---------------------------------------------------------------------------------- */

static const char *name_of(const td_stats_tensor *t)
{
    if (t->of)
        return t->of;
    return strcmp(t->op, "param") == 0 ? t->name : t->label;
}

static void tensor_text(const row *r, td_text *out)
{
    const td_stats_tensor *t = r->tensor;
    const td_stats_half *h = t->half;
    td_text_add(out, "%-30.30s %-22.22s %-10s %-4s %6lld %9lld %10.3e %7.2f", name_of(t), t->op,
                t->kind, t->dtype, (long long)r->step->step, (long long)t->elements, t->largest,
                100 * t->zero);
    td_text_add(out, " %9.3f %9.3f %9.3f %9.3f %9.3f%s\n", 100 * h[TD_HALF_FP16].overflow,
                100 * h[TD_HALF_FP16].below_subnormal, 100 * h[TD_HALF_FP16].below_normal,
                100 * h[TD_HALF_BF16].overflow, 100 * h[TD_HALF_BF16].below_normal,
                t->nan ? "   NaN" : "");
}

static void tensor_json(const row *r, td_text *out)
{
    const td_stats_tensor *t = r->tensor;
    td_json_add_text(out, "name", t->name);
    td_json_add_text(out, "label", t->label);
    td_json_add_text(out, "op", t->op);
    td_json_add_text(out, "kind", t->kind);
    td_json_add_text(out, "gradient_of", t->of);
    td_json_add_text(out, "dtype", t->dtype);
    td_json_add(out, "worst_step", (double)r->step->step);
    td_json_add(out, "loss_scale", r->step->loss_scale);
    td_json_add(out, "elements", (double)t->elements);
    td_json_add(out, "largest", t->largest);
    td_json_add(out, "zero", t->zero);
    td_json_add(out, "infinite", (double)t->infinite);
    td_json_add(out, "nan", (double)t->nan);
    for (int h = 0; h < TD_N_HALF; h++) {
        td_text_add(out, ", \"%s\": {", td_half_ranges[h].name);
        td_json_add(out, "overflow", t->half[h].overflow);
        td_json_add(out, "below_subnormal", t->half[h].below_subnormal);
        td_json_add(out, "below_normal", t->half[h].below_normal);
        td_text_add(out, "}");
    }
    td_text_add(out, "}");
}

/* --- the summary ------------------------------------------------------------------------------ */

static void show_json(const td_stats_file *f, const ranking *r, td_text *out)
{
    td_text_add(out, "{\"steps\": [");
    for (size_t i = 0; i < f->n_steps; i++) {
        td_text_add(out, i ? ", {" : "{");
        step_json(&f->steps[i], out);
    }
    td_text_add(out, "], \"tensors\": [");
    for (size_t i = 0; i < r->n; i++) {
        td_text_add(out, i ? ", {" : "{");
        tensor_json(&r->rows[i], out);
    }
    td_text_add(out, "]}\n");
}

static void show_text(const td_stats_file *f, const ranking *r, td_text *out)
{
    const size_t n = r->n_marked < ROWS ? r->n_marked : ROWS;
    td_text_add(out,
                "gradients (lost: below 2^-24, which fp16 rounds to zero; in %% of those that are "
                "not zero)\n"
                "\n"
                "%8s %6s %-9s %10s %11s %9s %9s %12s %9s\n",
                "step", "epoch", "precision", "loss scale", "largest", "lost at 1", "lost now",
                "scale it can", "lost then");
    for (size_t i = 0; i < f->n_steps; i++)
        step_text(&f->steps[i], out);
    td_text_add(
        out,
        "\ntensors, worst first, each in its worst step (largest: as in memory, times the "
        "loss scale; shares in %%)\n\n%-30s %-22s %-10s %-4s %6s %9s %10s %7s %9s %9s %9s %9s "
        "%9s\n",
        "layer", "op", "what", "type", "step", "elements", "largest", "zero", "fp16 over",
        "fp16 lost", "fp16 subn", "bf16 over", "bf16 subn");
    for (size_t i = 0; i < n; i++)
        tensor_text(&r->rows[i], out);
    if (r->n_marked > n)
        td_text_add(out, "and %zu more that fp16 would change; --json lists them\n",
                    r->n_marked - n);
    td_text_add(out, "%zu of %zu tensors are within fp16's normal range\n", r->n - r->n_marked,
                r->n);
}

static td_status write_svg(const td_stats_file *f, const char *path, const char *from)
{
    td_text svg = { 0 };
    if (!path)
        return TD_OK;
    if (td_path_is_same(path, from))
        return td_error(TD_EUSAGE, "--svg: '%s' is the input file", path);
    td_stats_draw(f, &svg);
    td_status st = td_text_status(&svg);
    if (st == TD_OK)
        st = td_atomic_save(path, svg.data, svg.len);
    td_text_release(&svg);
    return st;
}

td_status td_inspect_amp_stats(const td_inspection *q, td_text *out)
{
    td_stats_file f;
    ranking r = { 0 };
    TD_TRY(td_stats_read(q->path, &f));
    td_status st = rank_tensors(&f, &r);
    if (st == TD_OK) {
        if (q->opts->json)
            show_json(&f, &r, out);
        else
            show_text(&f, &r, out);
        st = write_svg(&f, q->opts->svg, q->path);
    }
    td_free(r.rows);
    td_stats_release(&f);
    return st;
}
