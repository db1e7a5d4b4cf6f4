/*
 * program_multi.c -- consecutive nodes that run as one call
 *
 *     nodes:   conv2d_grad_w | cast cast cast | all_finite all_finite all_finite | sgd sgd sgd
 *     calls:        one      |      one       |              one                 |     one
 *
 * Pass multi_tensor has moved such nodes together.  A node joins the call before it if their
 * kernels have one td_multi and it neither reads what a node of the call writes, nor writes what
 * one of them reads or writes; the plan keeps their memory apart.  Addresses do not change, so
 * kernels prepare a call once, when the program has its memory.
 *
 * Observed runs launch each node by itself, with the same results; profiled ones count the time of
 * a call for its first node.
 */
#include <stdio.h>

#include "runtime/program_parts.h"

/* --- which nodes ------------------------------------------------------------------------------ */

/* what the nodes of a call use: [values] the first node of the last call that did, plus 1 */
typedef struct {
    int *read, *written;
    int *n_readers;
} uses;

static bool writes(const td_node *n, int i)
{
    return n->op->writes >> i & 1;
}

static void note(const uses *u, const td_node *n, int first)
{
    for (int i = 0; i < n->n_out; i++)
        u->written[n->out[i]->id] = first + 1;
    for (int i = 0; i < n->n_in; i++) {
        const int root = td_value_root(n->in[i])->id;
        if (td_is_shape_only(n, i))
            continue;
        u->read[root] = first + 1;
        if (writes(n, i))
            u->written[root] = first + 1;
    }
}

/* is operand i the result of the node before, which nothing else reads? */
static bool is_chained(const uses *u, const td_node *n, int i, const td_multi *m)
{
    const td_value *v = n->in[i];
    return i == m->chained && v->producer->id == n->id - 1 && u->n_readers[v->id] == 1;
}

static bool may_join(const uses *u, const td_node *n, int first, const td_multi *m)
{
    bool is_next = m->chained < 0;
    for (int i = 0; i < n->n_in; i++) {
        const int root = td_value_root(n->in[i])->id;
        if (is_chained(u, n, i, m))
            is_next = true;
        else if (!td_is_shape_only(n, i) &&
                 (u->written[root] == first + 1 || (writes(n, i) && u->read[root] == first + 1)))
            return false;
    }
    return is_next;
}

/* NULL: node i runs by itself */
static const td_multi *multi_of(const td_program *p, int i)
{
    const td_prepared *c = &p->calls[i].prepared;
    return !c->kernel || p->is_setup[i] ? NULL : c->kernel->multi;
}

/* the end of the call that begins with node `first` */
static int find_end(const td_program *p, const uses *u, int first)
{
    const td_multi *m = multi_of(p, first);
    int end = first + 1;
    note(u, p->graph->nodes[first], first);
    while (m && end < p->graph->n_nodes && multi_of(p, end) == m &&
           may_join(u, p->graph->nodes[end], first, m))
        note(u, p->graph->nodes[end++], first);
    return end;
}

static void find_calls(td_program *p, const uses *u)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            u->n_readers[g->nodes[i]->in[k]->id]++;
    for (int i = 0; i < g->n_outputs; i++)
        u->n_readers[g->outputs[i].value->id]++;
    for (int i = 0, end; i < g->n_nodes; i = end) {
        end = find_end(p, u, i);
        for (int k = i; k < end; k++)
            p->call_of[k] = i;
        for (int k = i; k < end && end - i > 1; k++)
            snprintf(p->calls[k].prepared.impl, sizeof p->calls[k].prepared.impl,
                     "%d nodes, one launch", end - i);
    }
}

td_status td_program_find_multi(td_program *p)
{
    const size_t n_values = (size_t)p->graph->n_values + 1;
    p->call_of = td_alloc((size_t)p->graph->n_nodes + 1, sizeof *p->call_of);
    uses u = { .read = td_alloc(n_values, sizeof *u.read),
               .written = td_alloc(n_values, sizeof *u.written),
               .n_readers = td_alloc(n_values, sizeof *u.n_readers) };
    const bool is_whole = p->call_of && u.read && u.written && u.n_readers;
    if (is_whole)
        find_calls(p, &u);
    td_free(u.read);
    td_free(u.written);
    td_free(u.n_readers);
    return is_whole ? TD_OK : TD_ENOMEM;
}

int td_program_call_end(const td_program *p, int i)
{
    int end = i + 1;
    while (end < p->graph->n_nodes && p->call_of[end] == p->call_of[i])
        end++;
    return end;
}

/* --- prepared and run ------------------------------------------------------------------------- */

static td_status prepare_call(td_program *p, int first, int end)
{
    const td_multi *m = multi_of(p, first);
    td_multi_node *nodes = td_alloc((size_t)(end - first), sizeof *nodes);
    TD_CHECK(m != NULL); /* the first of several nodes of a call has one */
    if (!nodes)
        return TD_ENOMEM;
    for (int i = first; i < end; i++) {
        td_call_slot *c = &p->calls[i];
        for (int k = 0; k < c->n_args; k++)
            c->args[k] = p->address[c->value[k]];
        nodes[i - first] = (td_multi_node){ &c->prepared, c->args };
    }
    td_status st = m->prepare(nodes, end - first, &p->calls[first].multi);
    td_free(nodes);
    return st;
}

td_status td_program_prepare_multi(td_program *p)
{
    for (int i = 0, end; i < p->graph->n_nodes; i = end) {
        end = td_program_call_end(p, i);
        td_status st = end - i > 1 ? prepare_call(p, i, end) : TD_OK;
        if (st != TD_OK)
            return td_error_context(st, "%s and %d more nodes (%s)",
                                    td_node_label(p->graph->nodes[i]), end - i - 1,
                                    p->calls[i].prepared.kernel->name);
    }
    return TD_OK;
}

td_status td_program_run_multi(const td_program *p, int first)
{
    const td_call_slot *c = &p->calls[first];
    return c->prepared.kernel->multi->run(c->multi);
}

void td_program_free_multi(td_program *p)
{
    for (int i = 0; p->calls && i < p->graph->n_nodes; i++)
        if (p->calls[i].multi)
            p->calls[i].prepared.kernel->multi->release(p->calls[i].multi);
}
