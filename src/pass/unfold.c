/*
 * unfold.c -- inference: keeps one transformed filter for convolutions whose norms differ
 *
 *     conv2d_winograd(x, winograd_filter(mul(w, s)), bias) {pad, relu}
 *         conv2d_winograd_scaled(x, winograd_filter(w), s, bias) {pad, relu}
 *
 * A detector's heads have one filter w for images of several sizes and a norm for each of them.
 * Folding the norms makes a filter for each size, and transformed filters are four times as large:
 * those of SSD320 took 302 MB, and 75 MB kept once.  The scale costs nothing where the results are
 * written.  It applies if other nodes read w; the results are rounded differently.
 */
#include "ir/match.h"
#include "ops/ops.h"
#include "pass/pass.h"

static bool is_read_by_others(const td_uses *u, const td_value *v)
{
    int n;
    (void)td_uses_of(u, v, &n);
    return n > 1;
}

/* is it one number for each filter of w, a vector in another shape? */
static bool is_scale(const td_value *s, const td_type *w)
{
    const td_node *reshape = s->producer;
    return reshape->op->is_alias && td_in_type(reshape, 0)->rank == 1 && s->type.rank == 4 &&
           s->type.dim[0] == w->dim[0] && td_type_count(&s->type) == w->dim[0];
}

/* the product that a transformed filter is made from, if `conv` can be scaled instead; or NULL */
static const td_node *product_of(const td_uses *u, const td_node *conv)
{
    if (conv->op != &td_op_conv2d_winograd || conv->n_in != 3)
        return NULL;
    const td_node *filter = conv->in[1]->producer;
    if (filter->op != &td_op_winograd_filter || filter->in[0]->producer->op != &td_op_mul)
        return NULL;
    const td_node *mul = filter->in[0]->producer;
    const td_type *w = td_in_type(mul, 0);
    return td_type_same_shape(w, &mul->out[0]->type) && is_scale(mul->in[1], w) &&
                   is_read_by_others(u, mul->in[0])
               ? mul
               : NULL;
}

static void unfold(td_rewriter *rw, const td_node *conv, const td_node *mul, td_value **in)
{
    const td_node *filter = conv->in[1]->producer;
    td_value *w = td_rw_get(rw, mul->in[0]);
    td_value *s = td_rw_get(rw, mul->in[1]->producer->in[0]);
    td_value *u = td_emit(rw->b, &td_op_winograd_filter, filter->attr, w);
    td_rw_set(rw, conv->out[0],
              td_emit(rw->b, &td_op_conv2d_winograd_scaled, conv->attr, in[0], u, s, in[2]));
    rw->n_changed++;
}

static void unfold_run(td_rewriter *rw)
{
    td_uses u;
    td_value *in[TD_IN_MAX];
    td_status st = td_uses_init(&u, rw->old);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i], *mul = product_of(&u, n);
        td_rw_operands(rw, n, in);
        if (mul)
            unfold(rw, n, mul, in);
        else
            td_rw_copy_with(rw, n, in);
    }
    td_uses_release(&u);
}

const td_pass td_pass_unfold = {
    .name = "unfold",
    .summary = "keep one transformed filter where several norms scale it",
    .counts = "convolutions scaled",
    .run = unfold_run,
};
