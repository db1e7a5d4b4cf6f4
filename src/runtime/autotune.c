/*
 * autotune.c -- chooses kernels by their times and searches for layouts
 *
 * A layout that helps one node may cost its neighbours reorders, so whole graphs are compared, by
 * the sum of their nodes' times, including reorders, after the passes layout, clean and copies.
 * The search starts with every node's preferred layout and tries, in this order, another candidate
 * for all nodes, for all nodes with images of one size, and for single nodes; a change is kept if
 * the sum decreases by more than the timing noise.
 *
 * Another program may have slowed down a single timing.  So the kernels used with the preferred
 * layouts and with the changes found are timed again, the shorter time counts, and the search
 * continues from there; at the end, all changes are dropped unless they are still an improvement.
 */
#include "runtime/autotune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/isa.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "runtime/device.h"
#include "runtime/kernel_timing.h"
#include "runtime/quick_tune.h"
#include "runtime/tune_cache.h"

enum { LAYOUTS_MAX = 4, ROUNDS = 3 };
#define UNSUITABLE_S 1e9 /* the time of a kernel that cannot be prepared */

#define SAY_NS       5000000000 /* between two log lines about a search */
#define GAIN_MIN     0.001      /* share of the graph's sum that a change must save */
#define GAIN_WANTED  0.01       /* share of it that all changes together must save */
#define PROBLEM_HEAD "time "

/* a problem whose layouts can be chosen */
typedef struct {
    char *key;    /* owned by the map */
    int64_t side; /* image size: height of operand 0 */
    int choice, best;
    unsigned layouts; /* bit k: candidate k exists and differs from those before */
    bool is_used;     /* in the last variant examined */
} problem_state;

struct td_tuner {
    td_device *dev;
    td_tune_mode mode;
    td_tune_cache *cache;
    char graph[24];   /* hash of the graph being compiled */
    bool is_resolved; /* the cache has choices for it */
    bool is_searching;
    bool is_timing_again;
    td_map timed_again; /* the keys timed in this round */
    td_map problems;    /* problem -> problem_state, while searching */
    td_arena arena;
    td_quick_tuner quick;
    td_status st; /* the first failure in a hook, which cannot return one */
};

static bool knows_nothing(const td_tuner *t)
{
    return t->mode == TD_TUNE_OFF || (t->mode != TD_TUNE_FULL && td_tune_cache_is_empty(t->cache));
}

/* --- choosing kernels ------------------------------------------------------------------------- */

static td_status time_key(const td_kernel *k, const td_node *n, td_text *out)
{
    td_text_add(out, PROBLEM_HEAD "%s ", k->name);
    td_problem_print(n, out);
    return td_text_status(out);
}

/* times it again, unless this round did already; the shorter time is kept */
static td_status time_again(td_tuner *t, const td_kernel *k, const td_node *n, const char *key,
                            double *seconds)
{
    double again;
    if (td_map_has(&t->timed_again, key))
        return TD_OK;
    TD_TRY(td_map_set(&t->timed_again, key, NULL));
    if (*seconds >= UNSUITABLE_S)
        return TD_OK;
    TD_TRY(td_time_kernel(t->dev, k, n, &again));
    if (again >= *seconds)
        return TD_OK;
    *seconds = again;
    return td_tune_cache_put(t->cache, key, again);
}

/* from the cache, or measured if allowed; *is_known: whether there is a time */
static td_status kernel_time(td_tuner *t, const td_kernel *k, const td_node *n, double *seconds,
                             bool *is_known)
{
    td_text key = { 0 };
    td_status st = time_key(k, n, &key);
    *is_known = st == TD_OK && td_tune_cache_get(t->cache, td_text_get(&key), seconds);
    if (st == TD_OK && !*is_known && t->mode == TD_TUNE_FULL) {
        st = td_time_kernel(t->dev, k, n, seconds);
        if (st == TD_ENOKERNEL) { /* found out by preparing it */
            *seconds = UNSUITABLE_S;
            st = TD_OK;
        }
        if (st == TD_OK)
            st = td_tune_cache_put(t->cache, td_text_get(&key), *seconds);
        *is_known = st == TD_OK;
    } else if (*is_known && t->is_timing_again) {
        st = time_again(t, k, n, td_text_get(&key), seconds);
    }
    td_text_release(&key);
    return st;
}

/* the fastest of list[count]; *out is NULL if not all times are known */
static td_status choose(td_tuner *t, const td_node *n, const td_kernel *const *list, int count,
                        const td_kernel **out, double *best, td_text *why)
{
    *out = NULL;
    *best = 0;
    for (int i = 0; i < count; i++) {
        double seconds;
        bool is_known;
        TD_TRY(kernel_time(t, list[i], n, &seconds, &is_known));
        if (!is_known) {
            *out = NULL;
            return TD_OK;
        }
        if (why && seconds < UNSUITABLE_S)
            td_text_add(why, "%s%s %.3g ms", why->len ? ", " : "measured: ", list[i]->name,
                        seconds * 1e3);
        if (!*out || seconds < *best) {
            *out = list[i];
            *best = seconds;
        }
    }
    return TD_OK;
}

/* by all times of --tune full, or else by those of --tune quick */
static td_status choose_known(td_tuner *t, const td_node *n, const td_kernel *const *list,
                              int count, const td_kernel **out, td_text *why)
{
    double best;
    TD_TRY(choose(t, n, list, count, out, &best, why));
    if (*out || !t->dev->memory->is_host)
        return TD_OK;
    td_text_release(why); /* some of the times */
    return td_quick_choose(t->cache, n, list, count, out, why);
}

td_status td_tune_choose(td_tuner *t, const td_node *n, const td_kernel **out, td_text *why)
{
    const td_kernel *list[TD_TIMING_KERNELS_MAX];
    td_text said = { 0 };
    *out = NULL;
    const int count =
        knows_nothing(t) || !td_node_is_timed(n) ? 0 : td_timing_kernels(t->dev, n, list);
    if (count < 2)
        return TD_OK;
    td_status st = choose_known(t, n, list, count, out, &said);
    if (*out && why)
        td_text_add(why, "%s%s", why->len ? "; " : "", td_text_get(&said));
    td_text_release(&said);
    return st;
}

td_status td_tune_kernels(td_tuner *t, const td_graph *g, int64_t runs)
{
    if (t->mode != TD_TUNE_QUICK || !t->dev->memory->is_host)
        return TD_OK;
    return td_quick_tune(&t->quick, g, runs);
}

void td_tuner_set_clock(td_tuner *t, int64_t (*now_ns)(void))
{
    t->quick.now = now_ns;
}

/* --- the time of a variant of the graph ------------------------------------------------------- */

static td_status add_nodes(td_tuner *t, const td_graph *g, double *sum)
{
    td_status st = TD_OK;
    bool *is_setup = td_alloc((size_t)g->n_nodes + 1, sizeof *is_setup);
    if (!is_setup)
        return TD_ENOMEM;
    td_plan_mark_setup(g, is_setup);
    for (int i = 0; i < g->n_nodes && !td_signal_caught(); i++) {
        const td_node *n = g->nodes[i];
        const td_kernel *k, *list[TD_TIMING_KERNELS_MAX];
        double seconds;
        if (is_setup[i] || !td_node_is_timed(n))
            continue;
        TD_OUT(choose(t, n, list, td_timing_kernels(t->dev, n, list), &k, &seconds, NULL));
        *sum += seconds;
    }
out:
    td_free(is_setup);
    return st;
}

static td_status run_pass(const td_pass *pass, const char *skip, td_tuner *t, td_graph **g)
{
    td_graph *next;
    if (td_text_in_list(skip, pass->name))
        return TD_OK;
    TD_TRY(td_pass_run(pass, *g, &t->dev->target, NULL, &next));
    td_graph_free(*g);
    *g = next;
    return TD_OK;
}

static void set_unused(td_tuner *t)
{
    for (size_t i = 0; i < t->problems.n; i++)
        ((problem_state *)t->problems.entries[i].value)->is_used = false;
}

static td_status cost(td_tuner *t, const td_graph *g, const char *skip, double *sum)
{
    td_graph *now = NULL;
    *sum = 0;
    set_unused(t);
    TD_TRY(td_pass_run(&td_pass_layout, g, &t->dev->target, NULL, &now));
    td_status st = run_pass(&td_pass_clean, skip, t, &now);
    if (st == TD_OK)
        st = run_pass(&td_pass_copies, skip, t, &now);
    if (st == TD_OK)
        st = t->st;
    if (st == TD_OK)
        st = add_nodes(t, now, sum);
    td_graph_free(now);
    return st;
}

/* --- the search ------------------------------------------------------------------------------- */

/* the candidates that differ from each other, as bits */
static unsigned list_layouts(const td_node *n)
{
    td_node_layouts w[LAYOUTS_MAX];
    unsigned layouts = 0;
    for (int k = 0; k < LAYOUTS_MAX; k++) {
        memset(&w[k], 0, sizeof w[k]);
        bool is_new = td_direct_candidate_layout(n, k, &w[k]);
        for (int j = 0; is_new && j < k; j++)
            is_new = memcmp(&w[j], &w[k], sizeof w[k]) != 0;
        layouts |= (unsigned)is_new << k;
    }
    return layouts;
}

static problem_state *note_problem(td_tuner *t, const td_node *n, const char *key)
{
    problem_state *w = td_map_get(&t->problems, key);
    if (w)
        return w;
    w = td_arena_alloc(&t->arena, 1, sizeof *w);
    if (!w || td_map_set(&t->problems, key, w) != TD_OK) {
        t->st = TD_ENOMEM;
        return NULL;
    }
    *w = (problem_state){ .key = t->problems.entries[t->problems.n - 1].key,
                          .side = td_in_type(n, 0)->rank == 4 ? td_in_type(n, 0)->dim[2] : 0,
                          .layouts = list_layouts(n) };
    return w;
}

static void choice_key(const td_tuner *t, const char *problem, td_text *out)
{
    td_text_add(out, "layout %s %s", t->graph, problem);
}

int td_tune_layout(td_tuner *t, const td_node *n)
{
    td_text problem = { 0 }, key = { 0 };
    double kept = 0;
    int choice = 0;
    if (!t->is_searching && !t->is_resolved)
        return 0;
    td_problem_print(n, &problem);
    if (td_text_status(&problem) != TD_OK) {
        t->st = TD_ENOMEM;
    } else if (t->is_searching) {
        problem_state *w = note_problem(t, n, td_text_get(&problem));
        if (w) {
            w->is_used = true;
            choice = w->choice;
        }
    } else {
        choice_key(t, td_text_get(&problem), &key);
        if (td_tune_cache_get(t->cache, td_text_get(&key), &kept) && kept >= 0 &&
            kept < LAYOUTS_MAX)
            choice = (int)kept;
    }
    td_text_release(&problem);
    td_text_release(&key);
    return choice;
}

typedef struct {
    const td_graph *g;
    const char *skip;
    double first, best; /* sums of seconds */
    int n_tried, n_kept;
    int64_t began_ns, logged_ns;
} search;

static void log_progress(search *s)
{
    s->logged_ns = td_now_ns();
    td_log(TD_LOG_INFO, "tune",
           "tried %d layout changes, kept %d; the nodes take %.1f ms instead of %.1f ms (%.1f s)",
           s->n_tried, s->n_kept, s->best * 1e3, s->first * 1e3,
           (double)(s->logged_ns - s->began_ns) * 1e-9);
}

/* select candidate k for all problems of `side` (-1: any), or for `only`; true if that changes
   anything */
static bool select_candidate(td_tuner *t, int k, int64_t side, const problem_state *only)
{
    bool any = false;
    for (size_t i = 0; i < t->problems.n; i++) {
        problem_state *w = t->problems.entries[i].value;
        if (!(w->layouts >> k & 1) || w->choice == k || (side >= 0 && w->side != side) ||
            (only && w != only) || !w->is_used)
            continue;
        w->choice = k;
        any = true;
    }
    return any;
}

static td_status try_candidate(td_tuner *t, search *s, int k, int64_t side,
                               const problem_state *only)
{
    double sum;
    if (td_signal_caught() || !select_candidate(t, k, side, only))
        return TD_OK;
    TD_TRY(cost(t, s->g, s->skip, &sum));
    const bool stays = sum < s->best * (1 - GAIN_MIN) && !td_signal_caught();
    s->n_tried++;
    s->n_kept += stays;
    if (stays)
        s->best = sum;
    if (td_now_ns() - s->logged_ns > SAY_NS)
        log_progress(s);
    for (size_t i = 0; i < t->problems.n; i++) {
        problem_state *w = t->problems.entries[i].value;
        if (stays)
            w->best = w->choice;
        else
            w->choice = w->best;
    }
    return TD_OK;
}

/* is this the first problem with images of this size? */
static bool is_first_of_side(const td_tuner *t, size_t i)
{
    const int64_t side = ((const problem_state *)t->problems.entries[i].value)->side;
    for (size_t j = 0; j < i; j++)
        if (((const problem_state *)t->problems.entries[j].value)->side == side)
            return false;
    return true;
}

static td_status search_layouts(td_tuner *t, search *s)
{
    for (int k = 1; k < LAYOUTS_MAX; k++)
        TD_TRY(try_candidate(t, s, k, -1, NULL));
    const size_t n = t->problems.n;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < LAYOUTS_MAX && is_first_of_side(t, i); k++)
            TD_TRY(try_candidate(t, s, k, ((problem_state *)t->problems.entries[i].value)->side,
                                 NULL));
    for (size_t i = 0; i < t->problems.n; i++)
        for (int k = 0; k < LAYOUTS_MAX; k++)
            TD_TRY(try_candidate(t, s, k, -1, t->problems.entries[i].value));
    return TD_OK;
}

/* select candidate 0 for all, or the best that the search found; false if these are the same */
static bool set_choices(td_tuner *t, bool to_best)
{
    bool any = false;
    for (size_t i = 0; i < t->problems.n; i++) {
        problem_state *w = t->problems.entries[i].value;
        w->choice = to_best ? w->best : 0;
        any = any || w->best;
    }
    return any;
}

/* times the kernels of both again and updates their sums */
static td_status compare_again(td_tuner *t, search *s)
{
    td_status st = TD_OK;
    if (!set_choices(t, false) || td_signal_caught())
        return TD_OK;
    t->is_timing_again = true;
    st = cost(t, s->g, s->skip, &s->first);
    set_choices(t, true);
    if (st == TD_OK)
        st = cost(t, s->g, s->skip, &s->best);
    t->is_timing_again = false;
    td_map_release(&t->timed_again);
    return st;
}

static void drop_choices(td_tuner *t, search *s)
{
    for (size_t i = 0; i < t->problems.n; i++)
        ((problem_state *)t->problems.entries[i].value)->best = 0;
    s->best = s->first;
    s->n_kept = 0;
}

static td_status keep_choices(td_tuner *t)
{
    td_text key = { 0 };
    td_status st = TD_OK;
    TD_TRY(td_tune_cache_put(t->cache, t->graph, 1));
    for (size_t i = 0; st == TD_OK && i < t->problems.n; i++) {
        const problem_state *w = t->problems.entries[i].value;
        if (!w->best)
            continue;
        td_text_release(&key);
        choice_key(t, w->key, &key);
        st = td_text_status(&key);
        if (st == TD_OK)
            st = td_tune_cache_put(t->cache, td_text_get(&key), w->best);
    }
    td_text_release(&key);
    return st;
}

static td_status search_all(td_tuner *t, const td_graph *g, const char *skip)
{
    search s = { .g = g, .skip = skip, .began_ns = td_now_ns() };
    td_log(TD_LOG_INFO, "tune", "measuring kernels and layouts, once for this graph");
    TD_TRY(cost(t, g, skip, &s.first));
    s.best = s.first;
    for (int round = 0; round < ROUNDS && !td_signal_caught(); round++) {
        const int n_kept = s.n_kept;
        TD_TRY(search_layouts(t, &s));
        if (round && n_kept == s.n_kept)
            break;
        TD_TRY(compare_again(t, &s));
    }
    if (td_signal_caught())
        return TD_OK;
    if (s.best > s.first * (1 - GAIN_WANTED))
        drop_choices(t, &s);
    log_progress(&s);
    return keep_choices(t);
}

static td_status name_graph(td_tuner *t, const td_graph *g)
{
    char *text;
    TD_TRY(td_graph_print(g, &text));
    (void)snprintf(t->graph, sizeof t->graph, "%016" PRIx64, td_hash_text(text));
    td_text_free(text);
    return TD_OK;
}

td_status td_tune_layouts(td_tuner *t, const td_graph *g, const char *skip)
{
    double one;
    t->is_resolved = false;
    t->st = TD_OK;
    if (knows_nothing(t) || td_text_in_list(skip, "layout"))
        return TD_OK;
    TD_TRY(name_graph(t, g));
    t->is_resolved = td_tune_cache_get(t->cache, t->graph, &one);
    if (t->is_resolved || t->mode != TD_TUNE_FULL || !t->dev->memory->is_host)
        return TD_OK; /* a GPU has one layout; its kernels are measured when they are chosen */
    t->is_searching = true;
    td_status st = search_all(t, g, skip);
    t->is_searching = false;
    td_map_release(&t->problems);
    td_arena_release(&t->arena);
    t->arena = (td_arena){ 0 };
    t->is_resolved = st == TD_OK;
    return st;
}

/* --- the tuner -------------------------------------------------------------------------------- */

/* everything that timings depend on, except the problem */
static td_status name_machine(const td_device *dev, td_text *out)
{
    td_text_add(out, "%s; %s; %d threads", td_cpu_name(), td_isa_name(td_isa_best()), td_threads());
    for (int b = 0; b < dev->n_backends; b++)
        if (dev->backends[b]->describe) {
            td_text_add(out, "; ");
            dev->backends[b]->describe(out);
        }
    td_text_add(out, "; Tandem %s", td_version());
    return td_text_status(out);
}

td_status td_tuner_new(td_device *dev, td_tune_mode mode, const char *path, td_tuner **out)
{
    td_status st = TD_OK;
    td_text machine = { 0 };
    char *place = NULL;
    *out = NULL;
    td_tuner *t = TD_NEW(td_tuner);
    if (!t)
        return TD_ENOMEM;
    t->dev = dev;
    t->mode = mode;
    TD_OUT(name_machine(dev, &machine));
    if (!path) {
        place = td_tune_cache_default(td_text_get(&machine));
        if (!place)
            TD_OUT(TD_ENOMEM);
        if (!*place && mode == TD_TUNE_FULL)
            td_log(TD_LOG_WARN, "tune",
                   "measurements are not saved: neither XDG_CACHE_HOME nor HOME is set");
    }
    TD_OUT(td_tune_cache_open(path ? path : place, td_text_get(&machine), &t->cache));
    if (mode == TD_TUNE_CACHED && td_tune_cache_is_empty(t->cache))
        goto out;
    t->quick = (td_quick_tuner){ .dev = dev, .cache = t->cache, .now = td_now_ns };
    *out = t;
    t = NULL;
out:
    td_text_release(&machine);
    td_free(place);
    td_tuner_free(t);
    return st;
}

void td_tune_save(td_tuner *t)
{
    if (td_tune_cache_save(t->cache) != TD_OK) /* nobody has asked for quick, the default */
        td_log(t->mode == TD_TUNE_QUICK ? TD_LOG_INFO : TD_LOG_WARN, "tune",
               "measurements were not saved: %s", td_error_message());
}

void td_tuner_free(td_tuner *t)
{
    if (!t)
        return;
    td_map_release(&t->problems);
    td_map_release(&t->timed_again);
    td_arena_release(&t->arena);
    td_tune_cache_free(t->cache);
    td_free(t);
}
