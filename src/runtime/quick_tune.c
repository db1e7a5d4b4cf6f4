/*
 * quick_tune.c -- see quick_tune.h
 *
 * The time of a node is estimated from its multiplications and bytes until the first node has been
 * timed; the estimates of the others are then scaled by what that one took.  A node whose kernels
 * would exceed what is left of the budget is left out.  One that takes longer than estimated is
 * given up, unless its kernels have run often enough, when the budget is spent.
 */
#include "runtime/quick_tune.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "base/map.h"
#include "base/signals.h"
#include "plan/plan.h"
#include "runtime/device.h"
#include "runtime/kernel_timing.h"

enum { ROUNDS_MIN = 2, ROUNDS_MAX = 6, PATTERN = 65521 /* prime: no period in a tensor */ };

#define KEY_HEAD    "quick "
#define GAIN_MIN    0.03     /* share of the time that another kernel must save */
#define ROUNDS_NS   30000000 /* limit for timing one node, after ROUNDS_MIN rounds */
#define MACS_PER_S  5e10     /* of one thread; a low estimate of the time keeps the budget low */
#define BYTES_PER_S 1e10
#define PREPARE_S   0.004 /* of one kernel: the library generates code */
#define OTHER_BITS  0     /* instead of a time */
#define SLOW_S      1e9

/* nodes with the same problem */
typedef struct {
    const td_node *node; /* the first one */
    const td_kernel *list[TD_TIMING_KERNELS_MAX];
    int n_kernels, n_nodes;
    bool is_known;     /* nothing is left to be timed */
    double estimate_s; /* of one node */
} problem;

typedef struct {
    td_quick_tuner *q;
    td_map problems; /* text -> problem, in the arena */
    td_arena arena;
    int64_t began_ns, runs;
    double step_s;                  /* estimate of one run of the program */
    double estimated_s, measured_s; /* sums over the problems that have been timed */
    int n_timed, n_changed, n_left;
    double saved_s; /* in each run of the program */
} tuning;

/* --- keys ------------------------------------------------------------------------------------- */

static td_status key_of(const td_kernel *k, const td_node *n, td_text *out)
{
    td_text_release(out);
    td_text_add(out, KEY_HEAD "%s ", k->name);
    td_problem_print(n, out);
    return td_text_status(out);
}

/* seconds[count]; *is_known: whether the cache has all of them */
static td_status read_times(const td_tune_cache *cache, const td_node *n,
                            const td_kernel *const *list, int count, double *seconds,
                            bool *is_known)
{
    td_text key = { 0 };
    td_status st = TD_OK;
    *is_known = true;
    for (int k = 0; k < count && *is_known && st == TD_OK; k++) {
        st = key_of(list[k], n, &key);
        if (st == TD_OK)
            *is_known = td_tune_cache_get(cache, td_text_get(&key), &seconds[k]);
    }
    td_text_release(&key);
    return st;
}

static int fastest(const double *seconds, int count)
{
    int best = 0;
    if (!(seconds[0] > 0))
        return -1; /* the bits of the others were compared with another kernel's */
    for (int k = 1; k < count; k++)
        if (seconds[k] > 0 && seconds[k] < seconds[0] * (1 - GAIN_MIN) &&
            seconds[k] < seconds[best])
            best = k;
    return best;
}

td_status td_quick_choose(const td_tune_cache *cache, const td_node *n,
                          const td_kernel *const *list, int count, const td_kernel **out,
                          td_text *why)
{
    double seconds[TD_TIMING_KERNELS_MAX];
    bool is_known;
    *out = NULL;
    TD_TRY(read_times(cache, n, list, count, seconds, &is_known));
    const int best = is_known ? fastest(seconds, count) : -1;
    if (best < 0)
        return TD_OK;
    *out = list[best];
    for (int k = 0; why && k < count; k++)
        if (seconds[k] > 0)
            td_text_add(why, "%s%s %.3g ms", k ? ", " : "measured: ", list[k]->name,
                        seconds[k] * 1e3);
    return TD_OK;
}

/* --- the budget ------------------------------------------------------------------------------- */

static double scale(const tuning *t)
{
    return t->estimated_s > 0 ? t->measured_s / t->estimated_s : 1;
}

/* nanoseconds left */
static int64_t time_left(const tuning *t)
{
    const double share = TD_QUICK_SHARE * (double)t->runs * t->step_s * scale(t) * 1e9;
    const int64_t most = TD_QUICK_NS_MAX - t->q->spent_ns;
    const int64_t limit = share < (double)most ? (int64_t)share : most;
    return limit - (t->q->now() - t->began_ns);
}

/* --- which nodes ------------------------------------------------------------------------------ */

static double bytes_of(const td_node *n)
{
    double sum = 0;
    for (int i = 0; i < n->n_in + n->n_out; i++)
        sum += (double)td_type_bytes(&(i < n->n_in ? n->in[i] : n->out[i - n->n_in])->type);
    return sum;
}

static double estimate(const td_node *n)
{
    const double macs = n->op->macs ? (double)n->op->macs(n) : 0;
    const double compute_s = macs / (MACS_PER_S * td_threads());
    const double memory_s = bytes_of(n) / BYTES_PER_S;
    return compute_s > memory_s ? compute_s : memory_s;
}

/* Operands of bytes may be indices, which arbitrary numbers are not. */
static bool reads_floats(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!td_dtype_is_float(n->in[i]->type.dtype))
            return false;
    return true;
}

static td_status add_problem(tuning *t, const td_node *n, const char *text)
{
    double seconds[TD_TIMING_KERNELS_MAX];
    problem *p = td_map_get(&t->problems, text);
    if (p) {
        p->n_nodes++;
        return TD_OK;
    }
    p = td_arena_alloc(&t->arena, 1, sizeof *p);
    if (!p)
        return TD_ENOMEM;
    TD_TRY(td_map_set(&t->problems, text, p));
    *p = (problem){ .node = n, .n_nodes = 1, .estimate_s = estimate(n) };
    p->n_kernels = td_timing_kernels(t->q->dev, n, p->list);
    if (p->n_kernels < 2) {
        p->is_known = true;
        return TD_OK;
    }
    return read_times(t->q->cache, n, p->list, p->n_kernels, seconds, &p->is_known);
}

static bool is_run(const td_node *n, const bool *is_setup)
{
    return !is_setup[n->id] && !n->op->is_leaf && !n->op->is_alias;
}

static td_status add_problems(tuning *t, const td_graph *g)
{
    td_status st = TD_OK;
    td_text text = { 0 };
    bool *is_setup = td_alloc((size_t)g->n_nodes + 1, sizeof *is_setup);
    if (!is_setup)
        return TD_ENOMEM;
    (void)td_plan_mark_setup(g, is_setup);
    for (int i = 0; i < g->n_nodes; i++)
        t->step_s += is_run(g->nodes[i], is_setup) ? estimate(g->nodes[i]) : 0;
    const bool is_worth_it = (double)time_left(t) > PREPARE_S * 1e9; /* not for one image */
    for (int i = 0; i < g->n_nodes && is_worth_it; i++) {
        const td_node *n = g->nodes[i];
        if (!is_run(n, is_setup) || !td_node_is_timed(n) || !reads_floats(n))
            continue;
        td_text_release(&text);
        td_problem_print(n, &text);
        TD_OUT(td_text_status(&text));
        TD_OUT(add_problem(t, n, td_text_get(&text)));
    }
out:
    td_text_release(&text);
    td_free(is_setup);
    return st;
}

/* the costliest first; equal ones in the order of the graph */
static int by_cost(const void *a, const void *b)
{
    const problem *p = *(problem *const *)a, *q = *(problem *const *)b;
    const double x = p->estimate_s * p->n_nodes, y = q->estimate_s * q->n_nodes;
    return x != y ? (x < y) - (x > y) : p->node->id - q->node->id;
}

/* the problems to be timed; the caller frees *out */
static td_status list_unknown(tuning *t, problem ***out, int *count)
{
    *count = 0;
    *out = td_alloc(t->problems.n + 1, sizeof **out);
    if (!*out)
        return TD_ENOMEM;
    for (size_t i = 0; i < t->problems.n; i++) {
        problem *p = t->problems.entries[i].value;
        if (!p->is_known)
            (*out)[(*count)++] = p;
    }
    qsort(*out, (size_t)*count, sizeof **out, by_cost);
    return TD_OK;
}

static bool fits(const tuning *t, const problem *p)
{
    const double runs_s = (1 + ROUNDS_MIN) * p->estimate_s * scale(t) + PREPARE_S;
    const double fill_s = 3 * bytes_of(p->node) / BYTES_PER_S;
    return 1e9 * (p->n_kernels * runs_s + fill_s) < (double)time_left(t);
}

/* --- timing one node -------------------------------------------------------------------------- */

typedef struct {
    td_prepared prepared[TD_TIMING_KERNELS_MAX];
    bool is_prepared[TD_TIMING_KERNELS_MAX];
    double seconds[TD_TIMING_KERNELS_MAX]; /* OTHER_BITS: not a candidate */
    td_timing_buffers buffers;
    char *own[TD_OUT_MAX]; /* results of the device's own choice */
} race;

static td_status prepare(const problem *p, const td_device_memory *memory, race *r,
                         size_t *scratch_bytes)
{
    *scratch_bytes = 0;
    for (int k = 0; k < p->n_kernels; k++) {
        td_prepared *call = &r->prepared[k];
        *call = (td_prepared){ .kernel = p->list[k], .node = p->node, .memory = memory };
        td_status st = p->list[k]->prepare ? p->list[k]->prepare(p->node, call) : TD_OK;
        if (st != TD_OK && st != TD_ENOKERNEL)
            return st;
        r->is_prepared[k] = st == TD_OK;
        if (r->is_prepared[k] && call->scratch_bytes > *scratch_bytes)
            *scratch_bytes = call->scratch_bytes;
    }
    return TD_OK;
}

static void release(race *r)
{
    for (int k = 0; k < TD_TIMING_KERNELS_MAX; k++)
        if (r->is_prepared[k] && r->prepared[k].kernel->release)
            r->prepared[k].kernel->release(&r->prepared[k]);
    for (int i = 0; i < TD_OUT_MAX; i++)
        td_free(r->own[i]);
    td_timing_buffers_release(&r->buffers);
}

/* numbers from -1 to 1 */
static td_status fill_operands(const td_node *n, td_timing_buffers *b)
{
    float *pattern = td_alloc(PATTERN, sizeof *pattern);
    uint16_t *half = td_alloc(PATTERN, sizeof *half);
    td_status st = pattern && half ? TD_OK : TD_ENOMEM;
    uint32_t x = 1;
    for (int i = 0; i < PATTERN && st == TD_OK; i++) {
        x = x * 1664525U + 1013904223U;
        pattern[i] = (float)(int32_t)x * 0x1p-31F;
    }
    for (int i = 0; i < n->n_in && st == TD_OK; i++) {
        const td_dtype d = n->in[i]->type.dtype;
        const size_t each = td_dtype_bytes(d), all = PATTERN * each;
        if (d == TD_DT_BF16)
            td_f32_to_bf16_n(pattern, PATTERN, half);
        else if (d == TD_DT_F16)
            td_f32_to_f16_n(pattern, PATTERN, half);
        else if (d != TD_DT_F32)
            continue; /* float64 has no kernel but ref */
        for (size_t at = 0; at < b->bytes[i]; at += all)
            memcpy((char *)b->args[i] + at, d == TD_DT_F32 ? (void *)pattern : (void *)half,
                   b->bytes[i] - at < all ? b->bytes[i] - at : all);
    }
    td_free(pattern);
    td_free(half);
    return st;
}

static td_status keep_own(const td_node *n, race *r)
{
    for (int i = 0; i < n->n_out; i++) {
        r->own[i] = td_alloc(r->buffers.bytes[n->n_in + i], 1);
        if (!r->own[i])
            return TD_ENOMEM;
        memcpy(r->own[i], r->buffers.args[n->n_in + i], r->buffers.bytes[n->n_in + i]);
    }
    return TD_OK;
}

static bool has_own_bits(const td_node *n, const race *r)
{
    for (int i = 0; i < n->n_out; i++)
        if (memcmp(r->own[i], r->buffers.args[n->n_in + i], r->buffers.bytes[n->n_in + i]) != 0)
            return false;
    return true;
}

/* is there time for a run of kernel k, before or after the first one? */
static bool has_time(const tuning *t, const problem *p, const race *r, int k)
{
    const double known = r->seconds[k] < SLOW_S ? r->seconds[k] : r->seconds[0];
    const double guess = p->estimate_s * scale(t);
    const double s = known < SLOW_S && known > guess ? known : guess;
    return (double)time_left(t) > s * 1e9;
}

static td_status run_once(tuning *t, const problem *p, race *r, int k)
{
    const int64_t begin = t->q->now();
    TD_TRY(p->list[k]->run(&r->prepared[k], r->buffers.args));
    const double s = (double)(t->q->now() - begin) * 1e-9;
    r->seconds[k] = s < r->seconds[k] ? s : r->seconds[k];
    return TD_OK;
}

/* one run of each kernel, whose results are compared; *n_same: how many have the same bits */
static td_status compare(tuning *t, const problem *p, race *r, int *n_same, bool *is_done)
{
    const td_node *n = p->node;
    for (int k = 0; k < p->n_kernels; k++)
        r->seconds[k] = r->is_prepared[k] ? SLOW_S : OTHER_BITS;
    for (int k = 0; k < p->n_kernels; k++) {
        if (!r->is_prepared[k])
            continue;
        *is_done = has_time(t, p, r, k);
        if (!*is_done)
            return TD_OK;
        for (int i = n->n_in; i < n->n_in + n->n_out; i++) /* padding is compared too */
            memset(r->buffers.args[i], 0, r->buffers.bytes[i]);
        TD_TRY(run_once(t, p, r, k));
        if (k == 0)
            TD_TRY(keep_own(n, r));
        if (has_own_bits(n, r))
            ++*n_same;
        else
            r->seconds[k] = OTHER_BITS;
    }
    return TD_OK;
}

/* in turns, so that other programs slow down all of them; *is_done: within the budget */
static td_status time_in_turns(tuning *t, const problem *p, race *r, bool *is_done)
{
    const int64_t begin = t->q->now();
    for (int round = 0; round < ROUNDS_MAX; round++) {
        *is_done = round >= ROUNDS_MIN;
        if (*is_done && t->q->now() - begin > ROUNDS_NS)
            return TD_OK;
        for (int k = 0; k < p->n_kernels; k++) {
            if (r->seconds[k] == OTHER_BITS)
                continue;
            if (!has_time(t, p, r, k))
                return TD_OK;
            TD_TRY(run_once(t, p, r, k));
        }
    }
    *is_done = true;
    return TD_OK;
}

static td_status remember(tuning *t, problem *p, const race *r)
{
    td_text key = { 0 };
    td_status st = TD_OK;
    for (int k = 0; k < p->n_kernels && st == TD_OK; k++) {
        st = key_of(p->list[k], p->node, &key);
        if (st == TD_OK)
            st = td_tune_cache_put(t->q->cache, td_text_get(&key), r->seconds[k]);
    }
    td_text_release(&key);
    const int best = fastest(r->seconds, p->n_kernels);
    t->n_timed++;
    t->estimated_s += p->estimate_s;
    t->measured_s += r->seconds[0];
    t->n_changed += best > 0;
    t->saved_s += best > 0 ? (r->seconds[0] - r->seconds[best]) * p->n_nodes : 0;
    p->is_known = true;
    return st;
}

static td_status time_problem(tuning *t, problem *p)
{
    race r = { 0 };
    size_t scratch_bytes;
    int n_same = 0;
    bool is_done = true;
    const td_device_memory *memory = t->q->dev->memory;
    td_status st = TD_OK;
    TD_OUT(prepare(p, memory, &r, &scratch_bytes));
    if (!r.is_prepared[0])
        goto out;
    TD_OUT(td_timing_buffers_init(p->node, memory, scratch_bytes, &r.buffers));
    TD_OUT(fill_operands(p->node, &r.buffers));
    TD_OUT(compare(t, p, &r, &n_same, &is_done));
    if (is_done && n_same > 1)
        TD_OUT(time_in_turns(t, p, &r, &is_done));
    if (is_done)
        TD_OUT(remember(t, p, &r));
out:
    release(&r);
    return st;
}

/* --- all -------------------------------------------------------------------------------------- */

static void log_result(const tuning *t)
{
    if (t->n_timed)
        td_log(TD_LOG_INFO, "tune",
               "timed the kernels of %d kinds of layer in %.2f s: %d get another one with the same "
               "bits, which saves %.1f ms per run%s",
               t->n_timed, (double)(t->q->now() - t->began_ns) * 1e-9, t->n_changed,
               t->saved_s * 1e3, t->n_left ? "; later runs time the others" : "");
}

static td_status tune(tuning *t, const td_graph *g)
{
    problem **list = NULL;
    int count = 0;
    td_status st = TD_OK;
    TD_OUT(add_problems(t, g));
    TD_OUT(list_unknown(t, &list, &count));
    for (int i = 0; i < count && !td_signal_caught(); i++) {
        if (fits(t, list[i]))
            TD_OUT(time_problem(t, list[i]));
        t->n_left += !list[i]->is_known;
    }
    log_result(t);
out:
    td_free(list);
    td_map_release(&t->problems);
    td_arena_release(&t->arena);
    return st;
}

td_status td_quick_tune(td_quick_tuner *q, const td_graph *g, int64_t runs)
{
    tuning t = { .q = q, .began_ns = q->now(), .runs = runs };
    if (runs <= 0 || q->spent_ns >= TD_QUICK_NS_MAX)
        return TD_OK;
    td_status st = tune(&t, g);
    q->spent_ns += q->now() - t.began_ns;
    return st;
}
