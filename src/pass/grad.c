/*
 * grad.c -- reverse-mode differentiation: replaces gradient(loss, w) by nodes
 *
 * The old graph is copied node by node.  At the first gradient node of a loss, all gradients of
 * that loss are computed at once:
 *
 *     needed   values that depend on a wanted parameter           (forward over the nodes)
 *     reached  values the loss depends on                          (backward)
 *     walk the nodes backwards from the loss; if a node's results have gradients and one of its
 *     operands is needed, its op emits the operands' gradients, which are summed
 *
 * The sum of the gradients of slices that make up a tensor is their concatenation:
 *
 *     slice_grad(a) + slice_grad(b) + ...     ->     concat(a, b, ...)
 *
 * It requires a decomposed graph.  Source: Griewank and Walther 2008, chapter 3.
 */
#include "pass/pass.h"

#include <string.h>

#include "ops/ops.h"

typedef struct {
    bool *needed;      /* [old values] depends on a wanted parameter */
    td_value **grad;   /* [old values] d loss / d value so far, in the new graph */
    td_value **result; /* [old nodes] a gradient node's value, after its loss was differentiated */
    bool *is_done;     /* [old values] losses that were differentiated */
} grad_state;

static bool is_gradient(const td_node *n)
{
    return n->op == &td_op_gradient;
}

static void mark_needed(const td_graph *g, const td_value *loss, bool *needed)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (is_gradient(g->nodes[i]) && g->nodes[i]->in[0] == loss)
            needed[g->nodes[i]->in[1]->id] = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->n_in; k++)
            any = any || (needed[n->in[k]->id] && !td_is_shape_only(n, k));
        for (int k = 0; any && k < n->n_out; k++)
            needed[n->out[k]->id] = true;
    }
}

static void accumulate(td_rewriter *rw, const td_value *v, td_value *g)
{
    td_value **sum = &((grad_state *)rw->state)->grad[v->id];
    *sum = *sum ? td_emit(rw->b, &td_op_add, NULL, *sum, g) : g;
}

/* --- sums of gradients of slices -------------------------------------------------------------- */

typedef struct {
    td_value *part[TD_IN_MAX]; /* by their places */
    int64_t start[TD_IN_MAX];
    int n, axis;
} slices;

/* one more part, in its place; false: no gradient of a slice like the others, or too many */
static bool insert_slice(slices *s, const td_value *v)
{
    const td_node *n = v->producer;
    const td_slice_attr *a = n->attr;
    if (n->op != &td_op_slice_grad || a->step != 1 || s->n == TD_IN_MAX ||
        (s->n && a->axis != s->axis))
        return false;
    int at = s->n++;
    for (; at && s->start[at - 1] > a->start; at--) {
        s->start[at] = s->start[at - 1];
        s->part[at] = s->part[at - 1];
    }
    s->start[at] = a->start;
    s->part[at] = n->in[0];
    s->axis = a->axis;
    return true;
}

/* do the parts make up the whole of v? */
static bool is_whole(const slices *s, const td_value *v)
{
    int64_t end = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->start[i] != end)
            return false;
        end += s->part[i]->type.dim[s->axis];
    }
    return end == v->type.dim[s->axis];
}

/* `sum`, as accumulate makes it, or the concatenation that equals it */
static td_value *joined(td_rewriter *rw, td_value *sum)
{
    slices s = { 0 };
    const td_value *v = sum;
    if (!sum)
        return NULL;
    for (; v->producer->op == &td_op_add; v = v->producer->in[0])
        if (!insert_slice(&s, v->producer->in[1]))
            return sum;
    if (!s.n || !insert_slice(&s, v) || !is_whole(&s, sum))
        return sum;
    const td_concat_attr attr = { .axis = s.axis };
    return td_emit_n(rw->b, &td_op_concat, &attr, s.n, s.part, NULL);
}

/* --- the walk --------------------------------------------------------------------------------- */

/* a node with the new graph's operands and results, which the op's gradient hook reads */
static const td_node *copy_of(const td_rewriter *rw, const td_node *n)
{
    return td_rw_get(rw, n->out[0])->producer;
}

static void backward(td_rewriter *rw, const td_node *n)
{
    grad_state *s = rw->state;
    td_value *dy[TD_OUT_MAX] = { 0 }, *dx[TD_IN_MAX] = { 0 };
    bool has_dy = false, wants_dx = false;

    for (int i = 0; i < n->n_out; i++) {
        dy[i] = joined(rw, s->grad[n->out[i]->id]);
        has_dy = has_dy || dy[i];
    }
    for (int i = 0; i < n->n_in; i++)
        wants_dx = wants_dx || (s->needed[n->in[i]->id] && !td_is_shape_only(n, i));
    if (!has_dy || !wants_dx || n->op->is_leaf)
        return;
    if (!n->op->grad) {
        td_build_fail(rw->b, td_error(TD_EUNSUPPORTED, "%s has no gradient", n->op->name));
        return;
    }
    n->op->grad(rw->b, copy_of(rw, n), dy, dx);
    for (int i = 0; i < n->n_in; i++)
        if (dx[i] && s->needed[n->in[i]->id])
            accumulate(rw, n->in[i], dx[i]);
}

static td_value *seed_of(td_rewriter *rw, const td_value *loss)
{
    td_constant_attr one = { .value = 1, .type = td_build_type_text(rw->b, &loss->type) };
    return td_emit_n(rw->b, &td_op_constant, &one, 0, NULL, NULL);
}

static void differentiate(td_rewriter *rw, const td_value *loss)
{
    grad_state *s = rw->state;
    memset(s->needed, 0, (size_t)rw->old->n_values * sizeof *s->needed);
    memset(s->grad, 0, (size_t)rw->old->n_values * sizeof *s->grad);
    mark_needed(rw->old, loss, s->needed);
    s->grad[loss->id] = seed_of(rw, loss);
    for (int i = loss->producer->id; i >= 0 && td_build_ok(rw->b); i--)
        backward(rw, rw->old->nodes[i]);
    for (int i = 0; i < rw->old->n_nodes; i++)
        if (is_gradient(rw->old->nodes[i]) && rw->old->nodes[i]->in[0] == loss)
            s->result[i] = joined(rw, s->grad[rw->old->nodes[i]->in[1]->id]);
    s->is_done[loss->id] = true;
}

static void resolve(td_rewriter *rw, const td_node *n)
{
    grad_state *s = rw->state;
    const td_value *loss = n->in[0], *w = n->in[1];
    if (!s->is_done[loss->id])
        differentiate(rw, loss);
    td_value *g = s->result[n->id];
    if (!g && td_build_ok(rw->b))
        td_build_fail(rw->b, td_error(TD_EARG, "gradient: '%%%s' does not depend on '%%%s'",
                                      loss->name, w->name));
    if (g)
        td_rw_set(rw, n->out[0], g);
    rw->n_changed++;
}

static void grad_node(td_rewriter *rw, const td_node *n, td_value **in)
{
    if (is_gradient(n))
        resolve(rw, n);
    else
        td_rw_copy_with(rw, n, in);
}

static td_status grad_begin(td_rewriter *rw)
{
    size_t n = (size_t)rw->old->n_values + 1;
    grad_state *s = TD_NEW(grad_state);
    rw->state = s;
    if (!s)
        return TD_ENOMEM;
    s->needed = td_alloc(n, sizeof *s->needed);
    s->grad = td_alloc(n, sizeof *s->grad);
    s->result = td_alloc((size_t)rw->old->n_nodes + 1, sizeof *s->result);
    s->is_done = td_alloc(n, sizeof *s->is_done);
    return s->needed && s->grad && s->result && s->is_done ? TD_OK : TD_ENOMEM;
}

static void grad_end(td_rewriter *rw)
{
    grad_state *s = rw->state;
    if (!s)
        return;
    td_free(s->needed);
    td_free(s->grad);
    td_free(s->result);
    td_free(s->is_done);
    td_free(s);
}

const td_pass td_pass_grad = {
    .name = "grad",
    .summary = "work out gradients",
    .counts = "gradients",
    .is_required = true,
    .node = grad_node,
    .begin = grad_begin,
    .end = grad_end,
};
