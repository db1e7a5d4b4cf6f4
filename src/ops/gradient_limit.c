/*
 * grad_norm(x, inverse [, before]) -> y    y = sqrt(before^2 + sum of (inverse x)^2)
 *
 *   x        any float, any shape   gradient, possibly of a scaled loss
 *   inverse  scalar                 1 / loss scale: x is multiplied by it first
 *   before   scalar                 an earlier result, of other gradients; omitted: 0
 *   y        scalar                 float32, or x's type if that is f64
 *
 * Summed in float64 in an order that depends on the shape only.
 *
 * limit_grad(x, inverse) {limit} -> y       inverse x, but at most `limit` and at least -limit
 *
 *   y        x's type               NaN stays NaN
 *
 * Source: agree with torch.nn.utils.get_total_norm and clip_grad_value_.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field clip_fields[] = {
    TD_REAL(td_limit_grad_attr, limit, 1, 0, 1e30, "largest absolute value"),
    TD_END,
};
/* clang-format on */

static td_status check_scalars(const td_node *n)
{
    for (int i = 1; i < n->n_in; i++)
        if (td_type_count(td_in_type(n, i)) != 1)
            return td_error(TD_ESHAPE, "%s: operand %d is not a scalar", n->op->name, i);
    return TD_OK;
}

static td_status norm_infer(const td_node *n, td_type *y)
{
    *y = td_type_scalar(td_in_type(n, 0)->dtype == TD_DT_F64 ? TD_DT_F64 : TD_DT_F32);
    return check_scalars(n);
}

static td_status clip_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    return check_scalars(n);
}

const td_op td_op_grad_norm = {
    .name = "grad_norm",
    .summary = "norm of a gradient, and of those before it",
    .n_in = 2,
    .n_in_max = 3,
    .n_out = 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = norm_infer,
};

const td_op td_op_limit_grad = {
    .name = "limit_grad",
    .summary = "a gradient with limited values",
    .n_in = 2,
    .n_out = 1,
    .fields = clip_fields,
    .attr_bytes = sizeof(td_limit_grad_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = clip_infer,
};
