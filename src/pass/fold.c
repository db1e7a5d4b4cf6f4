/*
 * fold.c -- inference: folds batch norm or a bias into the preceding convolution
 *
 *     batch_norm_infer(conv2d(x, w), gamma, beta, mean, var)
 *         s = gamma / sqrt(var + eps)
 *         conv2d_fused(x, w * s[K,1,1,1], beta - mean * s)
 *
 *     bias_add(conv2d(x, w), b)
 *         conv2d_fused(x, w, b)
 *
 * The scaled filters depend on parameters only, so the program computes them once after parameters
 * change, not in every run.  Source: Jacob et al. 2018, section 3.2.
 */
#include "ir/match.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"

static bool folds(const td_graph *g, const td_uses *u, const td_node *n)
{
    if (n->op != &td_op_batch_norm_infer)
        return false;
    const td_node *conv = n->in[0]->producer;
    return conv->op == &td_op_conv2d && td_uses_only(u, n->in[0]) == n &&
           td_in_type(n, 1)->dtype == td_in_type(n, 0)->dtype &&
           !td_overwritten_between(g, conv->id, n->id, conv);
}

static void fold_norm(td_rewriter *rw, const td_node *norm, td_value **in)
{
    const td_node *conv = norm->in[0]->producer;
    const td_conv_attr *c = conv->attr;
    const td_norm_attr *a = norm->attr;
    td_builder *b = rw->b;
    td_value *x = td_rw_get(rw, conv->in[0]), *w = td_rw_get(rw, conv->in[1]);
    td_value *gamma = in[1], *beta = in[2], *mean = in[3], *var = in[4];
    td_scale_attr minus = { -1 };

    td_value *s = td_emit(b, &td_op_batch_norm_scale, a, gamma, var);
    int64_t filters[4] = { td_in_type(conv, 1)->dim[0], 1, 1, 1 };
    td_value *scaled = td_emit(b, &td_op_mul, NULL, w, td_reshape(b, s, 4, filters));
    td_value *shift = td_emit(b, &td_op_scale, &minus, td_emit(b, &td_op_mul, NULL, mean, s));
    td_value *bias = td_emit(b, &td_op_add, NULL, beta, shift);
    td_rw_set(rw, norm->out[0], td_emit(b, &td_op_conv2d_fused, c, x, scaled, bias));
    rw->n_changed++;
}

/* in training gradients read the convolution as it is; there no parameter is fixed */
static bool folds_bias(const bool *is_fixed, const td_uses *u, const td_node *n)
{
    if (n->op != &td_op_bias_add || !is_fixed[n->in[1]->producer->id])
        return false;
    const td_node *conv = n->in[0]->producer;
    return conv->op == &td_op_conv2d && td_uses_only(u, n->in[0]) == n &&
           td_in_type(n, 1)->dtype == td_in_type(conv, 1)->dtype;
}

static void fold_bias(td_rewriter *rw, const td_node *n, td_value **in)
{
    const td_node *conv = n->in[0]->producer;
    td_rw_set(rw, n->out[0],
              td_emit(rw->b, &td_op_conv2d_fused, conv->attr, td_rw_get(rw, conv->in[0]),
                      td_rw_get(rw, conv->in[1]), in[1]));
    rw->n_changed++;
}

static void fold_run(td_rewriter *rw)
{
    td_uses u;
    td_value *in[TD_IN_MAX];
    bool *is_fixed = NULL;
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK)
        st = TD_ALLOC(is_fixed, (size_t)rw->old->n_nodes + 1);
    if (st == TD_OK)
        td_plan_mark_fixed(rw->old, is_fixed);
    else
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        td_rw_operands(rw, n, in);
        if (folds(rw->old, &u, n))
            fold_norm(rw, n, in);
        else if (folds_bias(is_fixed, &u, n))
            fold_bias(rw, n, in);
        else
            td_rw_copy_with(rw, n, in);
    }
    td_uses_release(&u);
    td_free(is_fixed);
}

const td_pass td_pass_fold = {
    .name = "fold",
    .summary = "fold batch norms and biases into convolutions for inference",
    .counts = "norms and biases folded",
    .run = fold_run,
};
