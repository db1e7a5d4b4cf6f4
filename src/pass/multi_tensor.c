/*
 * multi_tensor.c -- moves nodes together that the target can run as one call
 *
 *     %41 = cast %40                          %41 = cast %40
 *     ... backward ...                        %47 = cast %46
 *     %47 = cast %46                   ->     sgd %w1, %v1, %47, %lr
 *     sgd %w1, %v1, %47, %lr                  sgd %w2, %v2, %41, %lr
 *     ema %w1, %a1, %keep, %share             ema %w1, %a1, %keep, %share
 *     sgd %w2, %v2, %41, %lr                  ema %w2, %a2, %keep, %share
 *     ema %w2, %a2, %keep, %share
 *
 * A GPU takes longer to start a kernel than to update one small tensor.  Nodes that can run with
 * others (td_target.multi), and those between them that compute one number from numbers (a limit
 * for gradients from their norm), are emitted last if no other node has to follow, kind by kind:
 * each time all that may run now of a kind of which none must wait, or else of the kind with the
 * most.  No node passes another one that it depends on.  Gradients are kept until then; by that
 * time most activations are free.  Targets that run every node by itself keep the graph as it is.
 *
 * Source: apex, multi_tensor_apply; XLA, horizontal loop fusion.
 */
#include "pass/pass.h"

typedef struct {
    const void *kind; /* NULL: runs by itself */
    int chained;
    bool is_late, is_emitted, is_chosen;
} late_node;

typedef struct {
    late_node *nodes; /* [nodes] */
    bool *read;       /* [values] roots that some nodes read, and values that they need */
    bool *written;    /* [values] roots that they write */
} multi_state;

/* --- which nodes can be last ------------------------------------------------------------------ */

static bool writes(const td_node *n, int i)
{
    return n->op->writes >> i & 1;
}

static void mark(multi_state *s, const td_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        s->written[n->out[i]->id] = true;
    for (int i = 0; i < n->n_in; i++) {
        const int root = td_value_root(n->in[i])->id;
        s->read[n->in[i]->id] = true;
        s->read[root] = true;
        s->written[root] |= writes(n, i);
    }
}

/* does a marked node, which comes later, have to follow n? */
static bool is_needed(const multi_state *s, const td_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (s->read[n->out[i]->id])
            return true;
    for (int i = 0; i < n->n_in; i++) {
        const int root = td_value_root(n->in[i])->id;
        if (s->written[root] || (writes(n, i) && s->read[root]))
            return true;
    }
    return false;
}

/* does it compute numbers from numbers? */
static bool is_scalar(const td_node *n)
{
    bool is_all = !n->op->is_leaf && !n->op->is_collective;
    for (int i = 0; i < n->n_in; i++)
        is_all = is_all && td_type_count(&n->in[i]->type) == 1;
    for (int i = 0; i < n->n_out; i++)
        is_all = is_all && td_type_count(&n->out[i]->type) == 1;
    return is_all;
}

static void find_late(const td_rewriter *rw, multi_state *s)
{
    const td_graph *g = rw->old;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        late_node *l = &s->nodes[i];
        if (!n->op->is_leaf && !n->op->is_alias && !n->op->is_collective)
            l->kind = rw->target->multi(rw->target->ctx, n, &l->chained);
        l->is_late = (l->kind || n->op->is_alias || is_scalar(n)) && !is_needed(s, n);
        if (!l->is_late)
            mark(s, n);
    }
}

/* --- in which order --------------------------------------------------------------------------- */

/* must n wait for a marked node, which comes before it?  last: chosen before it, or NULL */
static bool is_blocked(const multi_state *s, const td_node *n, const td_node *last)
{
    const int chained = s->nodes[n->id].kind ? s->nodes[n->id].chained : -1;
    bool is_next = !last || chained < 0;
    for (int i = 0; i < n->n_in; i++) {
        const td_value *v = n->in[i];
        const int root = td_value_root(v)->id;
        if (i == chained && last && v->producer == last) {
            is_next = true;
            continue;
        }
        if (s->written[v->id] || s->written[root] || (writes(n, i) && s->read[root]))
            return true;
    }
    return !is_next;
}

static void unmark(const td_graph *g, multi_state *s)
{
    for (int v = 0; v < g->n_values; v++)
        s->read[v] = s->written[v] = false;
}

/* chooses the late nodes of a kind that may run as one call now, or one by one those without a
   kind; how many, and how many wait */
static int choose(const td_graph *g, multi_state *s, const void *kind, int *n_waiting)
{
    const td_node *last = NULL;
    int n_chosen = 0;
    *n_waiting = 0;
    unmark(g, s);
    for (int i = 0; i < g->n_nodes; i++) {
        late_node *l = &s->nodes[i];
        if (!l->is_late || l->is_emitted)
            continue;
        l->is_chosen = l->kind == kind && !is_blocked(s, g->nodes[i], last);
        if (l->is_chosen)
            last = g->nodes[i];
        n_chosen += l->is_chosen;
        *n_waiting += l->kind == kind && !l->is_chosen;
        if (kind || !l->is_chosen)
            mark(s, g->nodes[i]);
    }
    return n_chosen;
}

/* has an earlier late node that is not emitted the kind of late node i? */
static bool has_kind_before(const multi_state *s, int i)
{
    for (int k = i - 1; k >= 0; k--)
        if (s->nodes[k].is_late && !s->nodes[k].is_emitted && s->nodes[k].kind == s->nodes[i].kind)
            return true;
    return false;
}

/* the kind to emit next; false: nothing is left */
static bool next_kind(const td_graph *g, multi_state *s, const void **out)
{
    int most = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const late_node *l = &s->nodes[i];
        int n_waiting;
        if (!l->is_late || l->is_emitted || has_kind_before(s, i))
            continue;
        const int n = choose(g, s, l->kind, &n_waiting);
        if (n > most) {
            most = n;
            *out = l->kind;
        }
        if (n > 0 && n_waiting == 0) {
            *out = l->kind;
            return true;
        }
    }
    return most > 0;
}

static void emit_chosen(td_rewriter *rw, multi_state *s)
{
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
        if (s->nodes[i].is_chosen) {
            td_rw_copy(rw, rw->old->nodes[i]);
            s->nodes[i].is_emitted = true;
            s->nodes[i].is_chosen = false;
            rw->n_changed += s->nodes[i].kind != NULL;
        }
}

static void emit_all(td_rewriter *rw, multi_state *s)
{
    const td_graph *g = rw->old;
    const void *kind;
    int n_waiting;
    find_late(rw, s);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++)
        if (!s->nodes[i].is_late)
            td_rw_copy(rw, g->nodes[i]);
    while (td_build_ok(rw->b) && next_kind(g, s, &kind)) {
        (void)choose(g, s, kind, &n_waiting);
        emit_chosen(rw, s);
    }
}

static void multi_tensor_run(td_rewriter *rw)
{
    const size_t n_nodes = (size_t)rw->old->n_nodes + 1, n_values = (size_t)rw->old->n_values + 1;
    if (!rw->target || !rw->target->multi) {
        td_rw_copy_all(rw);
        return;
    }
    multi_state s = { .nodes = td_alloc(n_nodes, sizeof *s.nodes),
                      .read = td_alloc(n_values, sizeof *s.read),
                      .written = td_alloc(n_values, sizeof *s.written) };
    if (s.nodes && s.read && s.written)
        emit_all(rw, &s);
    else
        td_build_fail(rw->b, TD_ENOMEM);
    td_free(s.nodes);
    td_free(s.read);
    td_free(s.written);
}

const td_pass td_pass_multi_tensor = {
    .name = "multi_tensor",
    .summary = "updates of many tensors together, for one launch on a GPU",
    .counts = "nodes put together",
    .run = multi_tensor_run,
};
