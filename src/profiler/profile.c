/*
 * profile.c -- collects times of nodes and of steps
 *
 *     step:   |-- bind --|== kernel ==|-|===== kernel =====|-|== kernel ==|--|
 *                         ^ timed       ^ timed               ^ timed
 *
 * Each run and each kernel in it are timed; the difference is the executor's time.  Rows are means,
 * so that they add up; the figures for the whole step are medians.
 */
#include "profiler/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/signals.h"
#include "base/stats.h"
#include "ops/ops.h"
#include "runtime/program_view.h"

enum {
    STEPS = 4096, /* medians are of the last STEPS steps */
    ROWS = 40,    /* maximum rows of a text table */
};

/* figures of the last STEPS steps, unordered */
enum { STEP, KERNELS, EXECUTOR, EXECUTOR_SHARE, WAIT, FIGURES };

struct td_profile {
    td_program *program;
    int n_nodes;
    bool drops_first, has_dropped;
    int64_t n_steps;
    td_arena arena;
    const char **layers;      /* [n_nodes] */
    double *node_s;           /* [n_nodes] sum over the steps */
    double *bound_s;          /* [n_nodes] best time of the kernel alone; 0: unknown */
    double step_s;            /* sum over the steps */
    double *figures[FIGURES]; /* [STEPS] */
};

/* --- the layer of a node ---------------------------------------------------------------------- */

/* the parameter that `v` is, or from which it is computed: by ops with one operand, or once, where
   the first operand counts (a filter times a norm's scale); otherwise NULL */
static const td_node *parameter_of(const bool *is_setup, const td_value *v)
{
    while (!v->producer->op->is_leaf && v->producer->n_in > 0 &&
           (v->producer->n_in == 1 || is_setup[v->producer->id]))
        v = v->producer->in[0];
    return td_value_is_param(v) ? v->producer : NULL;
}

void td_profile_layer(const td_program *p, int i, char *out, size_t room)
{
    const td_program_view view = td_program_view_of(p);
    const td_node *n = view.graph->nodes[i], *param = NULL;
    for (int k = 0; k < n->n_in && !param; k++)
        param = parameter_of(view.is_setup, n->in[k]);
    if (!param) {
        snprintf(out, room, "%s", td_node_label(n));
        return;
    }
    const char *of = ((const td_param_attr *)param->attr)->of;
    const char *name = of ? of : param->out[0]->name, *dot = strrchr(name, '.');
    snprintf(out, room, "%.*s", (int)(dot ? dot - name : (ptrdiff_t)strlen(name)), name);
}

void td_profile_launch(const td_program *p, int i, char *out, size_t room)
{
    const td_node_report r = td_program_node(p, i);
    if (r.n_together == 1)
        td_profile_layer(p, i, out, room);
    else
        snprintf(out, room, "%s", r.impl);
}

/* --- creating and freeing --------------------------------------------------------------------- */

td_status td_profile_new(td_program *p, bool drops_first, td_profile **out)
{
    *out = NULL;
    td_profile *pr = TD_NEW(td_profile);
    if (!pr)
        return TD_ENOMEM;
    bool is_whole = true;
    pr->program = p;
    pr->drops_first = drops_first;
    pr->n_nodes = td_program_node_count(p);
    pr->layers = td_arena_alloc(&pr->arena, (size_t)pr->n_nodes + 1, sizeof *pr->layers);
    for (int i = 0; pr->layers && i < pr->n_nodes && is_whole; i++) {
        char name[128];
        td_profile_launch(p, i, name, sizeof name);
        pr->layers[i] = td_arena_text(&pr->arena, name);
        is_whole = pr->layers[i] != NULL;
    }
    pr->node_s = td_alloc((size_t)pr->n_nodes + 1, sizeof *pr->node_s);
    pr->bound_s = td_alloc((size_t)pr->n_nodes + 1, sizeof *pr->bound_s);
    for (int i = 0; i < FIGURES; i++) {
        pr->figures[i] = td_alloc(STEPS, sizeof **pr->figures);
        is_whole = is_whole && pr->figures[i];
    }
    if (!is_whole || !pr->layers || !pr->node_s || !pr->bound_s) {
        td_profile_free(pr);
        return TD_ENOMEM;
    }
    td_program_profile(p, true);
    *out = pr;
    return TD_OK;
}

void td_profile_free(td_profile *pr)
{
    if (!pr)
        return;
    td_program_profile(pr->program, false);
    for (int i = 0; i < FIGURES; i++)
        td_free(pr->figures[i]);
    td_free(pr->node_s);
    td_free(pr->bound_s);
    td_arena_release(&pr->arena);
    td_free(pr);
}

/* --- a step ----------------------------------------------------------------------------------- */

static double seconds_of(td_span s)
{
    return (double)(s.end_ns - s.begin_ns) * 1e-9;
}

static void forget_first(td_profile *pr)
{
    memset(pr->node_s, 0, (size_t)pr->n_nodes * sizeof *pr->node_s);
    pr->step_s = 0;
    pr->n_steps = 0;
    pr->has_dropped = true;
}

static double add_nodes(td_profile *pr)
{
    double sum = 0;
    for (int i = 0; i < pr->n_nodes; i++) {
        const double seconds = td_program_run_s(pr->program, i);
        pr->node_s[i] += seconds;
        sum += seconds;
    }
    return sum;
}

void td_profile_step(td_profile *pr, double wait_s)
{
    if (!pr)
        return;
    const td_span run = td_program_span(pr->program, -1);
    if (!run.end_ns)
        return;
    if (pr->drops_first && !pr->has_dropped && pr->n_steps == 1)
        forget_first(pr);
    const double step_s = seconds_of(run), kernels_s = add_nodes(pr);
    const int64_t at = pr->n_steps % STEPS;
    pr->figures[STEP][at] = step_s;
    pr->figures[KERNELS][at] = kernels_s;
    pr->figures[EXECUTOR][at] = step_s - kernels_s;
    pr->figures[EXECUTOR_SHARE][at] = step_s > 0 ? (step_s - kernels_s) / step_s : 0;
    pr->figures[WAIT][at] = wait_s;
    pr->step_s += step_s;
    pr->n_steps++;
}

int64_t td_profile_steps(const td_profile *pr)
{
    return pr->n_steps;
}

static td_status measure_bound(td_program *p, td_profile *pr, double *bound_s)
{
    for (int i = 0; i < td_program_node_count(p); i++) {
        double best;
        const td_node_report r = td_program_node(p, i);
        if (!r.macs || r.is_setup)
            continue;
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "interrupted by a signal");
        TD_TRY(td_program_time(p, i, TD_BOUND_RUNS, &best));
        *bound_s += best;
        if (pr)
            pr->bound_s[i] = best;
    }
    return TD_OK;
}

td_status td_profile_bound(td_program *p, td_profile *pr, double *bound_s)
{
    *bound_s = 0;
    const td_status st = measure_bound(p, pr, bound_s);
    if (st != TD_OK) /* incomplete times are useless */
        *bound_s = 0;
    if (st != TD_OK && pr)
        memset(pr->bound_s, 0, (size_t)pr->n_nodes * sizeof *pr->bound_s);
    return st;
}

/* --- tables ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    const char *detail; /* the implementation, or the only op of a layer, or "" */
    int calls;          /* per step */
    double seconds;     /* in all steps */
    double macs, mac_s; /* per step; mac_s: time of kernels with any macs */
    double bytes;       /* per step */
    double bound_s;     /* per step; 0: unknown */
} row;

typedef struct {
    const char *title, *key; /* "by op", "ops" */
    bool has_detail;         /* it distinguishes rows with the same name */
    void (*name)(const td_node_report *r, row *out);
} table;

static void name_op(const td_node_report *r, row *out)
{
    out->name = r->op;
    out->detail = "";
}

static void name_kernel(const td_node_report *r, row *out)
{
    out->name = r->kernel;
    out->detail = r->impl;
}

static void name_layer(const td_node_report *r, row *out)
{
    out->name = r->label;
    out->detail = r->op;
}

static const table tables[] = {
    { "by op", "ops", true, name_op },
    { "by kernel", "kernels", true, name_kernel },
    { "by layer", "layers", false, name_layer },
};

#define N_TABLES (sizeof tables / sizeof *tables)

static row *find_row(const table *t, row *rows, int *n, const row *named)
{
    for (int i = 0; i < *n; i++) {
        const bool is_same_detail = strcmp(rows[i].detail, named->detail) == 0;
        if (strcmp(rows[i].name, named->name) != 0 || (t->has_detail && !is_same_detail))
            continue;
        if (!is_same_detail)
            rows[i].detail = "";
        return &rows[i];
    }
    rows[*n] = *named;
    return &rows[(*n)++];
}

static int by_time(const void *a, const void *b)
{
    const row *p = a, *q = b;
    if (p->seconds != q->seconds)
        return p->seconds > q->seconds ? -1 : 1;
    return strcmp(p->name, q->name);
}

static void add_node(const td_profile *pr, int i, const td_node_report *r, row *to)
{
    to->calls += r->n_together > 0;
    to->seconds += pr->node_s[i];
    to->bytes += (double)(r->bytes_read + r->bytes_written);
    if (!r->macs)
        return;
    to->macs += (double)r->macs;
    to->mac_s += pr->node_s[i];
    to->bound_s += pr->bound_s[i];
}

/* the rows of a table, slowest first; NULL: out of memory */
static row *make_rows(const td_profile *pr, const table *t, int *n)
{
    row *rows = td_alloc((size_t)pr->n_nodes + 1, sizeof *rows);
    *n = 0;
    for (int i = 0; rows && i < pr->n_nodes; i++) {
        row named = { 0 };
        td_node_report r = td_program_node(pr->program, i);
        if (!*r.kernel || r.is_setup)
            continue;
        r.label = pr->layers[i];
        t->name(&r, &named);
        add_node(pr, i, &r, find_row(t, rows, n, &named));
    }
    if (rows)
        qsort(rows, (size_t)*n, sizeof *rows, by_time);
    return rows;
}

/* a rate or a fraction; negative: unknown */
static double rate(double amount, double seconds)
{
    return amount > 0 && seconds > 0 ? amount / seconds : -1;
}

static double gflop_s(const td_profile *pr, const row *r)
{
    return rate(2e-9 * r->macs * (double)pr->n_steps, r->mac_s);
}

static double gb_s(const td_profile *pr, const row *r)
{
    return rate(1e-9 * r->bytes * (double)pr->n_steps, r->seconds);
}

static double of_bound(const td_profile *pr, const row *r)
{
    return rate(r->bound_s * (double)pr->n_steps, r->mac_s);
}

static double mean_ms(const td_profile *pr, double seconds)
{
    return pr->n_steps ? seconds / (double)pr->n_steps * 1e3 : 0;
}

/* in seconds; EXECUTOR_SHARE is a ratio */
static double median(td_profile *pr, int figure)
{
    const int64_t n = pr->n_steps < STEPS ? pr->n_steps : STEPS;
    return td_median(pr->figures[figure], n);
}

static double whole_bound(const td_profile *pr)
{
    double sum = 0;
    for (int i = 0; i < pr->n_nodes; i++)
        sum += pr->bound_s[i];
    return sum;
}

/* --- as text ---------------------------------------------------------------------------------- */

static void add_number(td_text *out, int width, int digits, double x)
{
    if (x < 0)
        td_text_add(out, " %*s", width, "-");
    else
        td_text_add(out, " %*.*f", width, digits, x);
}

static void add_row(const td_profile *pr, const row *r, td_text *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", r->name, *r->detail ? " " : "", r->detail);
    td_text_add(out, "%-44.44s %6d %10.3f %6.2f", name, r->calls, mean_ms(pr, r->seconds),
                pr->step_s > 0 ? 100 * r->seconds / pr->step_s : 0);
    add_number(out, 9, 1, gflop_s(pr, r));
    add_number(out, 8, 2, gb_s(pr, r));
    const double share = of_bound(pr, r);
    add_number(out, 8, 1, share < 0 ? share : 100 * share);
    td_text_add(out, "\n");
}

static row sum_of(const row *rows, int n)
{
    row sum = { .name = "", .detail = "" };
    for (int i = 0; i < n; i++) {
        sum.calls += rows[i].calls;
        sum.seconds += rows[i].seconds;
        sum.macs += rows[i].macs;
        sum.mac_s += rows[i].mac_s;
        sum.bytes += rows[i].bytes;
        sum.bound_s += rows[i].bound_s;
    }
    return sum;
}

static void table_text(const td_profile *pr, const table *t, td_text *out)
{
    int n;
    char others[32];
    row *rows = make_rows(pr, t, &n);
    if (!rows) {
        out->st = TD_ENOMEM;
        return;
    }
    td_text_add(out, "\n%-44s %6s %10s %6s %9s %8s %8s\n", t->title, "calls", "ms/step", "%",
                "GFLOP/s", "GB/s", "% bound");
    const int n_shown = n <= ROWS + 1 ? n : ROWS; /* a row for the rest would not be shorter */
    for (int i = 0; i < n_shown; i++)
        add_row(pr, &rows[i], out);
    if (n > n_shown) {
        row rest = sum_of(rows + n_shown, n - n_shown);
        snprintf(others, sizeof others, "(%d others)", n - n_shown);
        rest.name = others;
        add_row(pr, &rest, out);
    }
    td_free(rows);
}

static void whole_text(td_profile *pr, td_text *out)
{
    const double step = median(pr, STEP), bound = whole_bound(pr);
    td_text_add(out, "profile of %lld step%s%s; medians\n\n", (long long)pr->n_steps,
                pr->n_steps == 1 ? "" : "s", pr->has_dropped ? ", without the first" : "");
    td_text_add(out, "step        %12.3f ms\n", step * 1e3);
    td_text_add(out, "kernels     %12.3f ms\n", median(pr, KERNELS) * 1e3);
    td_text_add(out, "executor    %12.3f ms %7.3f %%   the step less its kernels\n",
                median(pr, EXECUTOR) * 1e3, median(pr, EXECUTOR_SHARE) * 100);
    if (bound > 0)
        td_text_add(
            out,
            "bound       %12.3f ms %7.2f %%   convolutions and matrix products, each alone, "
            "best of %d\n",
            bound * 1e3, step > 0 ? 100 * bound / step : 0, TD_BOUND_RUNS);
    if (median(pr, WAIT) >= 0)
        td_text_add(out, "waiting     %12.3f ms             for the batch, before the step\n",
                    median(pr, WAIT) * 1e3);
}

void td_profile_text(td_profile *pr, td_text *out)
{
    if (!pr->n_steps) {
        td_text_add(out, "profile: no step was run\n");
        return;
    }
    whole_text(pr, out);
    for (size_t i = 0; i < N_TABLES; i++)
        table_text(pr, &tables[i], out);
}

/* --- as JSON ---------------------------------------------------------------------------------- */

static void add_known(td_text *out, const char *name, double x)
{
    if (x < 0)
        td_text_add(out, ", \"%s\": null", name);
    else
        td_json_add(out, name, x);
}

static void table_json(const td_profile *pr, const table *t, td_text *out)
{
    int n;
    row *rows = make_rows(pr, t, &n);
    if (!rows) {
        out->st = TD_ENOMEM;
        return;
    }
    td_text_add(out, ", \"%s\": [", t->key);
    for (int i = 0; i < n; i++) {
        const row *r = &rows[i];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", r->name);
        if (t->name == name_kernel)
            td_json_add_text(out, "implementation", r->detail);
        td_json_add(out, "calls", r->calls);
        td_json_add(out, "ms", mean_ms(pr, r->seconds));
        td_json_add(out, "share", pr->step_s > 0 ? r->seconds / pr->step_s : 0);
        add_known(out, "gflop_s", gflop_s(pr, r));
        add_known(out, "gb_s", gb_s(pr, r));
        add_known(out, "bound_share", of_bound(pr, r));
        td_text_add(out, "}");
    }
    td_text_add(out, "]");
    td_free(rows);
}

void td_profile_json(td_profile *pr, td_text *out)
{
    const double bound = whole_bound(pr), step = median(pr, STEP);
    td_text_add(out, "{");
    td_json_add(out, "steps", (double)pr->n_steps);
    td_text_add(out, ", \"first_left_out\": %s", pr->has_dropped ? "true" : "false");
    td_json_add(out, "step_ms", step * 1e3);
    td_json_add(out, "kernels_ms", median(pr, KERNELS) * 1e3);
    td_json_add(out, "executor_ms", median(pr, EXECUTOR) * 1e3);
    td_json_add(out, "executor_share", median(pr, EXECUTOR_SHARE));
    add_known(out, "wait_ms", median(pr, WAIT) * 1e3);
    add_known(out, "bound_ms", bound > 0 ? bound * 1e3 : -1);
    add_known(out, "bound_share", rate(bound, step));
    for (size_t i = 0; i < N_TABLES; i++)
        table_json(pr, &tables[i], out);
    td_text_add(out, "}");
}
