/*
 * recompute_limit.c -- drops and recomputes results, chosen by cost, to meet a memory limit
 *
 *     %x = conv2d %a, %w              (1)            %x = conv2d %a, %w
 *     %y, %m, %v, %k = batch_norm_relu %x, ...       %y, %m, %v, %k = batch_norm_relu %x, ...
 *     ... conv2d %y ...                              ... conv2d %y ...
 *     ... the peak ...                       ->      ... the peak ...
 *                                                    %x2 = conv2d %a, %w
 *                                                    %y2 = batch_norm_relu_infer %x2, ..., %m, %v
 *     ... conv2d_grad_w ..., %y ...                  ... conv2d_grad_w ..., %y2 ...
 *     ... batch_norm_relu_grad ..., %x ...           ... batch_norm_relu_grad ..., %x2 ...
 *
 * A value's largest gap between readers divides them into early and late ones.  Dropping the value
 * means that late readers read a second copy, recomputed right before the first of them; operands
 * that are no longer alive by then are dropped with it, and those dropped before are recomputed
 * earlier.  So whole residual blocks are dropped, down to their inputs.  Norms are recomputed with
 * their saved statistics, which are never dropped, everything else by the same node: the same
 * kernel, so the same bits.
 *
 * Greedy: find the point of peak memory; of the values alive across it, drop the one that saves the
 * most bytes per time; repeat until the goal is met.  Each choice is assessed by simulating the
 * planner on the whole graph, including in-place reuse.  At the end, drops that turned out
 * unnecessary are undone, the most expensive first.
 *
 * Source: Chen et al. 2016, Training deep nets with sublinear memory cost; greedy by cost as in
 * Kirisame et al. 2021, Dynamic tensor rematerialization.
 */
#include "plan/recompute_limit.h"

#include <stdlib.h>
#include <string.h>

#include "ir/rewrite.h"
#include "ops/ops.h"

#define WORTH 2000 /* values below 1/WORTH of the peak are not worth a node */
#define ALIGN 64   /* alignment of the planner's buffers */

enum { KEEP_EVERY_MAX = 4 };

/* Rough speeds: only their ratios matter. */
#define MACS_PER_S      60e9
#define HALF_MACS_PER_S 200e9
#define BYTES_PER_S     10e9
#define CALL_S          5e-6

typedef struct {
    int cut;        /* the gap: readers after this node are late */
    int first_late; /* the first late reader in the graph */
    int last;       /* the last reader in the graph */
    int written;    /* parameters: the first update; 0: none */
    int late_at;    /* like first_late and last, including recomputed nodes */
    int last_at;
    int again_at;         /* the node before which it is recomputed; 0: none */
    int n_early;          /* number of early readers */
    bool is_recomputable; /* may be recomputed */
    bool is_dropped, is_refused;
} value_state;

/* a step of the new order: runs a node, or recomputes a node's first result for node `at` */
typedef struct {
    int node, at;
    bool is_again;
} step;

typedef struct {
    int last;
    int64_t bytes;
} buffer;

/* a dropped value, and its previous gap */
typedef struct {
    int value, cut;
} dropped;

typedef struct {
    const td_graph *g;
    const size_t *scratch;
    value_state *v; /* [values] */
    step *steps;    /* [nodes + values] */
    int n_steps;
    bool is_valid;   /* no step reads a parameter after it was overwritten */
    int *last;       /* [2 values] last step that reads each first copy, then each second copy */
    int *place;      /* [2 values] its buffer; -1: not planned */
    buffer *buffers; /* [2 values] */
    int64_t *change; /* [steps + 2] change of the live bytes */
    dropped *log;    /* [values] drops of the current choice */
    int n_log;
    int64_t peak_bytes;
    int peak, n_peaks; /* the first step with peak live bytes, and the number of such steps */
} state;

/* --- recomputing ------------------------------------------------------------------------------ */

/* the op that recomputes `op`: for a norm, the one with saved statistics */
static const td_op *again_op(const td_op *op)
{
    if (op == &td_op_batch_norm)
        return &td_op_batch_norm_infer;
    if (op == &td_op_batch_norm_relu)
        return &td_op_batch_norm_relu_infer;
    if (op == &td_op_batch_norm_add_relu || op == &td_op_batch_norm_add_relu_given)
        return &td_op_batch_norm_add_relu_infer;
    return op;
}

static int again_operands(const td_node *n, td_value **in)
{
    if (again_op(n->op) == n->op || n->op == &td_op_batch_norm_add_relu_given) {
        memcpy(in, n->in, (size_t)n->n_in * sizeof *in);
        return n->n_in;
    }
    memcpy(in, n->in, 3 * sizeof *in);
    in[3] = n->out[1];
    in[4] = n->out[2];
    if (n->n_in > 3)
        in[5] = n->in[3];
    return n->n_in + 2;
}

static bool may_run_again(const td_node *n)
{
    return !n->op->is_leaf && !n->op->is_alias && !n->op->is_composite && !td_node_has_effect(n) &&
           n->n_in > 0 &&
           (n->n_out == 1 || again_op(n->op) != n->op || n->op == &td_op_conv2d_statistics);
}

static double seconds_of(const td_node *n)
{
    const bool is_half = td_dtype_bytes(n->out[0]->type.dtype) == 2;
    double bytes = (double)td_type_bytes(&n->out[0]->type);
    const double macs = n->op->macs ? (double)n->op->macs(n) : 0;
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i))
            bytes += (double)td_type_bytes(&n->in[i]->type);
    return CALL_S + bytes / BYTES_PER_S + macs / (is_half ? HALF_MACS_PER_S : MACS_PER_S);
}

/* --- properties of the graph ------------------------------------------------------------------ */

static void find_gaps(state *s, int *n_read)
{
    const td_graph *g = s->g;
    memset(n_read, 0, (size_t)g->n_values * sizeof *n_read);
    for (int v = 0; v < g->n_values; v++)
        s->v[v].last = g->values[v]->producer->id;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const td_value *x = g->nodes[i]->in[k];
            value_state *v = &s->v[x->id];
            if (td_is_shape_only(g->nodes[i], k) || v->last == i)
                continue;
            if (v->last > x->producer->id && i - v->last > v->first_late - v->cut) {
                v->cut = v->last;
                v->first_late = i;
                v->n_early = n_read[x->id];
            }
            v->last = i;
            n_read[x->id]++;
        }
}

/* never drops every keep_every-th result that has several early readers; 0: no such rule */
static void keep_anchors(state *s, int keep_every)
{
    int n = 0;
    for (int v = 0; keep_every && v < s->g->n_values; v++)
        if (s->v[v].is_recomputable && s->v[v].n_early > 1)
            s->v[v].is_recomputable = n++ % keep_every != 0;
}

static void find_properties(state *s, int keep_every)
{
    const td_graph *g = s->g;
    memset(s->v, 0, (size_t)g->n_values * sizeof *s->v);
    find_gaps(s, s->place);
    for (int v = 0; v < g->n_values; v++)
        s->v[v].is_recomputable = g->values[v]->index == 0 && may_run_again(g->values[v]->producer);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (n->op->is_alias) { /* read through a reshape */
            const td_value *of = n->in[0];
            s->v[of->id].is_recomputable = false;
            if (s->v[n->out[0]->id].last > s->v[of->id].last)
                s->v[of->id].last = s->v[n->out[0]->id].last;
        }
        for (int k = 0; k < n->n_in; k++)
            if (n->op->writes >> k & 1)
                s->v[td_value_root(n->in[k])->id].written = i;
    }
    for (int i = 0; i < g->n_outputs; i++) {
        s->v[g->outputs[i].value->id].is_recomputable = false;
        s->v[g->outputs[i].value->id].last = g->n_nodes;
    }
    keep_anchors(s, keep_every);
}

/* --- the new order ---------------------------------------------------------------------------- */

/* does node `at`, or a node recomputed for it, read the second copy of x? */
static bool reads_second(const state *s, const td_value *x, int at)
{
    const value_state *v = &s->v[x->id];
    return v->is_dropped && at > v->cut;
}

/* is it a parameter that was overwritten before `at`? */
static bool is_overwritten(const state *s, const td_value *x, int at)
{
    const int written = s->v[td_value_root(x)->id].written;
    return written && written < at;
}

static void add_recomputation(state *s, const td_value *x, int at)
{
    td_value *in[TD_IN_MAX];
    if (s->v[x->id].again_at)
        return;
    s->v[x->id].again_at = at;
    const int n_in = again_operands(x->producer, in);
    for (int k = 0; k < n_in; k++) {
        value_state *v = &s->v[in[k]->id];
        if (td_is_shape_only(x->producer, k))
            continue;
        if (reads_second(s, in[k], at))
            add_recomputation(s, in[k], at);
        s->is_valid = s->is_valid && !is_overwritten(s, in[k], at);
        v->last_at = at > v->last_at ? at : v->last_at;
        if (at > v->cut && at < v->late_at)
            v->late_at = at;
    }
    s->steps[s->n_steps++] = (step){ x->producer->id, at, true };
}

static void find_order(state *s)
{
    const td_graph *g = s->g;
    s->n_steps = 0;
    s->is_valid = true;
    for (int v = 0; v < g->n_values; v++) {
        s->v[v].late_at = s->v[v].first_late;
        s->v[v].last_at = s->v[v].last;
        s->v[v].again_at = 0;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            if (!td_is_shape_only(n, k) && reads_second(s, n->in[k], i))
                add_recomputation(s, n->in[k], i);
        s->steps[s->n_steps++] = (step){ i, i, false };
    }
}

/* --- live memory ------------------------------------------------------------------------------ */

/* a step's operands and results, for the simulated planner */
typedef struct {
    const td_op *op;
    int n_in, n_out;
    int in[TD_IN_MAX], out[TD_OUT_MAX]; /* indices of copies, as in state.last; -1: not read */
} call;

static void call_of(const state *s, const step *t, call *c)
{
    const td_node *n = s->g->nodes[t->node];
    const int second = s->g->n_values;
    td_value *in[TD_IN_MAX];
    c->op = t->is_again ? again_op(n->op) : n->op;
    c->n_in = t->is_again ? again_operands(n, in) : n->n_in;
    c->n_out = t->is_again ? 1 : n->n_out;
    for (int k = 0; k < c->n_in; k++) {
        const td_value *x = t->is_again ? in[k] : n->in[k];
        c->in[k] = td_is_shape_only(n, k) ? -1 : x->id + (reads_second(s, x, t->at) ? second : 0);
    }
    for (int k = 0; k < c->n_out; k++)
        c->out[k] = n->out[k]->id + (t->is_again ? second : 0);
}

static int64_t bytes_of(const state *s, int v)
{
    const int n = s->g->n_values;
    return (td_type_bytes(&s->g->values[v < n ? v : v - n]->type) + ALIGN - 1) / ALIGN * ALIGN;
}

static void find_last_readers(state *s)
{
    call c;
    for (int j = 0; j < s->n_steps; j++) {
        call_of(s, &s->steps[j], &c);
        for (int k = 0; k < c.n_in; k++)
            if (c.in[k] >= 0)
                s->last[c.in[k]] = j;
        for (int k = 0; k < c.n_out; k++)
            s->last[c.out[k]] = j;
    }
    for (int i = 0; i < s->g->n_outputs; i++)
        s->last[s->g->outputs[i].value->id] = s->n_steps;
}

/* the buffer that result r of step j reuses, or -1 */
static int reused_buffer(const state *s, const call *c, int r, int j)
{
    const uint32_t may = r == 0              ? c->op->may_overwrite
                         : r == c->n_out - 1 ? c->op->may_overwrite_last
                                             : 0;
    for (int i = 0; i < c->n_in; i++) {
        const int b = c->in[i] < 0 ? -1 : s->place[c->in[i]];
        bool is_free = may >> i & 1 && b >= 0 && s->buffers[b].last == j &&
                       s->buffers[b].bytes == bytes_of(s, c->out[r]);
        for (int k = 0; is_free && k < c->n_in; k++)
            is_free = c->in[k] < 0 || s->place[c->in[k]] != b || may >> k & 1;
        for (int k = 0; is_free && k < r; k++)
            is_free = s->place[c->out[k]] != b;
        if (is_free)
            return b;
    }
    return -1;
}

/* leaves have no buffer: they are the caller's memory, or persistent */
static int place_of(state *s, const call *c, int r, int j, int *n_buffers)
{
    if (c->op->is_leaf)
        return -1;
    if (r == 0 && c->op->is_alias)
        return s->place[c->in[0]];
    const int b = reused_buffer(s, c, r, j);
    if (b >= 0)
        return b;
    s->buffers[*n_buffers] = (buffer){ .last = j, .bytes = bytes_of(s, c->out[r]) };
    s->change[j] += s->buffers[*n_buffers].bytes;
    return (*n_buffers)++;
}

static void find_peak(state *s)
{
    int64_t alive = 0;
    int n_buffers = 0;
    call c;
    memset(s->change, 0, ((size_t)s->n_steps + 2) * sizeof *s->change);
    find_last_readers(s);
    for (int j = 0; j < s->n_steps; j++) {
        call_of(s, &s->steps[j], &c);
        for (int r = 0; r < c.n_out; r++) {
            const int b = s->place[c.out[r]] = place_of(s, &c, r, j, &n_buffers);
            if (b >= 0 && s->last[c.out[r]] > s->buffers[b].last)
                s->buffers[b].last = s->last[c.out[r]];
        }
    }
    for (int b = 0; b < n_buffers; b++)
        s->change[s->buffers[b].last + 1] -= s->buffers[b].bytes;
    s->peak_bytes = s->peak = s->n_peaks = 0;
    for (int j = 0; j < s->n_steps; j++) {
        alive += s->change[j];
        const int64_t now = alive + (s->scratch ? (int64_t)s->scratch[s->steps[j].node] : 0);
        if (now > s->peak_bytes) {
            s->peak_bytes = now;
            s->peak = j;
            s->n_peaks = 0;
        }
        s->n_peaks += now == s->peak_bytes;
    }
}

static void simulate(state *s)
{
    find_order(s);
    find_peak(s);
}

/* --- the choice ------------------------------------------------------------------------------- */

static void undo(state *s)
{
    for (; s->n_log > 0; s->n_log--) {
        const dropped *d = &s->log[s->n_log - 1];
        s->v[d->value].is_dropped = false;
        s->v[d->value].cut = d->cut;
    }
}

/*
 * Drops x, to be recomputed before node `at`, and the operands that are no longer alive there; adds
 * their time to *seconds.  False: a parameter it depends on was overwritten.
 */
static bool drop(state *s, const td_value *x, int cut, int at, double *seconds)
{
    td_value *in[TD_IN_MAX];
    s->log[s->n_log++] = (dropped){ x->id, s->v[x->id].cut };
    s->v[x->id].is_dropped = true;
    s->v[x->id].cut = cut;
    *seconds += seconds_of(x->producer);
    const int n_in = again_operands(x->producer, in);
    for (int k = 0; k < n_in; k++) {
        const value_state *v = &s->v[in[k]->id];
        if (td_is_shape_only(x->producer, k))
            continue;
        if (is_overwritten(s, in[k], at))
            return false;
        const bool is_gone = v->is_recomputable && !v->is_dropped && v->last_at < at;
        if (is_gone && !drop(s, in[k], v->last_at, at, seconds))
            return false;
    }
    return true;
}

/* is x alive at the peak only across its gap? */
static bool is_candidate(const state *s, const td_value *x)
{
    const value_state *v = &s->v[x->id];
    const int at = s->steps[s->peak].at;
    return v->is_recomputable && !v->is_dropped && !v->is_refused && v->first_late && v->cut < at &&
           v->late_at >= at && td_type_bytes(&x->type) >= s->peak_bytes / WORTH;
}

/* the candidate that saves the most bytes per time, or -1 */
static int best_candidate(state *s)
{
    double best_score = 0;
    int best = -1;
    for (int v = 0; v < s->g->n_values; v++) {
        const td_value *x = s->g->values[v];
        double seconds = 0;
        if (!is_candidate(s, x))
            continue;
        const bool is_possible = drop(s, x, s->v[v].cut, s->v[v].late_at, &seconds);
        undo(s);
        const double score = (double)td_type_bytes(&x->type) / seconds;
        if (is_possible && score > best_score) {
            best_score = score;
            best = v;
        }
    }
    return best;
}

/* drops one more value; false: none helps */
static bool drop_one(state *s)
{
    const int64_t bytes = s->peak_bytes;
    const int n_peaks = s->n_peaks;
    for (int v; (v = best_candidate(s)) >= 0;) {
        double seconds = 0;
        const bool is_possible = drop(s, s->g->values[v], s->v[v].cut, s->v[v].late_at, &seconds);
        if (is_possible)
            simulate(s);
        if (is_possible && s->is_valid &&
            (s->peak_bytes < bytes || (s->peak_bytes == bytes && s->n_peaks < n_peaks))) {
            s->n_log = 0;
            return true;
        }
        undo(s);
        simulate(s);
        s->v[v].is_refused = true;
    }
    return false;
}

/* reconsiders candidates that did not help: they may help after later drops */
static bool retry_refused(state *s, int *n_dropped)
{
    int n = 0;
    for (int v = 0; v < s->g->n_values; v++) {
        s->v[v].is_refused = false;
        n += s->v[v].is_dropped;
    }
    const bool is_changed = n != *n_dropped;
    *n_dropped = n;
    return is_changed;
}

typedef struct {
    int value;
    double seconds;
} price;

static int by_price(const void *a, const void *b)
{
    const price *p = a, *q = b;
    if (p->seconds != q->seconds)
        return p->seconds > q->seconds ? -1 : 1;
    return p->value - q->value;
}

/* undoes drops that are not needed */
static td_status undo_needless_drops(state *s, int64_t goal)
{
    const int64_t most = s->peak_bytes > goal ? s->peak_bytes : goal;
    price *prices = td_alloc((size_t)s->g->n_values + 1, sizeof *prices);
    int n = 0;
    if (!prices)
        return TD_ENOMEM;
    for (int v = 0; v < s->g->n_values; v++)
        if (s->v[v].is_dropped)
            prices[n++] = (price){ v, seconds_of(s->g->values[v]->producer) };
    qsort(prices, (size_t)n, sizeof *prices, by_price);
    for (int i = 0; i < n; i++) {
        s->v[prices[i].value].is_dropped = false;
        simulate(s);
        s->v[prices[i].value].is_dropped = s->peak_bytes > most || !s->is_valid;
    }
    simulate(s);
    td_free(prices);
    return TD_OK;
}

static double extra_seconds(const state *s)
{
    double sum = 0;
    for (int j = 0; j < s->n_steps; j++)
        if (s->steps[j].is_again)
            sum += seconds_of(s->g->nodes[s->steps[j].node]);
    return sum;
}

static td_status choose(state *s, int64_t goal, int keep_every)
{
    int n_dropped = 0;
    find_properties(s, keep_every);
    simulate(s);
    do
        while (s->peak_bytes > goal && drop_one(s))
            continue;
    while (s->peak_bytes > goal && retry_refused(s, &n_dropped));
    return undo_needless_drops(s, goal);
}

/*
 * The greedy search never undoes a choice, and choosing the cheapest first may be wrong: if block
 * outputs are dropped, all blocks up to the next kept output must be recomputed together.  So
 * several values of keep_every are tried; the best one meets the goal in the least time or, if none
 * does, comes nearest.
 */
static td_status choose_best(state *s, int64_t goal, value_state *best)
{
    const size_t bytes = (size_t)s->g->n_values * sizeof *best;
    int64_t best_bytes = INT64_MAX;
    double best_seconds = 0;
    for (int keep_every = 0; keep_every <= KEEP_EVERY_MAX; keep_every++) {
        TD_TRY(choose(s, goal, keep_every));
        const int64_t peak = s->peak_bytes > goal ? s->peak_bytes : goal;
        const double seconds = extra_seconds(s);
        if (peak > best_bytes || (peak == best_bytes && seconds >= best_seconds))
            continue;
        best_bytes = peak;
        best_seconds = seconds;
        memcpy(best, s->v, bytes);
    }
    memcpy(s->v, best, bytes);
    simulate(s);
    return TD_OK;
}

/* --- the new graph ---------------------------------------------------------------------------- */

static void emit_step(td_rewriter *rw, const state *s, const step *t, td_value **second)
{
    const td_node *n = s->g->nodes[t->node];
    td_value *old[TD_IN_MAX], *in[TD_IN_MAX];
    int n_in = n->n_in;
    memcpy(old, n->in, (size_t)n_in * sizeof *old);
    if (t->is_again)
        n_in = again_operands(n, old);
    for (int k = 0; k < n_in; k++) {
        const bool is_read = !td_is_shape_only(n, k);
        in[k] =
            is_read && reads_second(s, old[k], t->at) ? second[old[k]->id] : td_rw_get(rw, old[k]);
    }
    if (!t->is_again) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    td_value *x = td_emit_n(rw->b, again_op(n->op), n->attr, n_in, in, NULL);
    td_build_set_layout(rw->b, x, n->out[0]->type.layout);
    second[n->out[0]->id] = x; /* the first copy keeps the name */
}

static td_status emit(const state *s, td_graph **out)
{
    const size_t n_values = (size_t)s->g->n_values + 1;
    td_rewriter rw = { .old = s->g,
                       .b = td_build_begin(),
                       .map = td_alloc(n_values, sizeof *rw.map) };
    td_value **second = td_alloc(n_values, sizeof *second);
    td_status st = rw.map && second ? TD_OK : TD_ENOMEM;
    for (int j = 0; st == TD_OK && j < s->n_steps && td_build_ok(rw.b); j++)
        emit_step(&rw, s, &s->steps[j], second);
    for (int i = 0; st == TD_OK && i < s->g->n_outputs && td_build_ok(rw.b); i++)
        td_output(rw.b, s->g->outputs[i].name, td_rw_get(&rw, s->g->outputs[i].value));
    if (st == TD_OK)
        st = td_build_finish(rw.b, out);
    else
        td_build_abandon(rw.b);
    td_free(rw.map);
    td_free(second);
    return st;
}

/* --- entry point ------------------------------------------------------------------------------ */

static td_recomputed report_of(const state *s)
{
    td_recomputed r = { .alive_bytes = s->peak_bytes };
    for (int j = 0; j < s->n_steps; j++) {
        const td_node *n = s->g->nodes[s->steps[j].node];
        if (!s->steps[j].is_again)
            continue;
        r.n_results++;
        r.macs += n->op->macs ? n->op->macs(n) : 0;
    }
    return r;
}

static td_status open_state(state *s)
{
    const size_t n_values = (size_t)s->g->n_values + 1;
    const size_t n_steps = (size_t)s->g->n_nodes + n_values + 2;
    s->v = td_alloc(n_values, sizeof *s->v);
    s->steps = td_alloc(n_steps, sizeof *s->steps);
    s->last = td_alloc(2 * n_values, sizeof *s->last);
    s->place = td_alloc(2 * n_values, sizeof *s->place);
    s->buffers = td_alloc(2 * n_values, sizeof *s->buffers);
    s->change = td_alloc(n_steps, sizeof *s->change);
    s->log = td_alloc(n_values, sizeof *s->log);
    return s->v && s->steps && s->last && s->place && s->buffers && s->change && s->log ? TD_OK
                                                                                        : TD_ENOMEM;
}

td_status td_recompute_within(const td_graph *g, const size_t *scratch_bytes, int64_t goal_bytes,
                              td_graph **out, td_recomputed *report)
{
    state s = { .g = g, .scratch = scratch_bytes };
    value_state *best = td_alloc((size_t)g->n_values + 1, sizeof *best);
    *out = NULL;
    td_status st = best ? open_state(&s) : TD_ENOMEM;
    if (st == TD_OK)
        st = choose_best(&s, goal_bytes, best);
    if (st == TD_OK)
        st = emit(&s, out);
    if (st == TD_OK) {
        *report = report_of(&s);
        st = td_graph_verify(*out);
    }
    if (st != TD_OK) {
        td_graph_free(*out);
        *out = NULL;
    }
    td_free(best);
    td_free(s.v);
    td_free(s.steps);
    td_free(s.last);
    td_free(s.place);
    td_free(s.buffers);
    td_free(s.change);
    td_free(s.log);
    return st;
}
