/*
 * clean.c -- removes duplicate nodes and nodes without effect
 *
 *     same op, operands and attributes (no effect, no leaf)   ->  the first node's results
 *     reorder(reorder(x))                                     ->  reorder(x)
 *     reorder(cast(x)), both floats                           ->  reorder {dtype} of x; casts that
 *                                                                 only widen x are dropped too
 *     a shape taken from cast(x) or reorder(x)                ->  from x
 *     reorder to the layout it has, scale by 1,
 *     broadcast_like to the shape it has, by 1                ->  x
 */
#include <string.h>

#include "ir/match.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct entry entry;
struct entry {
    entry *next;
    const td_node *node; /* in the new graph */
};

#define N_BUCKETS 4096 /* a training graph of ResNet-152 has 2000 nodes */

typedef struct {
    entry *buckets[N_BUCKETS];
    bool *is_written; /* [old values] parameters that the graph overwrites */
    td_arena arena;
} clean_state;

static size_t bucket_of(const td_op *op, int n_in, td_value *const *in)
{
    uint64_t h = (uint64_t)(uintptr_t)op;
    for (int i = 0; i < n_in; i++)
        h = (h ^ (uint64_t)in[i]->id) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 40) % N_BUCKETS;
}

static bool same_call(const td_node *m, const td_node *n, const void *attr, td_value *const *in)
{
    if (m->op != n->op || m->n_in != n->n_in ||
        memcmp(m->in, in, (size_t)n->n_in * sizeof *in) != 0)
        return false;
    for (int i = 0; i < n->n_out; i++)
        if (!td_type_equal(&m->out[i]->type, &n->out[i]->type))
            return false;
    return !n->op->fields || td_fields_equal(n->op->fields, m->attr, attr);
}

/* the operand that a no-op node equals, or NULL */
static td_value *identity(const td_node *n, td_value *const *in)
{
    if (n->op == &td_op_reorder && in[0]->type.dtype == n->out[0]->type.dtype &&
        strcmp(in[0]->type.layout, n->out[0]->type.layout) == 0)
        return in[0];
    if (n->op == &td_op_scale && ((const td_scale_attr *)n->attr)->by == 1)
        return in[0];
    if (n->op == &td_op_broadcast_like && ((const td_scale_attr *)n->attr)->by == 1 &&
        td_type_same_shape(&in[0]->type, &n->out[0]->type))
        return in[0];
    return NULL;
}

static void remember(td_rewriter *rw, const td_node *n, size_t bucket)
{
    clean_state *s = rw->state;
    entry *e = td_build_ok(rw->b) ? td_arena_alloc(&s->arena, 1, sizeof *e) : NULL;
    if (!e) {
        td_build_fail(rw->b, TD_ENOMEM);
        return;
    }
    e->node = td_rw_get(rw, n->out[0])->producer;
    e->next = s->buckets[bucket];
    s->buckets[bucket] = e;
}

/* an op that moves or converts its operand, or may be a no-op */
static bool is_copy(const td_op *op)
{
    return op == &td_op_reorder || op == &td_op_cast || op == &td_op_scale ||
           op == &td_op_broadcast_like || op->is_alias;
}

/* a copy of a parameter may be read after the parameter is overwritten; do not remove it */
static bool is_copy_of_written(const td_rewriter *rw, const td_node *n)
{
    const clean_state *s = rw->state;
    const td_value *x = n->in[0];
    while (is_copy(x->producer->op))
        x = x->producer->in[0];
    return s->is_written[x->id];
}

static bool is_plain_reorder(const td_node *n)
{
    return n->op == &td_op_reorder && td_in_type(n, 0)->dtype == n->out[0]->type.dtype;
}

/* a lossless cast between float types */
static bool is_widening(const td_node *n)
{
    return n->op == &td_op_cast && td_dtype_is_float(td_in_type(n, 0)->dtype) &&
           td_dtype_bytes(td_in_type(n, 0)->dtype) < td_dtype_bytes(n->out[0]->type.dtype);
}

/* can dtype `to` be computed from the operand of `p`, x's producer, instead of from x? */
static bool is_skipped(const td_node *p, const td_value *x, td_dtype to)
{
    bool is_float_cast = p->op == &td_op_cast && td_dtype_is_float(td_in_type(p, 0)->dtype);
    return is_plain_reorder(p) || is_widening(p) || (is_float_cast && x->type.dtype == to);
}

/* is the operand of the cast that n reads not overwritten before n? */
static bool is_cast_of_unchanged(const td_rewriter *rw, const td_node *n)
{
    const td_node *cast = n->in[0]->producer;
    return cast->op == &td_op_cast && !td_overwritten_between(rw->old, cast->id, n->id, cast);
}

/* can a chain of casts and reorders be merged into one reorder?  Gives its operand and attribute */
static bool merge_reorders(const td_rewriter *rw, const td_node *n, td_value **in,
                           td_reorder_attr *attr)
{
    if (n->op != &td_op_reorder)
        return false;
    td_dtype to = n->out[0]->type.dtype;
    td_value *x = in[0];
    bool may = !is_copy_of_written(rw, n);
    if (may)
        while (is_skipped(x->producer, x, to))
            x = x->producer->in[0];
    else if (x->producer->op == &td_op_cast && is_skipped(x->producer, x, to) &&
             is_cast_of_unchanged(rw, n))
        x = x->producer->in[0];
    if (x == in[0])
        return false;
    *attr = td_reorder_attr_of(((const td_reorder_attr *)n->attr)->layout, to);
    if (x->type.dtype == to)
        attr->dtype = 0;
    in[0] = x;
    return true;
}

/* a shape-only operand should not keep a copy alive: replaces it by the original */
static void shapes_of_originals(const td_node *n, td_value **in)
{
    for (int i = 0; i < n->n_in; i++)
        while (td_is_shape_only(n, i) &&
               (in[i]->producer->op == &td_op_cast || in[i]->producer->op == &td_op_reorder))
            in[i] = in[i]->producer->in[0];
}

static void emit_cleaned(td_rewriter *rw, const td_node *n, const void *attr, td_value **in)
{
    if (attr == n->attr) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    td_value *y = td_emit(rw->b, n->op, attr, in[0]);
    td_build_set_layout(rw->b, y, n->out[0]->type.layout);
    td_rw_set(rw, n->out[0], y);
    rw->n_changed++;
}

static void clean_node(td_rewriter *rw, const td_node *n, td_value **in)
{
    clean_state *s = rw->state;
    td_reorder_attr converting;
    const void *attr = n->attr;
    if (!td_build_ok(rw->b))
        return;
    shapes_of_originals(n, in);
    bool may_look_through = n->n_in && n->n_out && !is_copy_of_written(rw, n);
    if (merge_reorders(rw, n, in, &converting))
        attr = &converting;
    td_value *same = may_look_through ? identity(n, in) : NULL;
    if (same) {
        td_rw_set(rw, n->out[0], same);
        rw->n_changed++;
        return;
    }
    if (n->op->is_leaf || td_node_has_effect(n) || n->n_out == 0) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    size_t bucket = bucket_of(n->op, n->n_in, in);
    for (const entry *e = s->buckets[bucket]; e; e = e->next)
        if (same_call(e->node, n, attr, in)) {
            for (int i = 0; i < n->n_out; i++)
                td_rw_set(rw, n->out[i], e->node->out[i]);
            rw->n_changed++;
            return;
        }
    emit_cleaned(rw, n, attr, in);
    remember(rw, n, bucket);
}

static td_status clean_begin(td_rewriter *rw)
{
    clean_state *s = TD_NEW(clean_state);
    rw->state = s;
    if (!s)
        return TD_ENOMEM;
    TD_TRY(TD_ALLOC(s->is_written, (size_t)rw->old->n_values + 1));
    for (int i = 0; i < rw->old->n_nodes; i++)
        for (int k = 0; k < rw->old->nodes[i]->n_in; k++)
            if (rw->old->nodes[i]->op->writes >> k & 1)
                s->is_written[rw->old->nodes[i]->in[k]->id] = true;
    return TD_OK;
}

static void clean_end(td_rewriter *rw)
{
    clean_state *s = rw->state;
    if (!s)
        return;
    td_arena_release(&s->arena);
    td_free(s->is_written);
    td_free(s);
}

const td_pass td_pass_clean = {
    .name = "clean",
    .summary = "remove duplicates and no-ops",
    .counts = "nodes removed",
    .node = clean_node,
    .begin = clean_begin,
    .end = clean_end,
};
