/*
 * order.c -- updates happen as soon as they may
 *
 * An optimiser step frees a gradient, so it is moved up to right behind the last of
 *   - the nodes that make its operands, and
 *   - the other readers of the parameters it overwrites, and of reshapes of them.
 * Everything else keeps its order.
 */
#include "pass/pass.h"

/* last[v]: the last node that reads v's memory, through reshapes too; an update of v is no reading */
static void last_readers(const td_graph *g, int *last)
{
    for (int v = 0; v < g->n_values; v++)
        last[v] = g->values[v]->producer->id;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (!(g->nodes[i]->op->writes >> k & 1))
                last[g->nodes[i]->in[k]->id] = i;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (n->op->is_alias && last[n->out[0]->id] > last[n->in[0]->id])
            last[n->in[0]->id] = last[n->out[0]->id];
    }
}

/* the last old node that must have run before n may overwrite */
static int last_before(const int *last, const td_node *n)
{
    int before = -1;
    for (int i = 0; i < n->n_in; i++) {
        int at = n->op->writes >> i & 1 ? last[n->in[i]->id] : n->in[i]->producer->id;
        before = at > before ? at : before;
    }
    return before;
}

static void emit_in_order(td_rewriter *rw, const int *last, int *next, int *after)
{
    /* after[i]: first effect node to emit behind node i; next[]: the chain */
    const td_graph *g = rw->old;
    for (int i = 0; i < g->n_nodes; i++)
        after[i] = next[i] = -1;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (td_node_has_effect(g->nodes[i])) {
            int at = last_before(last, g->nodes[i]);
            at = at < 0 || at > i ? i : at;
            rw->n_changed += at < i - 1;
            next[i] = after[at];
            after[at] = i;
        }
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++) {
        if (!td_node_has_effect(g->nodes[i]))
            td_rw_copy(rw, g->nodes[i]);
        for (int k = after[i]; k >= 0; k = next[k])
            td_rw_copy(rw, g->nodes[k]);
    }
}

static void order_run(td_rewriter *rw)
{
    size_t n = (size_t)rw->old->n_nodes + 1;
    int *next = td_alloc(n, sizeof *next), *after = td_alloc(n, sizeof *after);
    int *last = td_alloc((size_t)rw->old->n_values + 1, sizeof *last);
    if (next && after && last) {
        last_readers(rw->old, last);
        emit_in_order(rw, last, next, after);
    } else {
        td_build_fail(rw->b, TD_ENOMEM);
    }
    td_free(next);
    td_free(after);
    td_free(last);
}

const td_pass td_pass_order = {
    .name = "order",
    .summary = "move updates up so that gradients are freed early",
    .counts = "updates moved",
    .run = order_run,
};
