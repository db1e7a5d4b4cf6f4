/*
 * layer_norm(x, gamma, beta) {eps} -> y, mean, scale     each row normalised by its own statistics
 *
 *   x      [.., D]   any float      a row is the last dimensions, as many as gamma has
 *   gamma  [D]       same as x, or float32 with half
 *   beta   [D]       same as gamma
 *   y      [.., D]   same as x      gamma (x - mean) scale + beta
 *   mean   [..]      float32 with half
 *   scale  [..]      same as mean   1 / sqrt(var + eps), var biased
 *
 * layer_norm_grad(dy, x, gamma, mean, scale) -> dx, dgamma, dbeta
 *
 *   with xhat = (x - mean) scale and g = gamma dy:
 *   dx = scale (g - mean of g - xhat mean of g xhat)     dgamma = sum dy xhat     dbeta = sum dy
 *
 * Source: Ba et al. 2016.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field layer_norm_fields[] = {
    TD_REAL(td_layer_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_END,
};
/* clang-format on */

td_layer_norm_sizes td_layer_norm_sizes_of(const td_type *x, const td_type *gamma)
{
    const int64_t width = td_type_count(gamma);
    return (td_layer_norm_sizes){ .rows = td_type_count(x) / width, .width = width };
}

static td_status check_vector(const td_node *n, int i, const td_type *x)
{
    const td_type *t = td_in_type(n, i);
    bool fits = t->rank >= 1 && t->rank <= x->rank;
    for (int d = 0; fits && d < t->rank; d++)
        fits = t->dim[d] == x->dim[d + x->rank - t->rank];
    if (!fits)
        return td_error(TD_ESHAPE, "%s: operand %d does not have x's last dimensions", n->op->name,
                        i);
    if (t->dtype != x->dtype && !td_is_wide_operand(n, i))
        return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted %s", n->op->name, i,
                        td_dtype_name(t->dtype), td_dtype_name(x->dtype));
    return TD_OK;
}

/* the dtype of statistics and of the gradients of gamma and beta */
static td_dtype wide(td_dtype d)
{
    return td_dtype_is_half(d) ? TD_DT_F32 : d;
}

static td_type statistics_of(const td_type *x, const td_type *gamma)
{
    return td_type_of(wide(x->dtype), x->rank - gamma->rank, x->dim);
}

static td_status layer_norm_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *gamma = td_in_type(n, 1);
    TD_TRY(check_vector(n, 1, x));
    TD_TRY(check_vector(n, 2, x));
    if (!td_type_same_shape(gamma, td_in_type(n, 2)))
        return td_error(TD_ESHAPE, "layer_norm: gamma and beta differ in shape");
    y[0] = td_type_plain(x);
    y[1] = y[2] = statistics_of(x, gamma);
    return TD_OK;
}

static td_status layer_norm_grad_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1), *gamma = td_in_type(n, 2);
    if (!td_type_same_shape(dy, x) || dy->dtype != x->dtype)
        return td_error(TD_ESHAPE, "layer_norm_grad: dy and x differ in type");
    TD_TRY(check_vector(n, 2, x));
    const td_type statistics = statistics_of(x, gamma);
    for (int i = 3; i < 5; i++)
        if (!td_type_same_shape(&statistics, td_in_type(n, i)) ||
            statistics.dtype != td_in_type(n, i)->dtype)
            return td_error(TD_ESHAPE, "layer_norm_grad: operand %d is no statistic of x's rows",
                            i);
    y[0] = td_type_plain(x);
    y[1] = y[2] = td_type_as(gamma, wide(x->dtype));
    return TD_OK;
}

static void layer_norm_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *d[3];
    if (dy[1] || dy[2]) {
        td_build_fail(b, td_error(TD_ESHAPE, "layer_norm: mean and scale have no gradient"));
        return;
    }
    td_emit_n(b, &td_op_layer_norm_grad, n->attr, 5,
              TD_ARGS(dy[0], n->in[0], n->in[1], n->out[1], n->out[2]), d);
    dx[0] = d[0];
    for (int i = 1; i < 3 && td_build_ok(b); i++)
        dx[i] = td_cast(b, d[i], td_in_type(n, i)->dtype);
}

const td_op td_op_layer_norm = {
    .name = "layer_norm",
    .summary = "normalise rows by their own statistics",
    .n_in = 3,
    .n_out = 3,
    .fields = layer_norm_fields,
    .attr_bytes = sizeof(td_layer_norm_attr),
    .tf_op = "FusedBatchNormV3",
    .wide_in = 6u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_PLAIN,
    .infer = layer_norm_infer,
    .grad = layer_norm_op_grad,
};

const td_op td_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .summary = "gradients of layer_norm",
    .n_in = 5,
    .n_out = 3,
    .fields = layer_norm_fields,
    .attr_bytes = sizeof(td_layer_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x1cu,
    .wide_out = 6u,
    .layout = TD_LAYOUT_PLAIN,
    .infer = layer_norm_grad_infer,
};
