/*
 * from_graph.c -- copies a forward graph for another batch, dtype or mode
 *
 * Nodes are copied in order.  Four things change:
 *
 *   batch norm    batch_norm_infer <-> batch_norm + batch_norm_update, depending on the mode
 *   dropout       with random numbers in training only
 *   the batch     a reshape with fixed dimensions gets the new batch where it had the old one, and
 *                 what does not depend on the images is repeated to be concatenated with what does
 *   the dtype     parameters take the images' float type, so that a float32 text runs in float64
 *
 * The running statistics of a batch norm get role=stat, whatever role the text gives them: every
 * training step writes them, and they have no gradient.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "model/dropout_source.h"
#include "ops/ops.h"
#include "tandem/model.h"

#define NORM_MOMENTUM 0.1 /* batch_norm_infer has no momentum */

typedef struct {
    const td_graph *old;
    td_builder *b;
    td_value **map;            /* [old->n_values] */
    bool *is_statistic;        /* [old->n_values] */
    const td_node **update_of; /* [old->n_values] NULL: no such node */
    td_value *images;
    int64_t old_batch;
    bool is_training;
    td_dropout_source dropout;
} copier;

static bool is_op(const td_node *n, const td_op *op)
{
    return n->op == op;
}

/* the random numbers of a training graph */
static bool is_random(const td_value *v)
{
    return td_value_is_input(v) && strcmp(v->name, TD_INPUT_RANDOM) == 0;
}

/*
 * Find the running statistics of all batch norms, and for the batch mean of each batch_norm the
 * node that updates its running statistics: one pass over the graph.
 */
static void index_norms(copier *c)
{
    for (int i = 0; i < c->old->n_nodes; i++) {
        const td_node *n = c->old->nodes[i];
        const bool is_update = is_op(n, &td_op_batch_norm_update);
        const int first = is_op(n, &td_op_batch_norm_infer) ? 3 : is_update ? 0 : -1;
        if (first < 0)
            continue;
        c->is_statistic[n->in[first]->id] = true;
        c->is_statistic[n->in[first + 1]->id] = true;
        if (is_update && !c->update_of[n->in[2]->id])
            c->update_of[n->in[2]->id] = n;
    }
}

static td_value *mapped(const copier *c, const td_node *n, int i)
{
    return c->map[n->in[i]->id];
}

static void copy_leaf(copier *c, const td_node *n)
{
    const td_value *v = n->out[0];
    if (is_op(n, &td_op_input)) { /* the images; a training graph's random numbers are not copied */
        c->map[v->id] = is_random(v) ? NULL : c->images;
        return;
    }
    td_param_attr attr = *(const td_param_attr *)n->attr;
    td_type type = v->type;
    if (c->is_statistic[v->id])
        attr.role = TD_ROLE_STAT;
    if (td_dtype_is_half(type.dtype))
        td_build_fail(
            c->b, td_error(TD_ESHAPE,
                           "parameter '%s' is %s, wanted f32: use --precision for mixed precision",
                           v->name, td_dtype_name(type.dtype)));
    if (td_dtype_is_float(type.dtype))
        type.dtype = c->images->type.dtype;
    c->map[v->id] = td_emit_leaf(c->b, n->op, &attr, v->name, &type);
}

static void emit_norm_train(copier *c, const td_node *n, double momentum, td_value *const *in)
{
    td_value *out[3];
    const td_type *x = &in[0]->type;
    td_norm_attr attr = *(const td_norm_attr *)n->attr;
    attr.momentum = momentum;
    attr.count = x->rank == 4 ? x->dim[0] * x->dim[2] * x->dim[3] : 1;
    td_emit_n(c->b, &td_op_batch_norm, &attr, 3, in, out);
    td_emit(c->b, &td_op_batch_norm_update, &attr, in[3], in[4], out[1], out[2]);
    for (int i = 0; i < n->n_out; i++)
        c->map[n->out[i]->id] = out[i];
}

static void copy_norm(copier *c, const td_node *n)
{
    bool was_training = is_op(n, &td_op_batch_norm);
    const td_node *update = was_training ? c->update_of[n->out[1]->id] : NULL;
    if (was_training && !update) {
        td_build_fail(c->b, td_error(TD_ESHAPE,
                                     "'%%%s' has no running statistics: use batch_norm_infer, or "
                                     "add a batch_norm_update for it",
                                     n->out[0]->name));
        return;
    }
    td_value *in[5] = { mapped(c, n, 0), mapped(c, n, 1), mapped(c, n, 2),
                        was_training ? mapped(c, update, 0) : mapped(c, n, 3),
                        was_training ? mapped(c, update, 1) : mapped(c, n, 4) };
    double momentum = update ? ((const td_norm_attr *)update->attr)->momentum : NORM_MOMENTUM;
    if (c->is_training)
        emit_norm_train(c, n, momentum, in);
    else
        c->map[n->out[0]->id] = td_emit_n(c->b, &td_op_batch_norm_infer, n->attr, 5, in, NULL);
}

/* the first dimension in which two types of one rank differ, or -1 */
static int changed_dim(const td_type *a, const td_type *b)
{
    for (int d = 0; d < a->rank && a->rank == b->rank; d++)
        if (a->dim[d] != b->dim[d])
            return d;
    return -1;
}

/* elements from one index of dimension d to the next */
static int64_t step_of(const td_type *t, int d)
{
    int64_t step = 1;
    for (int k = d + 1; k < t->rank; k++)
        step *= t->dim[k];
    return step;
}

/*
 * The dimension of y that contains the batch, if x, a reshape's operand, has it in dimension d: one
 * that was the old batch and lies within x's, otherwise one that contains it.  A batch of 1 may be
 * part of either neighbor: of the next one if that was split, [197, N, 768] -> [197, N 12, 64],
 * otherwise of the one before, [197, N, 12, 64] -> [197 N, 768].  -1: none.
 */
static int batch_dim(const td_type *x, int d, const td_type *y, int64_t batch)
{
    const int64_t inner = step_of(x, d), outer = inner * x->dim[d];
    int before = -1, after = -1;
    for (int e = 0; e < y->rank; e++) {
        const int64_t from = step_of(y, e), to = from * y->dim[e];
        if (y->dim[e] == batch && from >= inner && to <= outer)
            return e;
        if (from <= inner && to >= outer && to > from)
            before = before < 0 ? e : before;
        if (to == inner && x->dim[d] == 1)
            after = e;
    }
    const bool is_split = after >= 0 && y->rank - after > x->rank - 1 - d;
    return is_split || before < 0 ? after : before;
}

static void copy_reshape(copier *c, const td_node *n)
{
    td_value *x = mapped(c, n, 0);
    const td_type *old = td_in_type(n, 0);
    td_type y = n->out[0]->type;
    const char *shape = ((const td_reshape_attr *)n->attr)->shape;
    const int d = changed_dim(old, &x->type);
    const int e = d < 0 ? -1 : batch_dim(old, d, &y, c->old_batch);
    if (shape && strchr(shape, '-')) {
        c->map[n->out[0]->id] = td_emit(c->b, &td_op_reshape, n->attr, x);
        return;
    }
    if (e >= 0)
        y.dim[e] = y.dim[e] / c->old_batch * c->images->type.dim[0];
    c->map[n->out[0]->id] = td_reshape(c->b, x, y.rank, y.dim);
}

/* repeats v, of which dimension d is 1, along it */
static td_value *repeated(copier *c, td_value *v, int d, int64_t to)
{
    td_text text = { 0 };
    for (int k = 0; k < v->type.rank; k++)
        td_text_add(&text, k ? ":%lld" : "shape=%lld", (long long)(k == d ? to : v->type.dim[k]));
    if (td_text_status(&text) == TD_OK)
        v = td_emit(c->b, &td_op_broadcast_to,
                    td_build_attr(c->b, &td_op_broadcast_to, td_text_get(&text)), v);
    else
        td_build_fail(c->b, td_text_status(&text));
    td_text_release(&text);
    return v;
}

static void copy_concat(copier *c, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    int d = -1;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = mapped(c, n, i);
        d = d < 0 ? changed_dim(td_in_type(n, i), &in[i]->type) : d;
    }
    for (int i = 0; i < n->n_in && d >= 0; i++)
        if (in[i]->type.dim[d] == 1 && td_in_type(n, i)->dim[d] == 1 &&
            d != ((const td_concat_attr *)n->attr)->axis && td_build_ok(c->b))
            in[i] = repeated(c, in[i], d, c->images->type.dim[0]);
    c->map[n->out[0]->id] = td_emit_n(c->b, n->op, n->attr, n->n_in, in, NULL);
}

static void copy_dropout(copier *c, const td_node *n)
{
    const td_dropout_attr *a = n->attr;
    c->map[n->out[0]->id] = td_dropout_emit(c->b, &c->dropout, mapped(c, n, 0), a->p,
                                            (td_dropout_mode)a->mode, c->is_training);
}

static void copy_other(copier *c, const td_node *n)
{
    td_value *in[TD_IN_MAX], *out[TD_OUT_MAX] = { 0 };
    for (int i = 0; i < n->n_in; i++)
        in[i] = mapped(c, n, i);
    td_emit_n(c->b, n->op, n->attr, n->n_in, in, out);
    for (int i = 0; i < n->n_out; i++)
        c->map[n->out[i]->id] = out[i];
}

static void copy_node(copier *c, const td_node *n)
{
    if (is_op(n, &td_op_input) || is_op(n, &td_op_param))
        copy_leaf(c, n);
    else if (is_op(n, &td_op_batch_norm_infer) || is_op(n, &td_op_batch_norm))
        copy_norm(c, n);
    else if (is_op(n, &td_op_reshape))
        copy_reshape(c, n);
    else if (is_op(n, &td_op_concat))
        copy_concat(c, n);
    else if (is_op(n, &td_op_dropout))
        copy_dropout(c, n);
    else if (!is_op(n, &td_op_batch_norm_update)) /* it was copied with its batch_norm */
        copy_other(c, n);
}

/* checks for one input `images` [N, C, H, W], an output `logits` [N, K], no training ops */
static td_status check_forward(const td_graph *g, td_value **images, td_value **logits)
{
    *images = td_graph_find(g, "images");
    *logits = td_graph_output_value(g, "logits");
    if (!*images || !td_value_is_input(*images) || (*images)->type.rank != 4)
        return td_error(TD_ESHAPE, "the graph has no input '%%images' of four dimensions");
    if (!*logits || (*logits)->type.rank != 2 || (*logits)->type.dim[0] != (*images)->type.dim[0])
        return td_error(TD_ESHAPE, "the graph has no output 'logits' with one row per image");
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            if (is_random(n->in[k]) && !(is_op(n, &td_op_dropout) && k == 1))
                return td_error(TD_ESHAPE, "%s reads the input '%%%s', which only dropout may read",
                                n->op->name, TD_INPUT_RANDOM);
        if (is_op(n, &td_op_input) && n->out[0] != *images && !is_random(n->out[0]))
            return td_error(TD_ESHAPE, "the graph has an input '%%%s', wanted 'images' only",
                            n->out[0]->name);
        if (td_node_has_effect(n) && !is_op(n, &td_op_batch_norm_update))
            return td_error(TD_ESHAPE, "the graph updates '%%%s', wanted a forward graph only",
                            n->in[0]->name);
    }
    return TD_OK;
}

static bool alloc_copier(copier *c)
{
    const size_t n = (size_t)c->old->n_values + 1;
    c->map = td_alloc(n, sizeof *c->map);
    c->is_statistic = td_alloc(n, sizeof *c->is_statistic);
    c->update_of = td_alloc(n, sizeof *c->update_of);
    return c->map && c->is_statistic && c->update_of;
}

td_value *td_model_from_graph(td_builder *b, const td_graph *g, td_value *images, bool is_training)
{
    td_value *old_images, *old_logits, *logits = images;
    td_status st = check_forward(g, &old_images, &old_logits);
    if (st != TD_OK) {
        td_build_fail(b, st);
        return images;
    }
    copier c = { .old = g, .b = b, .images = images, .is_training = is_training };
    c.old_batch = old_images->type.dim[0];
    if (!alloc_copier(&c))
        td_build_fail(b, TD_ENOMEM);
    else
        index_norms(&c);
    for (int i = 0; i < g->n_nodes && td_build_ok(b); i++)
        copy_node(&c, g->nodes[i]);
    if (td_build_ok(b))
        logits = c.map[old_logits->id];
    td_free(c.map);
    td_free(c.is_statistic);
    td_free((void *)c.update_of);
    return logits;
}
