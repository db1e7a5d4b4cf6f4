/*
 * buckets.c -- splits each sum over ranks into its begin, as early as possible, and its end, as
 * late as possible
 *
 *     %g1 = conv2d_grad_w ...               %g1 = conv2d_grad_w ...
 *     %s1 = all_reduce %g1                  %t1 = all_reduce_begin %g1 {bucket=0}
 *     sgd %w1, %v1, %s1, ...        ->      %g2 = conv2d_grad_w ...
 *     %g2 = conv2d_grad_w ...               %t2 = all_reduce_begin %g2 {bucket=0, at=9408, is_last}
 *     %s2 = all_reduce %g2                  %s1 = all_reduce_end %g1, %t1 {bucket=0}
 *     sgd %w2, %v2, %s2, ...                sgd %w1, %v1, %s1, ...
 *                                           ...
 *
 * Nodes that need a sum, and nodes that must follow those, are emitted after all others, in their
 * old order: so buckets are sent during the backward pass, and the last ones while the first
 * weights are updated.  A bucket is full at 8 MiB.  A gradient's own memory is free after
 * all_reduce_begin.  Source: Li et al. 2020, PyTorch Distributed.
 */
#include "ops/ops.h"
#include "pass/pass.h"

enum { BUCKET_FLOATS = 2 << 20, LINE_FLOATS = 16 };

typedef struct {
    bool *is_late;            /* [nodes] emitted after all others */
    bool *comes_late;         /* [values] */
    bool *written, *read;     /* [values] parameters that late nodes write, read */
    td_all_reduce_attr *part; /* [nodes] attributes of all_reduce nodes */
    td_value **token;         /* [nodes] new values, for all_reduce nodes */
} buckets_state;

static bool reads_or_writes_late(const buckets_state *s, const td_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const td_value *v = n->in[i], *root = td_value_root(v);
        const bool writes = n->op->writes >> i & 1;
        if (td_is_shape_only(n, i))
            continue;
        if (s->comes_late[v->id] || s->written[root->id] || (writes && s->read[root->id]))
            return true;
    }
    return false;
}

static void make_late(buckets_state *s, const td_node *n)
{
    s->is_late[n->id] = true;
    for (int i = 0; i < n->n_out; i++)
        s->comes_late[n->out[i]->id] = true;
    for (int i = 0; i < n->n_in; i++) {
        const td_value *root = td_value_root(n->in[i]);
        if (td_is_shape_only(n, i))
            continue;
        s->read[root->id] = true;
        if (n->op->writes >> i & 1)
            s->written[root->id] = true;
    }
}

/* assigns each sum a bucket and offset; a sum that depends on another gets its own bucket */
static void assign(const td_graph *g, buckets_state *s)
{
    int bucket = 0;
    td_all_reduce_attr *last = NULL;
    int64_t at = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op != &td_op_all_reduce || s->is_late[i])
            continue;
        const int64_t floats = td_type_bytes(td_in_type(n, 0)) / (int64_t)sizeof(float);
        const bool always = ((const td_all_reduce_attr *)n->attr)->always;
        if (last && (at >= BUCKET_FLOATS || last->always != always)) {
            last->is_last = true;
            bucket++;
            at = 0;
        }
        s->part[i] = (td_all_reduce_attr){ .bucket = bucket, .at = at, .always = always };
        last = &s->part[i];
        at += (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    }
    if (last) {
        last->is_last = true;
        bucket++;
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == &td_op_all_reduce && s->is_late[i]) {
            const td_all_reduce_attr *a = g->nodes[i]->attr;
            s->part[i] = (td_all_reduce_attr){ bucket++, 0, true, a->always };
        }
}

static void emit_begin(td_rewriter *rw, buckets_state *s, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    td_rw_operands(rw, n, in);
    s->token[n->id] = td_emit_n(rw->b, &td_op_all_reduce_begin, &s->part[n->id], n->n_in, in, NULL);
    rw->n_changed++;
}

static void emit_end(td_rewriter *rw, buckets_state *s, const td_node *n)
{
    td_value *in[3] = { td_rw_get(rw, n->in[0]), s->token[n->id], NULL };
    if (n->n_in > 1)
        in[2] = td_rw_get(rw, n->in[1]);
    td_rw_set(
        rw, n->out[0],
        td_emit_n(rw->b, &td_op_all_reduce_end, &s->part[n->id], n->n_in > 1 ? 3 : 2, in, NULL));
}

/* an all_reduce is early if its operand is; its result is late */
static void find_late(const td_graph *g, buckets_state *s)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (reads_or_writes_late(s, n))
            make_late(s, n);
        else if (n->op == &td_op_all_reduce)
            s->comes_late[n->out[0]->id] = true;
    }
}

static void emit_all(td_rewriter *rw, buckets_state *s)
{
    const td_graph *g = rw->old;
    find_late(g, s);
    assign(g, s);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = g->nodes[i];
        if (s->is_late[i])
            continue;
        if (n->op == &td_op_all_reduce)
            emit_begin(rw, s, n);
        else
            td_rw_copy(rw, n);
    }
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = g->nodes[i];
        if (n->op == &td_op_all_reduce && s->is_late[i])
            emit_begin(rw, s, n);
        if (n->op == &td_op_all_reduce)
            emit_end(rw, s, n);
        else if (s->is_late[i])
            td_rw_copy(rw, n);
    }
}

static void buckets_run(td_rewriter *rw)
{
    const size_t n_nodes = (size_t)rw->old->n_nodes + 1, n_values = (size_t)rw->old->n_values + 1;
    buckets_state s = { .is_late = td_alloc(n_nodes, sizeof *s.is_late),
                        .comes_late = td_alloc(n_values, sizeof *s.comes_late),
                        .written = td_alloc(n_values, sizeof *s.written),
                        .read = td_alloc(n_values, sizeof *s.read),
                        .part = td_alloc(n_nodes, sizeof *s.part),
                        .token = td_alloc(n_nodes, sizeof *s.token) };
    if (s.is_late && s.comes_late && s.written && s.read && s.part && s.token)
        emit_all(rw, &s);
    else
        td_build_fail(rw->b, TD_ENOMEM);
    td_free(s.is_late);
    td_free(s.comes_late);
    td_free(s.written);
    td_free(s.read);
    td_free(s.part);
    td_free(s.token);
}

const td_pass td_pass_buckets = {
    .name = "buckets",
    .summary = "sums over ranks begin early and are awaited late",
    .counts = "sums",
    .is_required = true,
    .run = buckets_run,
};
