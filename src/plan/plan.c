/*
 * plan.c -- plans memory: liveness, in-place results, offsets by descending size
 *
 * Buffers are placed in order of decreasing size, each at the lowest offset that is free during its
 * lifetime.  Source: Pisarchyk and Lee 2020, "Efficient memory management
 * for deep neural net inference", greedy by size.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "ops/ops.h"

#define ALIGN 64 /* the widest vector load and a cache line */

void td_plan_release(td_plan *p)
{
    td_free(p->slots);
    td_free(p->buffers);
    td_free(p->scratch);
    *p = (td_plan){ 0 };
}

static int64_t align(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* --- when nodes run --------------------------------------------------------------------------- */

typedef struct {
    const td_graph *g;
    const bool *is_setup; /* [nodes] */
    const int *calls;     /* [nodes], or NULL */
} schedule;

/* the first and the last node of the call that runs node i */
static int call_begin(const schedule *s, int i)
{
    return s->calls ? s->calls[i] : i;
}

static int call_end(const schedule *s, int i)
{
    int end = i;
    while (s->calls && end + 1 < s->g->n_nodes && s->calls[end + 1] == s->calls[i])
        end++;
    return end;
}

static bool reads(const td_node *n, const td_value *root)
{
    for (int k = 0; k < n->n_in; k++)
        if (td_value_root(n->in[k]) == root && !td_is_shape_only(n, k))
            return true;
    return false;
}

/* is n the only node of its call that reads this memory? */
static bool reads_alone(const schedule *s, const td_node *n, const td_value *root)
{
    for (int i = call_begin(s, n->id), end = call_end(s, n->id); i <= end; i++)
        if (i != n->id && reads(s->g->nodes[i], root))
            return false;
    return true;
}

typedef struct {
    int last;      /* end of the last reader's call, or the producer's; the graph's for outputs */
    bool is_fixed; /* made in the setup, read later */
} use;

/* the program fills a half copy after the setup, so treat it as written by a node */
static bool is_copy(const td_node *n)
{
    return n->n_out && td_value_is_param(n->out[0]) &&
           ((const td_param_attr *)n->attr)->role == TD_ROLE_COPY;
}

/* a constant of many values: written once, unlike one that a loop fills */
static bool is_list(const td_node *n)
{
    return n->op == &td_op_constant && ((const td_constant_attr *)n->attr)->values;
}

bool td_plan_mark_setup(const td_graph *g, bool *is_setup)
{
    bool *const is_written = is_setup; /* for leaves only, until is_setup of the others is set */
    bool writes = false;
    for (int i = 0; i < g->n_nodes; i++)
        is_written[i] = is_copy(g->nodes[i]);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->op->writes >> k & 1)
                writes = is_written[g->nodes[i]->in[k]->producer->id] = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op->is_leaf)
            continue;
        is_setup[i] = (n->n_in > 0 || is_list(n)) && !td_node_has_effect(n);
        for (int k = 0; k < n->n_in; k++) {
            const int from = n->in[k]->producer->id;
            if (td_value_is_param(n->in[k]) ? is_written[from] : !is_setup[from])
                is_setup[i] = false;
        }
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->is_leaf)
            is_setup[i] = false;
    return !writes;
}

td_status td_plan_fixed_new(const td_graph *g, bool **is_fixed)
{
    TD_TRY(td_alloc_to(is_fixed, (size_t)g->n_nodes + 1, sizeof **is_fixed));
    const bool is_constant = td_plan_mark_setup(g, *is_fixed);
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const bool is_param = n->n_out && td_value_is_param(n->out[0]);
        (*is_fixed)[i] = is_constant && ((*is_fixed)[i] || is_param);
    }
    return TD_OK;
}

static void find_uses(const schedule *s, use *u)
{
    const td_graph *g = s->g;
    const bool *is_setup = s->is_setup;
    for (int v = 0; v < g->n_values; v++)
        u[v].last = call_end(s, g->values[v]->producer->id);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const td_value *x = g->nodes[i]->in[k];
            if (td_is_shape_only(g->nodes[i], k))
                continue;
            u[x->id].last = call_end(s, i);
            u[x->id].is_fixed |= is_setup[x->producer->id] && !is_setup[i];
        }
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *x = g->outputs[i].value;
        u[x->id].last = g->n_nodes;
        u[x->id].is_fixed |= is_setup[x->producer->id];
    }
}

static int new_buffer(td_plan *p, int64_t bytes, int first, int last)
{
    p->buffers[p->n_buffers] =
        (td_buffer){ .bytes = align(bytes), .first = first, .last = last, .node = -1 };
    return p->n_buffers++;
}

/* operands whose buffer result k of n may reuse */
static uint32_t overwrites(const td_node *n, int k)
{
    return k == 0 ? n->op->may_overwrite : k == n->n_out - 1 ? n->op->may_overwrite_last : 0;
}

/* may result r of n reuse the buffer of operand i? */
static bool may_reuse(const td_plan *p, const schedule *s, const td_node *n, int r, int i)
{
    const td_value *x = n->in[i], *y = n->out[r];
    const uint32_t may = overwrites(n, r);
    int buffer = p->slots[x->id].buffer;
    if (!(may >> i & 1) || buffer < 0)
        return false;
    for (int k = 0; k < n->n_in; k++) /* another operand may use the same memory */
        if (p->slots[n->in[k]->id].buffer == buffer && !(may >> k & 1) && !td_is_shape_only(n, k))
            return false;
    for (int k = 0; k < r; k++) /* an earlier result may have reused it */
        if (p->slots[n->out[k]->id].buffer == buffer)
            return false;
    const td_buffer *b = &p->buffers[buffer];
    return !b->is_persistent && b->last == call_end(s, n->id) &&
           reads_alone(s, n, td_value_root(x)) &&
           td_type_bytes(&x->type) == td_type_bytes(&y->type) &&
           align(td_type_bytes(&y->type)) == b->bytes;
}

static int place_result(td_plan *p, const schedule *s, const td_node *n, int k, int last)
{
    if (k == 0 && n->op->is_alias && n->n_in)
        return p->slots[n->in[0]->id].buffer;
    for (int i = 0; !s->is_setup[n->id] && i < n->n_in; i++)
        if (may_reuse(p, s, n, k, i))
            return p->slots[n->in[i]->id].buffer;
    return new_buffer(p, td_type_bytes(&n->out[k]->type), call_begin(s, n->id), last);
}

static void assign(td_plan *p, const schedule *sched, const use *u)
{
    const td_graph *g = sched->g;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out; k++) {
            td_slot *s = &p->slots[n->out[k]->id];
            if (td_value_is_input(n->out[k])) {
                s->buffer = -1;
                continue;
            }
            s->buffer = place_result(p, sched, n, k, u[n->out[k]->id].last);
            if (s->buffer < 0)
                continue; /* a reshape of an input */
            td_buffer *b = &p->buffers[s->buffer];
            if (u[n->out[k]->id].last > b->last)
                b->last = u[n->out[k]->id].last;
            if (u[n->out[k]->id].is_fixed || td_value_is_param(n->out[k]))
                b->is_persistent = true;
            b->is_setup = sched->is_setup[i];
        }
    }
}

static void add_scratch(td_plan *p, const td_graph *g, const bool *is_setup,
                        const size_t *scratch_bytes)
{
    for (int i = 0; i < g->n_nodes; i++) {
        p->scratch[i] = -1;
        if (!scratch_bytes || !scratch_bytes[i])
            continue;
        p->scratch[i] = new_buffer(p, (int64_t)scratch_bytes[i], i, i);
        p->buffers[p->scratch[i]].node = i;
        p->buffers[p->scratch[i]].is_setup = is_setup[i];
        if ((int64_t)scratch_bytes[i] > p->largest_scratch_bytes)
            p->largest_scratch_bytes = (int64_t)scratch_bytes[i];
    }
}

/* --- offsets ---------------------------------------------------------------------------------- */

static bool overlap_in_time(const td_buffer *a, const td_buffer *b)
{
    return a->is_setup == b->is_setup && a->first <= b->last && b->first <= a->last;
}

static int by_size(const void *a, const void *b)
{
    const td_buffer *p = *(td_buffer *const *)a, *q = *(td_buffer *const *)b;
    if (p->bytes != q->bytes)
        return p->bytes > q->bytes ? -1 : 1;
    return p->first - q->first;
}

/* insert b into the placed buffers, which are sorted by offset */
static void insert(td_buffer **placed, int n, td_buffer *b)
{
    int i = n;
    for (; i > 0 && placed[i - 1]->offset > b->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = b;
}

static int64_t lowest_gap(td_buffer *const *placed, int n, const td_buffer *b)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (!overlap_in_time(placed[i], b))
            continue;
        if (placed[i]->offset - at >= b->bytes)
            return at;
        if (placed[i]->offset + placed[i]->bytes > at)
            at = placed[i]->offset + placed[i]->bytes;
    }
    return at;
}

static void place_all(td_plan *p, td_buffer **order, td_buffer **placed)
{
    int n = 0, n_placed = 0;
    for (int i = 0; i < p->n_buffers; i++) {
        td_buffer *b = &p->buffers[i];
        if (b->is_persistent) {
            b->offset = p->persistent_bytes;
            p->persistent_bytes += b->bytes;
        } else {
            p->unplanned_bytes += b->node < 0 ? b->bytes : 0;
            order[n++] = b;
        }
    }
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        order[i]->offset = lowest_gap(placed, n_placed, order[i]);
        insert(placed, n_placed++, order[i]);
        if (order[i]->offset + order[i]->bytes > p->transient_bytes)
            p->transient_bytes = order[i]->offset + order[i]->bytes;
    }
    for (int i = 0; i < p->n_buffers; i++)
        if (!p->buffers[i].is_persistent)
            p->buffers[i].offset += p->persistent_bytes;
}

/* in the order of execution: setup nodes, then all others */
static td_status measure_peak(td_plan *p, const td_graph *g)
{
    const size_t n = (size_t)g->n_nodes + 2;
    int64_t live = 0;
    int64_t *change = td_alloc(2 * n, sizeof *change);
    if (!change)
        return TD_ENOMEM;
    for (int i = 0; i < p->n_buffers; i++) {
        const td_buffer *b = &p->buffers[i];
        int64_t *phase = change + (b->is_setup ? 0 : n);
        if (!b->is_persistent) {
            phase[b->first] += b->bytes;
            phase[b->last + 1] -= b->bytes;
        }
    }
    for (size_t i = 0; i < 2 * n; i++) {
        live += change[i];
        if (live > p->peak_live_bytes)
            p->peak_live_bytes = live;
    }
    td_free(change);
    return TD_OK;
}

td_status td_plan_make(td_plan *p, const td_graph *g, const bool *is_setup, const int *calls,
                       const size_t *scratch_bytes)
{
    const schedule s = { g, is_setup, calls };
    td_status st = TD_OK;
    size_t most = (size_t)g->n_values + (size_t)g->n_nodes + 1;
    use *uses = NULL;
    td_buffer **order = NULL, **placed = NULL;

    *p = (td_plan){ 0 };
    p->slots = td_alloc((size_t)g->n_values + 1, sizeof *p->slots);
    p->buffers = td_alloc(most, sizeof *p->buffers);
    p->scratch = td_alloc((size_t)g->n_nodes + 1, sizeof *p->scratch);
    uses = td_alloc((size_t)g->n_values + 1, sizeof *uses);
    order = td_alloc(most, sizeof *order);
    placed = td_alloc(most, sizeof *placed);
    if (!p->slots || !p->buffers || !p->scratch || !uses || !order || !placed) {
        st = TD_ENOMEM;
        goto out;
    }
    find_uses(&s, uses);
    assign(p, &s, uses);
    add_scratch(p, g, is_setup, scratch_bytes);
    place_all(p, order, placed);
    st = measure_peak(p, g);
out:
    td_free(uses);
    td_free(order);
    td_free(placed);
    return st;
}

/* --- the checker ------------------------------------------------------------------------------ */

/* the checker's own data about each value: which memory it uses, and when */
typedef struct {
    int root;        /* the value it is a reshape of, or itself */
    int first, last; /* roots: the moments between which it or a reshape is needed */
    int64_t from, to;
    bool is_placed; /* false for the caller's own memory */
} span;

static void find_roots(const td_plan *p, const td_graph *g, span *s)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            const td_node *n = g->nodes[i];
            int v = n->out[k]->id, b = p->slots[v].buffer;
            s[v].root = n->op->is_alias ? s[n->in[0]->id].root : v;
            s[v].is_placed = b >= 0;
            s[v].from = b >= 0 ? p->buffers[b].offset : 0;
            s[v].to = s[v].from + td_type_bytes(&n->out[k]->type);
        }
}

/* when node i would run by itself: the setup's nodes come before all others */
static int moment(const schedule *s, int i)
{
    return s->is_setup[i] ? i : s->g->n_nodes + i;
}

/* marks a value that every run needs as alive all the time */
static void mark_persistent(const td_graph *g, span *root)
{
    root->first = 0;
    root->last = 2 * g->n_nodes;
}

static void find_lives(const schedule *sched, span *s)
{
    const td_graph *g = sched->g;
    const bool *is_setup = sched->is_setup;
    for (int v = 0; v < g->n_values; v++) {
        const int i = g->values[v]->producer->id;
        s[v].first = moment(sched, call_begin(sched, i));
        s[v].last = moment(sched, call_end(sched, i));
    }
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            span *root = &s[s[g->nodes[i]->in[k]->id].root];
            const int at = moment(sched, call_end(sched, i));
            if (!td_is_shape_only(g->nodes[i], k) && at > root->last)
                root->last = at;
        }
    for (int i = 0; i < g->n_outputs; i++)
        s[s[g->outputs[i].value->id].root].last = 2 * g->n_nodes;
    for (int v = 0; v < g->n_values; v++)
        if (td_value_is_param(g->values[v]) ||
            (is_setup[g->values[v]->producer->id] && s[s[v].root].last >= g->n_nodes))
            mark_persistent(g, &s[s[v].root]);
}

/* does w reuse the memory of v legally: is it made by the last reader of v, which no other reader
   runs with, and does the op allow it? */
static bool is_legal_reuse(const schedule *sched, const span *s, int v, int w)
{
    const td_graph *g = sched->g;
    const td_node *n = g->values[w]->producer;
    const uint32_t which = overwrites(n, g->values[w]->index);
    bool may = false;
    if (s[v].last != moment(sched, call_end(sched, n->id)) || s[v].from != s[w].from ||
        s[v].to != s[w].to || !reads_alone(sched, n, g->values[v]))
        return false;
    for (int k = 0; k < n->n_in; k++) {
        if (s[n->in[k]->id].root != v || td_is_shape_only(n, k))
            continue;
        if (!(which >> k & 1))
            return false;
        may = true;
    }
    return may;
}

static bool overlaps(int64_t from_a, int64_t to_a, int64_t from_b, int64_t to_b)
{
    return from_a < to_b && from_b < to_a;
}

static td_status check_values(const schedule *sched, const span *s)
{
    const td_graph *g = sched->g;
    for (int v = 0; v < g->n_values; v++) {
        if (s[v].root != v) {
            if (s[v].from != s[s[v].root].from || s[v].is_placed != s[s[v].root].is_placed)
                return td_error(
                    TD_EARG, "plan: '%%%s' is not at the address of '%%%s', of which it is a view",
                    g->values[v]->name, g->values[s[v].root]->name);
            continue;
        }
        for (int w = v + 1; s[v].is_placed && w < g->n_values; w++)
            if (s[w].root == w && s[w].is_placed && s[v].first <= s[w].last &&
                s[w].first <= s[v].last && overlaps(s[v].from, s[v].to, s[w].from, s[w].to) &&
                !is_legal_reuse(sched, s, v, w))
                return td_error(TD_EARG, "plan: '%%%s' and '%%%s' share memory while both live",
                                g->values[v]->name, g->values[w]->name);
    }
    return TD_OK;
}

static td_status check_scratch(const td_plan *p, const schedule *sched, const span *s, int i)
{
    const td_graph *g = sched->g;
    const int at = moment(sched, i);
    if (p->scratch[i] < 0)
        return TD_OK;
    const td_buffer *b = &p->buffers[p->scratch[i]];
    for (int v = 0; v < g->n_values; v++)
        if (s[v].root == v && s[v].is_placed && s[v].first <= at && at <= s[v].last &&
            overlaps(s[v].from, s[v].to, b->offset, b->offset + b->bytes))
            return td_error(TD_EARG, "plan: the scratch of node %d and '%%%s' share memory", i,
                            g->values[v]->name);
    return TD_OK;
}

static td_status check_bounds(const td_plan *p, const td_graph *g, const span *s)
{
    for (int v = 0; v < g->n_values; v++)
        if (s[v].is_placed && (s[v].from < 0 || s[v].from % ALIGN != 0 ||
                               s[v].to > p->persistent_bytes + p->transient_bytes))
            return td_error(TD_EARG, "plan: '%%%s' is outside the slab", g->values[v]->name);
    return TD_OK;
}

td_status td_plan_check(const td_plan *p, const td_graph *g, const bool *is_setup, const int *calls)
{
    const schedule sched = { g, is_setup, calls };
    span *s = td_alloc((size_t)g->n_values + 1, sizeof *s);
    td_status st = s ? TD_OK : TD_ENOMEM;
    if (st == TD_OK) {
        find_roots(p, g, s);
        find_lives(&sched, s);
        st = check_bounds(p, g, s);
    }
    if (st == TD_OK)
        st = check_values(&sched, s);
    for (int i = 0; st == TD_OK && i < g->n_nodes; i++)
        st = check_scratch(p, &sched, s, i);
    td_free(s);
    return st;
}
