/*
 * run_seeds.c -- groups runs by settings and computes statistics over seeds
 *
 * Two runs are in one group if every relevant setting has the same text in both.  Comparisons use
 * Student's statistics: the standard deviation of a sample, and the pooled one of two samples.
 */
#include "report/run_seeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"

const char *const td_seed_selections[TD_SEED_SELECTIONS] = { "best", "final" };

/* Settings that do not affect a run's result: outputs, the machine, lengths of parts of a run. */
static const char *const ignored_settings[] = {
    "workspace",
    "print_freq",
    "gather_checkpoints",
    "raport_file",
    "log_format",
    "raport_names",
    "raport_warmup",
    "tensorboard",
    "csv",
    "csv_iterations",
    "no-checkpoints",
    "no_checkpoints",
    "checkpoint_filename",
    "checkpoint_every",
    "final_weights",
    "final_state",
    "train_logits",
    "amp_stats",
    "amp_stats_every",
    "trace",
    "require",
    "log",
    "resume",
    "run_epochs",
    "run_iters",
    "memory_limit",
    "threads",
    "workers",
    "prefetch",
    "tune",
    "tune_cache",
    "dump_after",
    "dump_dir",
    "amp_log_path",
    "gpu_affinity",
    "local_rank",
    "l2_loss",
    "seed",
};

static const char *const of_precision[] = {
    "amp",
    "no-amp",
    "no_amp",
    "precision",
    "run.precision",
    "fp16",
    "opt_level",
    "static_loss_scale",
    "dynamic_loss_scale",
    "no-dynamic-loss-scale",
    "loss_scaler",
    "loss_scale_interval",
    "max_skips",
};

/* Metadata that affect the result. */
static const char *const metadata[] = { "run.job", "run.ranks", "run.train_images",
                                        "run.val_images" };

#define IS_AMONG(name, list) is_among(name, list, sizeof(list) / sizeof *(list))

static bool is_among(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static bool is_of_precision(const char *name)
{
    return IS_AMONG(name, of_precision) || td_text_starts(name, "amp_");
}

static bool is_relevant(const char *name)
{
    if (is_of_precision(name))
        return strcmp(name, "amp_log_path") != 0 && !td_text_starts(name, "amp_stats");
    if (td_text_starts(name, "run."))
        return IS_AMONG(name, metadata);
    return !IS_AMONG(name, ignored_settings);
}

/*
 * Does `b` have every relevant setting of `a`, with the same value?  If recorded, run.precision
 * replaces the options of precision.
 */
static bool is_in(const td_run_log *a, const td_run_log *b, bool with_precision)
{
    const bool has_precision = td_run_log_setting(a, "run.precision") != NULL;
    for (size_t i = 0; i < a->n_settings; i++) {
        const char *name = a->settings[i].name, *other;
        if (!is_relevant(name) || (!with_precision && is_of_precision(name)))
            continue;
        if (has_precision && (strcmp(name, "precision") == 0 || strcmp(name, "amp") == 0 ||
                              strcmp(name, "no-amp") == 0 || strcmp(name, "fp16") == 0))
            continue;
        other = td_run_log_setting(b, name);
        if (!other || strcmp(other, a->settings[i].value) != 0)
            return false;
    }
    return true;
}

static bool is_alike(const td_run_log *a, const td_run_log *b, bool with_precision)
{
    return is_in(a, b, with_precision) && is_in(b, a, with_precision);
}

/* --- numbers ---------------------------------------------------------------------------------- */

td_spread td_spread_of(double *x, int n)
{
    td_spread s = { .n = n,
                    .mean = (double)NAN,
                    .sd = (double)NAN,
                    .min = (double)NAN,
                    .max = (double)NAN,
                    .median = (double)NAN };
    double sum = 0, squares = 0;
    if (n == 0)
        return s;
    s.median = td_median(x, n); /* sorts x */
    for (int i = 0; i < n; i++)
        sum += x[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.sd = n > 1 ? sqrt(squares / (n - 1)) : (double)NAN;
    s.min = x[0];
    s.max = x[n - 1];
    return s;
}

/* The values by epoch or, for an evaluation, the final one. */
static const td_run_series *series_of(const td_run_log *run, const char *metric)
{
    const td_run_series *s = td_run_log_series(run, TD_RUN_EPOCHS, metric);
    return s ? s : td_run_log_series(run, TD_RUN_END, metric);
}

static double value_of(const td_run_log *run, const char *metric, int selection)
{
    const td_run_series *s = series_of(run, metric);
    double x;
    if (!s)
        return (double)NAN;
    x = s->points[s->n - 1].value;
    for (size_t i = 0; selection == 0 && i < s->n; i++)
        x = fmax(x, s->points[i].value);
    return x;
}

/* --- groups ----------------------------------------------------------------------------------- */

static void choose_metrics(td_seeds *s, int n)
{
    static const char *const fixed[] = { "val.AP", "val.AP50",     "val.top1",
                                         NULL,     "val_ema.top1", "val.mAP" };
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int i = 0; i < n && !s->metric[m]; i++) {
            const char *name = fixed[m] ? fixed[m] : td_run_log_topk(&s->runs[i], "val.");
            s->metric[m] = name && series_of(&s->runs[i], name) ? name : NULL;
        }
}

static td_status add_run(td_seeds *s, int run, int n)
{
    td_seed_group *g;
    int at = 0;
    while (at < s->n_groups && !is_alike(&s->runs[s->groups[at].runs[0]], &s->runs[run], true))
        at++;
    g = &s->groups[at];
    if (at == s->n_groups) {
        g->runs = td_arena_alloc(&s->arena, (size_t)n, sizeof *g->runs);
        g->is_left_out = td_arena_alloc(&s->arena, (size_t)n, sizeof *g->is_left_out);
        if (!g->runs || !g->is_left_out)
            return TD_ENOMEM;
        g->recipe = at;
        for (int i = 0; i < at; i++)
            if (is_alike(&s->runs[s->groups[i].runs[0]], &s->runs[run], false)) {
                g->recipe = s->groups[i].recipe;
                break;
            }
        s->n_groups++;
    }
    g->runs[g->n_runs++] = run;
    return TD_OK;
}

/* Do the runs have different seeds?  -1 means a random seed, which is unique. */
static bool has_seeds(const td_seeds *s, const td_seed_group *g)
{
    const char *first = td_run_log_setting(&s->runs[g->runs[0]], "seed");
    for (int i = 1; i < g->n_runs; i++) {
        const char *seed = td_run_log_setting(&s->runs[g->runs[i]], "seed");
        if (seed && first && (strcmp(seed, "-1") == 0 || strcmp(seed, first) != 0))
            return true;
    }
    return false;
}

static int64_t last_epoch(const td_run_log *run)
{
    const td_run_series *s = td_run_log_series(run, TD_RUN_EPOCHS, "train.loss");
    return s ? s->points[s->n - 1].epoch : 0;
}

/*
 * Leave out runs that have not ended, or that ended early, for example by a signal; with early
 * stopping, any length is valid.
 */
static void mark_left_out(const td_seeds *s, td_seed_group *g)
{
    const char *patience = td_run_log_setting(&s->runs[g->runs[0]], "early_stopping_patience");
    const bool any_length = patience && strcmp(patience, "-1") != 0 && *patience;
    int64_t most = 0;
    for (int i = 0; i < g->n_runs; i++) {
        const td_run_log *run = &s->runs[g->runs[i]];
        g->is_left_out[i] = !run->has_ended;
        if (run->has_ended && last_epoch(run) > most)
            most = last_epoch(run);
    }
    for (int i = 0; i < g->n_runs && !any_length; i++)
        g->is_left_out[i] |= last_epoch(&s->runs[g->runs[i]]) < most;
}

static td_spread spread_of(const td_seeds *s, const td_seed_group *g, int metric, int selection)
{
    double x[TD_SEED_RUNS];
    int n = 0;
    for (int i = 0; i < g->n_runs; i++) {
        if (g->is_left_out[i])
            continue;
        x[n] = value_of(&s->runs[g->runs[i]], s->metric[metric], selection);
        n += isfinite(x[n]) ? 1 : 0;
    }
    return td_spread_of(x, n);
}

static void measure(const td_seeds *s, td_seed_group *g)
{
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; k < TD_SEED_SELECTIONS; k++)
            g->spread[m][k] = spread_of(s, g, m, k);
}

static void choose_shown(td_seeds *s)
{
    for (int i = 0; i < s->n_groups; i++)
        for (int k = 0; k < s->n_groups; k++)
            if (s->groups[k].recipe == s->groups[i].recipe && has_seeds(s, &s->groups[k]))
                s->groups[i].is_shown = true;
}

/* --- pairs ------------------------------------------------------------------------------------ */

const char *td_seeds_precision(const td_seeds *s, int group)
{
    const td_run_log *run = &s->runs[s->groups[group].runs[0]];
    const char *name = td_run_log_setting(run, "run.precision");
    if (!name)
        name = td_run_log_setting(run, "precision");
    if (!name || !*name || strcmp(name, "default") == 0) {
        const char *amp = td_run_log_setting(run, "amp"), *fp16 = td_run_log_setting(run, "fp16");
        name = amp && strcmp(amp, "true") == 0     ? "amp"
               : fp16 && strcmp(fp16, "true") == 0 ? "fp16"
                                                   : "fp32";
    }
    return name;
}

/* The pooled standard deviation of two samples; if one has none, the other's. */
static double pooled(const td_spread *a, const td_spread *b)
{
    const int na = a->n > 1 ? a->n - 1 : 0, nb = b->n > 1 ? b->n - 1 : 0;
    const double va = na ? a->sd * a->sd * na : 0, vb = nb ? b->sd * b->sd * nb : 0;
    return na + nb ? sqrt((va + vb) / (na + nb)) : (double)NAN;
}

static void add_pair(td_seeds *s, int base, int group)
{
    td_seed_pair *p = &s->pairs[s->n_pairs++];
    *p = (td_seed_pair){ .base = base, .group = group };
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; k < TD_SEED_SELECTIONS; k++) {
            const td_spread *a = &s->groups[base].spread[m][k];
            const td_spread *b = &s->groups[group].spread[m][k];
            p->difference[m][k] = b->mean - a->mean;
            p->sd[m][k] = pooled(a, b);
        }
}

/* The float32 group of a recipe, or its first group. */
static int base_of(const td_seeds *s, int recipe)
{
    int first = -1;
    for (int i = 0; i < s->n_groups; i++) {
        if (s->groups[i].recipe != recipe)
            continue;
        if (strcmp(td_seeds_precision(s, i), "fp32") == 0)
            return i;
        first = first < 0 ? i : first;
    }
    return first;
}

static td_status find_pairs(td_seeds *s)
{
    s->pairs = td_arena_alloc(&s->arena, (size_t)s->n_groups + 1, sizeof *s->pairs);
    if (!s->pairs)
        return TD_ENOMEM;
    for (int i = 0; i < s->n_groups; i++) {
        const int base = base_of(s, s->groups[i].recipe);
        if (s->groups[i].is_shown && base != i)
            add_pair(s, base, i);
    }
    return TD_OK;
}

bool td_seed_is_within(const td_seed_pair *p, int metric, int selection)
{
    return fabs(p->difference[metric][selection]) <= p->sd[metric][selection];
}

/* --- finding groups and pairs ----------------------------------------------------------------- */

td_status td_seeds_find(const td_run_log *runs, int n, td_seeds *out)
{
    *out = (td_seeds){ .runs = runs };
    td_arena_init(&out->arena);
    if (n > TD_SEED_RUNS)
        return td_error(TD_EARG, "%d runs, wanted at most %d", n, TD_SEED_RUNS);
    out->groups = td_arena_alloc(&out->arena, (size_t)n + 1, sizeof *out->groups);
    if (!out->groups)
        return TD_ENOMEM;
    choose_metrics(out, n);
    for (int i = 0; i < n; i++)
        TD_TRY(add_run(out, i, n));
    for (int i = 0; i < out->n_groups; i++) {
        mark_left_out(out, &out->groups[i]);
        measure(out, &out->groups[i]);
    }
    choose_shown(out);
    return find_pairs(out);
}

void td_seeds_release(td_seeds *s)
{
    td_arena_release(&s->arena);
    *s = (td_seeds){ 0 };
}

bool td_seeds_any(const td_seeds *s)
{
    for (int i = 0; i < s->n_groups; i++)
        if (s->groups[i].is_shown)
            return true;
    return false;
}

/*
 * May a label contain this setting if groups differ in it?  Not options that it already contains.
 */
static bool is_in_label(const char *name)
{
    static const char *const in_title[] = { "arch",   "precision", "run.precision", "amp",
                                            "no-amp", "no_amp",    "fp16" };
    return is_relevant(name) && !IS_AMONG(name, in_title) && !td_text_starts(name, "model.");
}

static bool has_another(const td_seeds *s, int group, const char *name, const char *value)
{
    for (int i = 0; i < s->n_groups; i++) {
        const char *other = td_run_log_setting(&s->runs[s->groups[i].runs[0]], name);
        if (i != group && s->groups[i].is_shown && (!other || strcmp(other, value) != 0))
            return true;
    }
    return false;
}

void td_seeds_label(const td_seeds *s, int group, td_text *out)
{
    enum { MOST = 3 };
    const td_run_log *run = &s->runs[s->groups[group].runs[0]];
    const char *arch = td_run_log_setting(run, "arch");
    int n = 0;
    if (!arch || !*arch)
        arch = td_run_log_setting(run, "model");
    td_text_add(out, "%s%s%s", arch ? arch : "", arch && *arch ? ", " : "",
                td_seeds_precision(s, group));
    for (size_t i = 0; i < run->n_settings && n < MOST; i++) {
        const char *name = run->settings[i].name, *value = run->settings[i].value;
        if (!is_in_label(name) || !has_another(s, group, name, value))
            continue;
        td_text_add(out, ", %s %s", name, *value ? value : "none");
        n++;
    }
}
