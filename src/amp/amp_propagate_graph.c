/*
 * amp_propagate_graph.c -- checks a type graph, sorts its edges, and sets the property bits of its
 * vertices
 */
#include "amp/amp_propagate_parts.h"

#include <limits.h>
#include <string.h>

#define PORT_MAX 65535 /* edges are sorted by counting: limits the counters */

/* --- check ------------------------------------------------------------------------------------ */

static td_status check_nodes(const td_amp_graph *g)
{
    int next = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_amp_node *n = &g->nodes[i];
        if (!n->name)
            return td_error(TD_EARG, "amp: node %d has no name", i);
        if (n->first_vertex != next || n->n_vertices < 0 || n->n_vertices > g->n_vertices - next)
            return td_error(TD_EARG,
                            "amp: node '%s' has vertices %d to %d, wanted from %d to at most %d",
                            n->name, n->first_vertex, n->first_vertex + n->n_vertices - 1, next,
                            g->n_vertices - 1);
        for (int v = next; v < next + n->n_vertices; v++)
            if (g->vertices[v].node != i)
                return td_error(TD_EARG,
                                "amp: vertex %d names node %d, but belongs to node '%s', %d", v,
                                g->vertices[v].node, n->name, i);
        next += n->n_vertices;
    }
    if (next != g->n_vertices)
        return td_error(TD_EARG, "amp: nodes have %d vertices, the graph has %d", next,
                        g->n_vertices);
    return TD_OK;
}

static td_status check_edge(const td_amp_graph *g, int i)
{
    const td_amp_edge *e = &g->edges[i];
    if (e->from < 0 || e->from >= g->n_vertices || e->to < 0 || e->to >= g->n_vertices)
        return td_error(TD_EARG, "amp: edge %d connects vertex %d to vertex %d, the graph has %d",
                        i, e->from, e->to, g->n_vertices);
    if (e->from_port < 0 || e->from_port > PORT_MAX || e->to_port < 0 || e->to_port > PORT_MAX)
        return td_error(TD_EARG, "amp: edge %d has ports %d and %d, wanted 0 to %d", i,
                        e->from_port, e->to_port, PORT_MAX);
    return TD_OK;
}

td_status td_amp_graph_check(const td_amp_graph *g)
{
    if (g->n_nodes < 0 || g->n_vertices < 0 || g->n_edges < 0 || g->n_vertices == INT_MAX)
        return td_error(TD_EARG, "amp: %d nodes, %d vertices, %d edges", g->n_nodes, g->n_vertices,
                        g->n_edges);
    TD_TRY(check_nodes(g));
    for (int i = 0; i < g->n_edges; i++)
        TD_TRY(check_edge(g, i));
    return TD_OK;
}

/* --- sorted edges ----------------------------------------------------------------------------- */

/* A stable counting sort: copies from[] to to[] in the order of key(edge), which is below
   n_keys. */
static void counting_sort(const int *from, int n, const int *key, int *start, int n_keys, int *to)
{
    memset(start, 0, ((size_t)n_keys + 1) * sizeof *start);
    for (int i = 0; i < n; i++)
        start[key[i] + 1]++;
    for (int k = 0; k < n_keys; k++)
        start[k + 1] += start[k];
    for (int i = 0; i < n; i++)
        to[start[key[from[i]]]++] = from[i];
    for (int k = n_keys; k > 0; k--)
        start[k] = start[k - 1];
    start[0] = 0;
}

enum { BY_PORT_LEFT, BY_VERTEX_LEFT, BY_VERTEX_ENTERED };

static void read_keys(const td_amp_propagation *p, int which, int *key)
{
    for (int i = 0; i < p->n_edges; i++) {
        const td_amp_edge *e = &p->edges[i];
        key[i] = which == BY_PORT_LEFT     ? e->from_port + 1 /* temporary edges have -1 */
                 : which == BY_VERTEX_LEFT ? e->from
                                           : e->to;
    }
}

static int count_ports(const td_amp_propagation *p)
{
    int most = 0;
    for (int i = 0; i < p->n_edges; i++)
        if (p->edges[i].from_port > most)
            most = p->edges[i].from_port;
    return most + 2;
}

td_status td_amp_propagation_sort(td_amp_propagation *p)
{
    size_t n = (size_t)p->n_edges + 1, n_vertices = (size_t)p->g->n_vertices;
    int n_ports = count_ports(p);
    int *key = td_arena_alloc(&p->scratch, n, sizeof *key);
    int *as_is = td_arena_alloc(&p->scratch, n, sizeof *as_is);
    int *by_port = td_arena_alloc(&p->scratch, n, sizeof *by_port);
    int *port_start = td_arena_alloc(&p->scratch, (size_t)n_ports + 1, sizeof *port_start);
    p->out.start = td_arena_alloc(&p->scratch, n_vertices + 1, sizeof *p->out.start);
    p->out.order = td_arena_alloc(&p->scratch, n, sizeof *p->out.order);
    p->in.start = td_arena_alloc(&p->scratch, n_vertices + 1, sizeof *p->in.start);
    p->in.order = td_arena_alloc(&p->scratch, n, sizeof *p->in.order);
    if (!key || !as_is || !by_port || !port_start || !p->out.start || !p->out.order ||
        !p->in.start || !p->in.order)
        return TD_ENOMEM;

    for (int i = 0; i < p->n_edges; i++)
        as_is[i] = i;
    read_keys(p, BY_PORT_LEFT, key);
    counting_sort(as_is, p->n_edges, key, port_start, n_ports, by_port);
    read_keys(p, BY_VERTEX_LEFT, key);
    counting_sort(by_port, p->n_edges, key, p->out.start, p->g->n_vertices, p->out.order);
    read_keys(p, BY_VERTEX_ENTERED, key);
    counting_sort(as_is, p->n_edges, key, p->in.start, p->g->n_vertices, p->in.order);
    return TD_OK;
}

/* --- metadata --------------------------------------------------------------------------------- */

static uint32_t bits_of_class(td_amp c)
{
    switch (c) {
    case TD_AMP_ALLOW:
        return BIT_ALLOW_OP;
    case TD_AMP_INFER:
        return BIT_INFER_OP | BIT_SOFT_OP;
    case TD_AMP_DENY:
        return BIT_DENY_OP;
    case TD_AMP_CLEAR:
        return BIT_CLEAR_OP | BIT_SOFT_OP;
    default:
        return 0;
    }
}

static void note_properties(td_amp_propagation *p)
{
    for (int v = 0; v < p->g->n_vertices; v++) {
        const td_amp_vertex *x = &p->g->vertices[v];
        const td_amp_node *n = &p->g->nodes[x->node];
        uint32_t b = bits_of_class(n->class);
        if (n->is_eligible)
            b |= BIT_ELIGIBLE;
        if (x->type == TD_AMP_TYPE_F32)
            b |= BIT_F32;
        if (x->type_ok)
            b |= BIT_TYPE;
        if (x->type_ok && x->kernel_ok)
            b |= BIT_KERNEL;
        p->bits[v] = b;
    }
}

static void mark_read(td_amp_propagation *p, int node)
{
    const td_amp_node *n = &p->g->nodes[node];
    for (int v = n->first_vertex; v < n->first_vertex + n->n_vertices; v++)
        p->bits[v] |= BIT_READ;
}

/* Does the edge make its consumer a reader (by input port 0) that is not marked yet? */
static bool becomes_read(const td_amp_propagation *p, const td_amp_edge *e, uint32_t flag)
{
    return e->to_port == 0 && (p->g->nodes[p->g->vertices[e->to].node].flags & flag) &&
           !(p->bits[e->to] & BIT_READ);
}

/* Marks identities after reference variables, and enters after such identities and enters. */
static void mark_reads(td_amp_propagation *p)
{
    int n = 0;
    for (int i = 0; i < p->n_edges; i++) {
        const td_amp_edge *e = &p->edges[i];
        if ((p->g->nodes[p->g->vertices[e->from].node].flags & TD_AMP_IS_REF_VARIABLE) &&
            becomes_read(p, e, TD_AMP_IS_IDENTITY)) {
            mark_read(p, p->g->vertices[e->to].node);
            p->stack[n++] = e->to;
        }
    }
    while (n > 0) {
        int v = p->stack[--n];
        for (int i = p->out.start[v]; i < p->out.start[v + 1]; i++) {
            const td_amp_edge *e = &p->edges[p->out.order[i]];
            if (becomes_read(p, e, TD_AMP_IS_ENTER)) {
                mark_read(p, p->g->vertices[e->to].node);
                p->stack[n++] = e->to;
            }
        }
    }
}

bool td_amp_reads_variable(const td_amp_propagation *p, int node)
{
    const td_amp_node *n = &p->g->nodes[node];
    return n->n_vertices > 0 && (p->bits[n->first_vertex] & BIT_READ);
}

td_status td_amp_propagation_begin(td_amp_propagation *p)
{
    size_t n = (size_t)p->g->n_vertices + 1, n_edges = (size_t)p->g->n_edges;
    td_amp_propagate_result *r = p->r;
    p->bits = td_arena_alloc(&p->scratch, n, sizeof *p->bits);
    p->stack = td_arena_alloc(&p->scratch, n, sizeof *p->stack);
    p->edges = td_arena_alloc(&p->scratch, n_edges + 1, sizeof *p->edges);
    r->colour = td_arena_alloc(&r->memory, n, 1);
    r->is_half = td_arena_alloc(&r->memory, n, sizeof *r->is_half);
    r->step = td_arena_alloc(&r->memory, n, sizeof *r->step);
    r->source = td_arena_alloc(&r->memory, n, sizeof *r->source);
    if (!p->bits || !p->stack || !p->edges || !r->colour || !r->is_half || !r->step || !r->source)
        return TD_ENOMEM;
    memset(r->colour, '.', n - 1);
    for (size_t v = 0; v < n; v++)
        r->source[v] = -1;
    if (n_edges)
        memcpy(p->edges, p->g->edges, n_edges * sizeof *p->edges);
    p->n_edges = p->g->n_edges;
    TD_TRY(td_amp_propagation_sort(p));
    note_properties(p);
    mark_reads(p);
    return TD_OK;
}
