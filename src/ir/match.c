/*
 * match.c -- lists the users of each value: counts them, then fills the lists
 */
#include "ir/match.h"

#include "base/arena.h"

td_status td_uses_init(td_uses *u, const td_graph *g)
{
    int total = 0;
    for (int i = 0; i < g->n_nodes; i++)
        total += g->nodes[i]->n_in;
    *u = (td_uses){ 0 };
    TD_TRY(TD_ALLOC(u->first, (size_t)g->n_values + 2));
    TD_TRY(TD_ALLOC(u->users, (size_t)total + 1));

    /* first[id + 2] counts the users of id, then its prefix sum is the start of id + 1; filling
       advances first[id + 1] */
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            u->first[g->nodes[i]->in[k]->id + 2]++;
    for (int v = 2; v <= g->n_values + 1; v++)
        u->first[v] += u->first[v - 1];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            u->users[u->first[g->nodes[i]->in[k]->id + 1]++] = g->nodes[i];
    return TD_OK;
}

void td_uses_release(td_uses *u)
{
    td_free(u->users);
    td_free(u->first);
    *u = (td_uses){ 0 };
}

const td_node *const *td_uses_of(const td_uses *u, const td_value *v, int *n)
{
    *n = u->first[v->id + 1] - u->first[v->id];
    return u->users + u->first[v->id];
}

const td_node *td_uses_only(const td_uses *u, const td_value *v)
{
    int n;
    const td_node *const *users = td_uses_of(u, v, &n);
    return n == 1 && v->n_uses == 1 ? users[0] : NULL;
}

const td_node *td_uses_producer(const td_uses *u, const td_value *v, const td_op *op)
{
    return v->producer->op == op && td_uses_only(u, v) ? v->producer : NULL;
}

static bool reads(const td_node *n, const td_value *param)
{
    for (int i = 0; i < n->n_in; i++)
        if (td_value_root(n->in[i]) == param)
            return true;
    return false;
}

bool td_overwritten_between(const td_graph *g, int from, int to, const td_node *reader)
{
    for (int i = from + 1; i < to; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 0; n->op->writes && k < n->n_in; k++)
            if ((n->op->writes >> k & 1) && reads(reader, n->in[k]))
                return true;
    }
    return false;
}
