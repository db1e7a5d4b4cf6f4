/*
 * micro_batch.c -- how many images to compute at a time, and a program's runs on parts of a batch
 */
#include "runtime/micro_batch.h"

#include <string.h>

#include "ops/ops.h"
#include "runtime/program_parts.h"

enum {
    LANES_MAX = 8,   /* each takes some 40 ms to compile */
    LANE_ROWS = 4,   /* images of a thread, at least */
    LANE_WEIGHTS = 4 /* how often weights may be moved for what activations are */
};

/* --- the choice ------------------------------------------------------------------------------- */

static bool is_batched(const td_type *t, int64_t batch)
{
    return t->rank > 0 && t->dim[0] == batch;
}

/* do all inputs and outputs have `batch` rows? */
static bool is_divisible(const td_graph *g, int64_t batch)
{
    for (int i = 0; i < g->n_values; i++)
        if (td_value_is_input(g->values[i]) && !is_batched(&g->values[i]->type, batch))
            return false;
    for (int i = 0; i < g->n_outputs; i++)
        if (!is_batched(&g->outputs[i].value->type, batch))
            return false;
    return g->n_outputs > 0;
}

/* bytes of a whole batch */
typedef struct {
    int64_t weights;
    int64_t largest; /* of the operands and results of one convolution or matrix product */
    int64_t moved;   /* written by all of them, read by the next node, and as residuals */
} traffic;

static int64_t residual_bytes(const td_node *n)
{
    const td_type *y = &n->out[0]->type;
    return n->n_in > 3 && td_type_same_shape(td_in_type(n, 3), y) ? td_type_bytes(y) : 0;
}

static traffic traffic_of(const td_graph *g)
{
    traffic t = { 0 };
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op->is_leaf && td_value_is_param(n->out[0]))
            t.weights += td_type_bytes(&n->out[0]->type);
        if (!n->op->macs)
            continue;
        const int64_t result = td_type_bytes(&n->out[0]->type);
        const int64_t both = result + td_type_bytes(&n->in[0]->type);
        t.largest = both > t.largest ? both : t.largest;
        t.moved += 2 * result + residual_bytes(n);
    }
    return t;
}

int td_micro_batch(const td_graph *g, int batch, int share, int64_t cache_bytes, int least)
{
    const traffic t = traffic_of(g);
    if (!is_divisible(g, batch))
        return share;
    int n = share;
    while (n > 1 && (share % n != 0 || t.largest / batch * n > cache_bytes))
        n--;
    const int64_t saved = t.moved / batch;
    const bool fits = t.largest / batch * n <= cache_bytes; /* one image may be too much */
    return fits && n >= least && t.weights / n <= saved / 2 ? n : share;
}

/* is an even share of its own for each of the threads faster? */
static bool wants_lanes(const td_graph *g, int batch, int threads)
{
    const traffic t = traffic_of(g);
    return threads > 1 && threads <= LANES_MAX && batch % threads == 0 &&
           batch / threads >= LANE_ROWS && is_divisible(g, batch) &&
           t.weights * (threads - 1) <= t.moved / LANE_WEIGHTS;
}

td_batch_division td_micro_batch_of(const td_graph *g, int batch, const int64_t *cache_bytes,
                                    int n_caches, int threads)
{
    const bool has_lanes = wants_lanes(g, batch, threads);
    const int share = has_lanes ? batch / threads : batch;
    int n = share;
    for (int i = 0; i < n_caches && n == share; i++)
        n = td_micro_batch(g, batch, share, cache_bytes[i], has_lanes ? LANE_ROWS : threads);
    return (td_batch_division){ n, has_lanes ? threads : 1 };
}

/* --- runs ------------------------------------------------------------------------------------- */

/* those of one micro-batch */
static int64_t rows_of(const td_graph *g)
{
    return g->n_outputs && g->outputs[0].value->type.rank > 0 ? g->outputs[0].value->type.dim[0]
                                                              : 0;
}

td_status td_program_allocate_rows(td_program *p)
{
    const int64_t rows = rows_of(p->graph);
    if (rows == 0 || !is_divisible(p->graph, rows))
        return td_error(TD_EARG, "an input or an output has no rows for micro-batches");
    TD_TRY(TD_ALLOC(p->bound, (size_t)p->graph->n_values + 1));
    return td_program_allocate_outputs(p);
}

/* an input that was never bound stays without an address, which the run reports */
void td_program_take_rows(const td_program *p, td_program *by, int k)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_values; i++) {
        const td_value *v = g->values[i];
        if (!td_value_is_input(v) || !p->bound[i])
            continue;
        const char *rows = (const char *)p->bound[i] + k * td_type_bytes(&v->type);
        memcpy(&by->address[i], &rows, sizeof rows);
    }
}

void td_program_keep_rows(const td_program *p, const td_program *by, int k)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *v = g->outputs[i].value;
        const size_t bytes = (size_t)td_type_bytes(&v->type);
        if (p->copied[v->id])
            memcpy((char *)p->copied[v->id] + (size_t)k * bytes, by->address[v->id], bytes);
    }
}
