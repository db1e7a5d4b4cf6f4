/*
 * fold.c -- inference: folds batch norm or a bias into the preceding convolution, and the factors
 * of channels into linear layers
 *
 *     batch_norm_infer(conv2d(x, w), gamma, beta, mean, var)
 *         s = gamma / sqrt(var + eps)
 *         conv2d_fused(x, w * s[K,1,1,1], beta - mean * s)
 *
 *     bias_add(conv2d(x, w), b)
 *         conv2d_fused(x, w, b)
 *
 *     mul(transpose(reshape(linear(x, w, b))), s [C, 1, 1])       a factor for each channel
 *         transpose(reshape(linear(x, w * s[K, 1], b * s)))
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

/* a linear layer whose rows are the pixels of images that are multiplied by factors */
typedef struct {
    const td_node *linear, *reshape, *transpose;
    const td_value *factors;
} scaled_linear;

/* the linear layer that makes images v, whose channels are its columns */
static bool find_linear(const td_uses *u, const td_value *v, scaled_linear *f)
{
    int perm[TD_RANK_MAX];
    f->transpose = td_uses_producer(u, v, &td_op_transpose);
    f->reshape = f->transpose ? td_uses_producer(u, f->transpose->in[0], &td_op_reshape) : NULL;
    f->linear = f->reshape ? td_uses_producer(u, f->reshape->in[0], &td_op_linear) : NULL;
    return f->linear && v->type.rank == 4 && td_transpose_perm(f->transpose, perm) &&
           perm[1] == 3 && v->type.dim[1] == f->linear->out[0]->type.dim[1];
}

/* are weights and bias of the factors' type? */
static bool has_dtype(const td_node *linear, td_dtype d)
{
    return td_in_type(linear, 1)->dtype == d &&
           (linear->n_in < 3 || td_in_type(linear, 2)->dtype == d);
}

static bool folds_factors(const bool *is_fixed, const td_uses *u, const td_node *n,
                          scaled_linear *f)
{
    if (n->op != &td_op_mul)
        return false;
    for (int i = 0; i < 2; i++) {
        const td_type *s = td_in_type(n, 1 - i);
        f->factors = n->in[1 - i];
        if (find_linear(u, n->in[i], f) && is_fixed[f->factors->producer->id] &&
            is_fixed[f->linear->in[1]->producer->id] && s->rank == 3 && s->dim[1] == 1 &&
            s->dim[2] == 1 && s->dim[0] == td_in_type(n, i)->dim[1] &&
            has_dtype(f->linear, s->dtype))
            return true;
    }
    return false;
}

static void fold_factors(td_rewriter *rw, const td_node *mul, const scaled_linear *f)
{
    const td_node *linear = f->linear;
    const int64_t channels = linear->out[0]->type.dim[1];
    td_builder *b = rw->b;
    td_value *s = td_rw_get(rw, f->factors), *bias = NULL;
    td_value *w =
        td_mul(b, td_rw_get(rw, linear->in[1]), td_reshape(b, s, 2, (int64_t[]){ channels, 1 }));
    if (linear->n_in > 2)
        bias = td_mul(b, td_rw_get(rw, linear->in[2]), td_reshape(b, s, 1, &channels));
    td_value *y = td_emit(b, &td_op_linear, linear->attr, td_rw_get(rw, linear->in[0]), w, bias);
    y = td_emit(b, &td_op_reshape, f->reshape->attr, y);
    td_rw_set(rw, mul->out[0], td_emit(b, &td_op_transpose, f->transpose->attr, y));
    rw->n_changed++;
}

static void fold_run(td_rewriter *rw)
{
    td_uses u;
    td_value *in[TD_IN_MAX];
    scaled_linear f;
    bool *is_fixed = NULL;
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK)
        st = td_plan_fixed_new(rw->old, &is_fixed);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        td_rw_operands(rw, n, in);
        if (folds(rw->old, &u, n))
            fold_norm(rw, n, in);
        else if (folds_bias(is_fixed, &u, n))
            fold_bias(rw, n, in);
        else if (folds_factors(is_fixed, &u, n, &f))
            fold_factors(rw, n, &f);
        else
            td_rw_copy_with(rw, n, in);
    }
    td_uses_release(&u);
    td_free(is_fixed);
}

const td_pass td_pass_fold = {
    .name = "fold",
    .summary = "fold batch norms, biases and factors of channels into layers for inference",
    .counts = "norms, biases and factors folded",
    .run = fold_run,
};
