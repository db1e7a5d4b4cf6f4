/*
 * amp_propagate_lists.c -- tensor lists: all ops that share a handle must have the same type
 *
 *   reserve ---> set_item ---> set_item ---> get_item     handles: variant-typed vertices
 *                   ^             ^             |
 *                 value         value         value       elements: float vertices
 *
 * A cluster is all list ops with a float element type that handles connect, in either direction.
 * Elements pass from writers to readers without an edge, so each writer gets temporary edges to the
 * readers downstream of it, which propagate types.  A cluster whose handles come from or go to an
 * unknown op, or that has an op that may not change, is unsafe: it is denied.
 */
#include "amp/amp_propagate_parts.h"

/* The vertex of a list op's elements, or -1. */
static int element_vertex(const td_amp_propagation *p, int node)
{
    const td_amp_node *n = &p->g->nodes[node];
    for (int v = n->first_vertex; v < n->first_vertex + n->n_vertices; v++)
        if ((p->bits[v] & BIT_F32) && !p->g->vertices[v].is_fixed)
            return v;
    return -1;
}

static bool is_member(const td_amp_propagation *p, int v)
{
    int node = p->g->vertices[v].node;
    return p->g->vertices[v].type == TD_AMP_TYPE_VARIANT &&
           (p->g->nodes[node].flags & TD_AMP_IS_LIST_OP) && element_vertex(p, node) >= 0;
}

/* seen[v] == stamp: visited in this walk. */
typedef struct {
    int *seen; /* [n_vertices] */
    int stamp;
    int n_stack;
} walk;

static void step(td_amp_propagation *p, walk *w, int v)
{
    if (w->seen[v] == w->stamp)
        return;
    w->seen[v] = w->stamp;
    p->stack[w->n_stack++] = v;
}

static void step_back(td_amp_propagation *p, walk *w, int v)
{
    for (int i = p->in.start[v]; i < p->in.start[v + 1]; i++)
        step(p, w, p->edges[p->in.order[i]].from);
}

static void step_on(td_amp_propagation *p, walk *w, int v)
{
    for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++)
        step(p, w, p->edges[p->out.order[i]].to);
}

static void gather(td_amp_propagation *p, walk *w, int root, td_amp_cluster *c, int *n_members)
{
    c->first = *n_members;
    step(p, w, root);
    while (w->n_stack > 0) {
        int v = p->stack[--w->n_stack], node = p->g->vertices[v].node;
        if (p->g->nodes[node].flags & TD_AMP_IS_HANDLE_END)
            c->is_unsafe = true;
        if (is_member(p, v)) {
            p->members[(*n_members)++] = element_vertex(p, node);
            if (!p->g->nodes[node].is_eligible)
                c->is_unsafe = true;
        }
        step_back(p, w, v);
        step_on(p, w, v);
    }
    c->n = *n_members - c->first;
}

/* --- temporary edges -------------------------------------------------------------------------- */

typedef struct {
    td_amp_edge *edges;
    size_t n, cap;
} new_edges;

static td_status connect(td_amp_propagation *p, walk *w, int reader, int handle, new_edges *e)
{
    w->stamp++;
    step(p, w, handle);
    while (w->n_stack > 0) {
        int v = p->stack[--w->n_stack], node = p->g->vertices[v].node;
        int element = element_vertex(p, node);
        if ((p->g->nodes[node].flags & TD_AMP_IS_LIST_WRITER) && element >= 0) {
            td_status st = td_reserve(&e->edges, &e->cap, e->n + 1, sizeof *e->edges);
            if (st != TD_OK)
                return st;
            e->edges[e->n++] =
                (td_amp_edge){ .from = element, .from_port = -1, .to = reader, .to_port = -1 };
        }
        step_back(p, w, v);
    }
    return TD_OK;
}

static int handle_of(const td_amp_propagation *p, int node)
{
    const td_amp_node *n = &p->g->nodes[node];
    for (int v = n->first_vertex; v < n->first_vertex + n->n_vertices; v++)
        if (p->g->vertices[v].type == TD_AMP_TYPE_VARIANT)
            return v;
    return -1;
}

static td_status connect_all(td_amp_propagation *p, walk *w, new_edges *e)
{
    for (int k = 0; k < p->n_clusters; k++) {
        const td_amp_cluster *c = &p->clusters[k];
        for (int i = c->first; i < c->first + c->n && !c->is_unsafe; i++) {
            int node = p->g->vertices[p->members[i]].node;
            if (p->g->nodes[node].flags & TD_AMP_IS_LIST_READER)
                TD_TRY(connect(p, w, p->members[i], handle_of(p, node), e));
        }
    }
    return TD_OK;
}

static td_status append_edges(td_amp_propagation *p, const new_edges *e)
{
    size_t n = (size_t)p->n_edges + e->n;
    td_amp_edge *all = td_arena_alloc(&p->scratch, n, sizeof *all);
    if (!all)
        return TD_ENOMEM;
    for (size_t i = 0; i < n; i++)
        all[i] = i < (size_t)p->n_edges ? p->edges[i] : e->edges[i - (size_t)p->n_edges];
    p->edges = all;
    p->n_edges = (int)n;
    return td_amp_propagation_sort(p);
}

td_status td_amp_find_clusters(td_amp_propagation *p)
{
    size_t n_roots = 0;
    for (int v = 0; v < p->g->n_vertices; v++)
        n_roots += is_member(p, v);
    if (!n_roots || p->o->rule == TD_AMP_RULE_CLASSIC)
        return TD_OK;

    walk w = { .stamp = 1 };
    new_edges e = { 0 };
    w.seen = td_arena_alloc(&p->scratch, (size_t)p->g->n_vertices, sizeof *w.seen);
    p->clusters = td_arena_alloc(&p->scratch, n_roots, sizeof *p->clusters);
    p->members = td_arena_alloc(&p->scratch, n_roots, sizeof *p->members);
    if (!w.seen || !p->clusters || !p->members)
        return TD_ENOMEM;
    int n_members = 0;
    for (int v = 0; v < p->g->n_vertices; v++)
        if (is_member(p, v) && !w.seen[v])
            gather(p, &w, v, &p->clusters[p->n_clusters++], &n_members);

    td_status st;
    TD_OUT(connect_all(p, &w, &e));
    if (e.n)
        TD_OUT(append_edges(p, &e));
out:
    td_free(e.edges);
    return st;
}
