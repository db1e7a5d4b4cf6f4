/*
 * The ops of ops/act_list.h:  NAME(x) -> y, and NAME_grad(dy, x) or NAME_grad(dy, y) -> dx
 *
 *   x, y, dy   any shape, any float, one type
 *
 * Whether a gradient reads x or y is decided so that it is exact and y alone would not do: relu,
 * sigmoid and tanh read their results, which are in memory anyway.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
#define A(name, otherwise, lo, hi, help)                                                           \
    TD_REAL_AS(td_act_attr, a, name, NULL, otherwise, lo, hi, NULL, help)
#define B(name, otherwise, lo, hi, help)                                                           \
    TD_REAL_AS(td_act_attr, b, name, NULL, otherwise, lo, hi, NULL, help)
#define LARGEST 3.4028234663852886e38 /* of f32 */

static const td_field slope_fields[] = {
    A("slope", 0.01, -1e6, 1e6, "factor of values below 0"),
    TD_END,
};
static const td_field alpha_fields[] = {
    A("alpha", 1, -1e6, 1e6, "minus the limit for small x"),
    TD_END,
};
static const td_field bounds_fields[] = {
    A("min", -LARGEST, -LARGEST, LARGEST, "smallest result"),
    B("max", LARGEST, -LARGEST, LARGEST, "largest result"),
    TD_END,
};
static const td_field line_fields[] = {
    A("alpha", 1.0 / 6, -1e6, 1e6, "slope of the line"),
    B("beta", 0.5, -1e6, 1e6, "its value at 0"),
    TD_END,
};
static const td_field exponent_fields[] = {
    A("exponent", 2, -1e6, 1e6, "the power"),
    TD_END,
};
/* clang-format on */

#define FIELDS_none
#define FIELDS_slope    .fields = slope_fields, .attr_bytes = sizeof(td_act_attr),
#define FIELDS_alpha    .fields = alpha_fields, .attr_bytes = sizeof(td_act_attr),
#define FIELDS_bounds   .fields = bounds_fields, .attr_bytes = sizeof(td_act_attr),
#define FIELDS_line     .fields = line_fields, .attr_bytes = sizeof(td_act_attr),
#define FIELDS_exponent .fields = exponent_fields, .attr_bytes = sizeof(td_act_attr),

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

#define READ_X n->in[0]
#define READ_Y n->out[0]

#define OPS(K, id, tf, tf_grad, which, reads, zero, text, function, gradient)                      \
    static void id##_gradient(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx) \
    {                                                                                              \
        dx[0] = td_emit(b, &td_op_##id##_grad, n->attr, dy[0], READ_##reads);                      \
    }                                                                                              \
    const td_op td_op_##id = {                                                                     \
        .name = #id,                                                                               \
        .summary = text,                                                                           \
        .n_in = 1,                                                                                 \
        .n_out = 1,                                                                                \
        FIELDS_##which.tf_op = tf,                                                                 \
        .layout = TD_LAYOUT_FOLLOWS,                                                               \
        .may_overwrite = 1u,                                                                       \
        .infer = act_infer,                                                                        \
        .grad = id##_gradient,                                                                     \
    };                                                                                             \
    const td_op td_op_##id##_grad = {                                                              \
        .name = #id "_grad",                                                                       \
        .summary = "gradient of " #id,                                                             \
        .n_in = 2,                                                                                 \
        .n_out = 1,                                                                                \
        FIELDS_##which.tf_op = tf_grad,                                                            \
        .layout = TD_LAYOUT_FOLLOWS,                                                               \
        .may_overwrite = 1u,                                                                       \
        .infer = act_grad_infer,                                                                   \
    };

TD_ACT_LIST(OPS, )

td_value *td_relu(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_relu, NULL, x);
}

td_value *td_relu6(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_relu6, NULL, x);
}

td_value *td_sigmoid(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_sigmoid, NULL, x);
}
