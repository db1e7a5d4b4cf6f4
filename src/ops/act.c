/*
 * relu(x) -> y       max(x, 0)                  relu_grad(dy, y)     dy where y > 0
 * relu6(x) -> y      min(max(x, 0), 6)          relu6_grad(dy, y)    dy where 0 < y < 6
 * sigmoid(x) -> y    1 / (1 + exp(-x))          sigmoid_grad(dy, y)  dy y (1 - y)
 *
 *   x, y, dy   any shape, any float
 *
 * The gradient at a kink is 0, as in PyTorch.
 */
#include "ir/build.h"
#include "ops/ops.h"

static td_status act_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    return TD_OK;
}

static td_status act_grad_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    if (!td_type_same_shape(y, td_in_type(n, 1)) || y->dtype != td_in_type(n, 1)->dtype)
        return td_error(TD_ESHAPE, "%s: dy and y differ in type", n->op->name);
    return TD_OK;
}

static void relu_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_relu_grad, NULL, dy[0], n->out[0]);
}

static void relu6_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_relu6_grad, NULL, dy[0], n->out[0]);
}

static void sigmoid_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_sigmoid_grad, NULL, dy[0], n->out[0]);
}

#define ACT(id, text, tf)                                                                          \
    const td_op td_op_##id = {                                                                     \
        .name = #id,                                                                               \
        .summary = text,                                                                           \
        .n_in = 1,                                                                                 \
        .n_out = 1,                                                                                \
        .tf_op = tf,                                                                               \
        .layout = TD_LAYOUT_FOLLOWS,                                                               \
        .may_overwrite = 1u,                                                                       \
        .infer = act_infer,                                                                        \
        .grad = id##_grad,                                                                         \
    };                                                                                             \
    const td_op td_op_##id##_grad = {                                                              \
        .name = #id "_grad",                                                                       \
        .summary = "gradient of " #id,                                                             \
        .n_in = 2,                                                                                 \
        .n_out = 1,                                                                                \
        .tf_op = tf "Grad",                                                                        \
        .layout = TD_LAYOUT_FOLLOWS,                                                               \
        .may_overwrite = 1u,                                                                       \
        .infer = act_grad_infer,                                                                   \
    };                                                                                             \
    td_value *td_##id(td_builder *b, td_value *x)                                                  \
    {                                                                                              \
        return td_emit(b, &td_op_##id, NULL, x);                                                   \
    }

ACT(relu, "max(x, 0)", "Relu")
ACT(relu6, "min(max(x, 0), 6)", "Relu6")
ACT(sigmoid, "1 / (1 + exp(-x))", "Sigmoid")
