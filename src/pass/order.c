/*
 * order.c -- updates happen as soon as they may
 *
 * An optimiser step frees a gradient, so it is moved up to right behind the last of
 *   - the nodes that make its operands, and
 *   - the other readers of the parameters it overwrites.
 * Everything else keeps its order.
 */
#include "ir/match.h"
#include "pass/pass.h"

/* the last old node that must have run before n may overwrite */
static int last_before(const td_uses *u, const td_node *n)
{
    int last = -1;
    for (int i = 0; i < n->n_in; i++) {
        int n_users = 0;
        if (n->in[i]->producer->id > last)
            last = n->in[i]->producer->id;
        if (!(n->op->writes >> i & 1))
            continue;
        const td_node *const *users = td_uses_of(u, n->in[i], &n_users);
        for (int k = 0; k < n_users; k++)
            if (users[k] != n && users[k]->id > last)
                last = users[k]->id;
    }
    return last;
}

static void emit_in_order(td_rewriter *rw, const td_uses *u, int *next, int *after)
{
    /* after[i]: first effect node to emit behind node i; next[]: the chain */
    const td_graph *g = rw->old;
    for (int i = 0; i < g->n_nodes; i++)
        after[i] = next[i] = -1;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (td_node_has_effect(g->nodes[i])) {
            int at = last_before(u, g->nodes[i]);
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
    td_uses u = { 0 };
    size_t n = (size_t)rw->old->n_nodes + 1;
    int *next = td_alloc(n, sizeof *next), *after = td_alloc(n, sizeof *after);
    td_status st = next && after ? td_uses_init(&u, rw->old) : TD_ENOMEM;
    if (st == TD_OK)
        emit_in_order(rw, &u, next, after);
    else
        td_build_fail(rw->b, st);
    td_uses_release(&u);
    td_free(next);
    td_free(after);
}

const td_pass td_pass_order = {
    .name = "order",
    .summary = "move updates up so that gradients are freed early",
    .counts = "updates moved",
    .run = order_run,
};
