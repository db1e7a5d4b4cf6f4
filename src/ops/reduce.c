/*
 * sum(x) -> y     of all elements, a scalar
 * mean(x) -> y    of all elements, a scalar
 *
 *   x   any shape, any float      y   same dtype, no dimensions
 *
 * Sums are kept in float32 (float64 for f64).  sum_to sums over some dimensions only.
 */
#include "ir/build.h"
#include "ops/ops.h"

static td_status reduce_infer(const td_node *n, td_type *y)
{
    *y = td_type_scalar(td_in_type(n, 0)->dtype);
    return TD_OK;
}

static void sum_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_broadcast_like, NULL, dy[0], n->in[0]);
}

static void mean_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_scale_attr a = { 1.0 / (double)td_type_count(td_in_type(n, 0)) };
    dx[0] = td_emit(b, &td_op_broadcast_like, &a, dy[0], n->in[0]);
}

const td_op td_op_sum = {
    .name = "sum",
    .summary = "sum of all elements",
    .n_in = 1,
    .n_out = 1,
    .tf_op = "Sum",
    .layout = TD_LAYOUT_PLAIN,
    .infer = reduce_infer,
    .grad = sum_grad,
};

const td_op td_op_mean = {
    .name = "mean",
    .summary = "mean of all elements",
    .n_in = 1,
    .n_out = 1,
    .tf_op = "Mean",
    .layout = TD_LAYOUT_PLAIN,
    .infer = reduce_infer,
    .grad = mean_grad,
};

td_value *td_sum(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_sum, NULL, x);
}

td_value *td_mean(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_mean, NULL, x);
}
