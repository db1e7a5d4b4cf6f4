/*
 * order.c -- moves updates to the earliest possible position
 *
 * An optimizer step ends the life of a gradient, so it is moved up to right after the last of
 *   - the nodes that make its operands,
 *   - the other readers of the parameters it overwrites, and of reshapes of them, and
 *   - the earlier updates that write what it reads.
 * Inputs, parameters and constants come first; otherwise an update could not precede the
 * declaration of its momentum buffer.  Everything else keeps its order.
 */
#include "pass/pass.h"

typedef struct {
    int *last;  /* [values] the last node that reads a value's memory, also through a reshape */
    int *wrote; /* [values] parameters: position of the last update so far */
    int *after; /* [nodes] first update to emit after a node; -1: none */
    int *next;  /* [nodes] the next update at the same position */
} order_state;

/* inputs, parameters, constants */
static bool is_first(const td_node *n)
{
    return n->n_in == 0 && !td_node_has_effect(n);
}

static int made_at(const td_value *v)
{
    return is_first(v->producer) ? 0 : v->producer->id;
}

/* finds the last readers, without the updates, which are added later at their new positions */
static void last_readers(const td_graph *g, int *last)
{
    for (int v = 0; v < g->n_values; v++)
        last[v] = made_at(g->values[v]);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in && !td_node_has_effect(g->nodes[i]); k++)
            last[g->nodes[i]->in[k]->id] = i;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        if (n->op->is_alias && last[n->out[0]->id] > last[n->in[0]->id])
            last[n->in[0]->id] = last[n->out[0]->id];
    }
}

/* the node after which update n is emitted: the last that must run before it */
static int place_of(const order_state *s, const td_node *n)
{
    int at = 0, *last = s->last;
    for (int i = 0; i < n->n_in; i++) {
        const td_value *v = n->in[i];
        int before = n->op->writes >> i & 1 ? last[v->id] : made_at(v);
        before = s->wrote[v->id] > before ? s->wrote[v->id] : before;
        at = before > at ? before : at;
    }
    for (int i = 0; i < n->n_in; i++)
        if (n->op->writes >> i & 1)
            s->wrote[n->in[i]->id] = at;
    for (int i = 0; i < n->n_in; i++) { /* updates that overwrite what n reads must follow it */
        int *reader = &last[td_value_root(n->in[i])->id];
        *reader = at > *reader ? at : *reader;
    }
    return at;
}

static void emit_in_order(td_rewriter *rw, const order_state *s)
{
    const td_graph *g = rw->old;
    last_readers(g, s->last);
    for (int i = 0; i < g->n_nodes; i++) {
        s->after[i] = -1;
        s->next[i] = td_node_has_effect(g->nodes[i]) ? place_of(s, g->nodes[i]) : -1;
    }
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (td_node_has_effect(g->nodes[i])) {
            int at = s->next[i];
            rw->n_changed += at < i - 1;
            s->next[i] = s->after[at];
            s->after[at] = i;
        }
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++)
        if (is_first(g->nodes[i]))
            td_rw_copy(rw, g->nodes[i]);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++) {
        if (!td_node_has_effect(g->nodes[i]) && !is_first(g->nodes[i]))
            td_rw_copy(rw, g->nodes[i]);
        for (int k = s->after[i]; k >= 0; k = s->next[k])
            td_rw_copy(rw, g->nodes[k]);
    }
}

static void order_run(td_rewriter *rw)
{
    size_t n_nodes = (size_t)rw->old->n_nodes + 1, n_values = (size_t)rw->old->n_values + 1;
    order_state s = { .last = td_alloc(n_values, sizeof *s.last),
                      .wrote = td_alloc(n_values, sizeof *s.wrote),
                      .after = td_alloc(n_nodes, sizeof *s.after),
                      .next = td_alloc(n_nodes, sizeof *s.next) };
    if (s.last && s.wrote && s.after && s.next)
        emit_in_order(rw, &s);
    else
        td_build_fail(rw->b, TD_ENOMEM);
    td_free(s.last);
    td_free(s.wrote);
    td_free(s.after);
    td_free(s.next);
}

const td_pass td_pass_order = {
    .name = "order",
    .summary = "move updates up so that gradients are freed early",
    .counts = "updates moved",
    .run = order_run,
};
