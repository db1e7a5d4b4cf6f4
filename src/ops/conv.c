/*
 * conv2d(x, w) -> y              grouped, strided, dilated 2-D convolution
 *
 *   x  [N, C, H, W]          any float    activations
 *   w  [K, C/groups, R, S]   same as x    filter
 *   y  [N, K, P, Q]          same as x    P = (H + pads - dilation (R-1) - 1) / stride + 1
 *
 * conv2d_grad_x(dy, w, x) -> dx           x for its shape only; dx has dy's dtype
 * conv2d_grad_w(dy, x, w) {wide} -> dw    w for its shape only; dw has dy's dtype, or is float32
 *
 * conv2d_fused(x, w, bias, residual) -> y      y = relu?(conv2d(x, w) + bias + residual), or
 *   silu or hardswish by the attribute act;
 *   bias [K], which may be float32 with half operands, and residual [N, K, P, Q] may be omitted
 *   from the right; inference only
 *
 * conv2d_statistics(x, w [, scale, shift]) -> y, sum, squares      y = conv2d(x', w)
 *   x' = x, or relu(scale x + shift), which is not stored; scale [C] and shift [C] are x's dtype or
 *   float32.  sum [K] and squares [K]: of y and of its square, over N, P and Q, in float32
 *
 * conv2d_scale_relu_grad_w(dy, x, w, scale, shift) -> dw    conv2d_grad_w for x' instead of x
 *
 * pad_extra makes uneven padding, like TensorFlow's SAME with strides: pad zeros above and to the
 * left, pad + pad_extra below and to the right; pads is their sum.
 *
 * Sums are kept in float32 (float64 for f64) whatever the storage.
 * Source: Xie et al. 2017, fig. 3c (groups); Yu and Koltun 2016 (dilation).
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
#define GEOMETRY_ROWS                                                                              \
    TD_INT(td_conv_attr, stride,   1, 1, 64,   "pixels between windows"),                          \
    TD_INT(td_conv_attr, pad,      0, 0, 64,   "zeros added on every side"),                       \
    TD_INT(td_conv_attr, dilation, 1, 1, 64,   "pixels between filter taps"),                      \
    TD_INT(td_conv_attr, groups,   1, 1, 65536, "channel groups convolved apart"),                 \
    TD_INT(td_conv_attr, pad_extra, 0, 0, 64, "zeros added below and to the right beyond pad")

#define CONV_ROWS                                                                                  \
    GEOMETRY_ROWS,                                                                                 \
    TD_BOOL(td_conv_attr, tf32, false, "round the factors to TF32 first; f32 only")

static const td_field conv_fields[] = { CONV_ROWS, TD_END };

static const td_field statistics_fields[] = { GEOMETRY_ROWS, TD_END };

static const td_field grad_w_fields[] = {
    CONV_ROWS,
    TD_BOOL(td_conv_attr, wide, false, "the result is f32 whatever half the operands are"),
    TD_END,
};

const char *const td_conv_act_names[] = { "none", "silu", "hardswish", NULL };

static const td_field fused_fields[] = {
    CONV_ROWS,
    TD_BOOL(td_conv_attr, relu, false, "clip the result at zero"),
    TD_BOOL(td_conv_attr, relu6, false, "with relu: clip it at six too"),
    TD_ENUM(td_conv_attr, act, TD_CONV_LINEAR, td_conv_act_names,
            "without relu: what follows instead"),
    TD_END,
};
/* clang-format on */

static td_status conv_shape(const td_node *n, const td_type *x, const td_type *w, td_type *y)
{
    const td_conv_attr *a = n->attr;

    TD_TRY(td_check_tf32(n, a->tf32));
    if (x->dtype != w->dtype || !td_dtype_is_float(x->dtype))
        return td_error(TD_ESHAPE, "%s: input is %s, filter is %s, wanted one float type",
                        n->op->name, td_dtype_name(x->dtype), td_dtype_name(w->dtype));
    if (x->dim[1] != w->dim[1] * a->groups)
        return td_error(TD_ESHAPE, "%s: input has %lld channels, filter needs %lld x %d groups",
                        n->op->name, (long long)x->dim[1], (long long)w->dim[1], a->groups);
    if (w->dim[0] % a->groups)
        return td_error(TD_ESHAPE, "%s: %lld filters do not divide into %d groups", n->op->name,
                        (long long)w->dim[0], a->groups);
    const int pads = 2 * a->pad + a->pad_extra;
    int64_t p = td_windows(x->dim[2], w->dim[2], a->stride, pads, a->dilation);
    int64_t q = td_windows(x->dim[3], w->dim[3], a->stride, pads, a->dilation);
    if (p < 1 || q < 1)
        return td_error(TD_ESHAPE,
                        "%s: a %lldx%lld filter is larger than a %lldx%lld image with pad %d",
                        n->op->name, (long long)w->dim[2], (long long)w->dim[3],
                        (long long)x->dim[2], (long long)x->dim[3], a->pad);
    *y = td_type_4d(x->dtype, x->dim[0], w->dim[0], p, q);
    return TD_OK;
}

static td_status conv_infer(const td_node *n, td_type *y)
{
    return conv_shape(n, td_in_type(n, 0), td_in_type(n, 1), y);
}

/* dy must have the type of the forward op's y */
static td_status check_dy(const td_node *n, const td_type *x, const td_type *w)
{
    td_type y;
    TD_TRY(conv_shape(n, x, w, &y));
    if (!td_type_same_shape(&y, td_in_type(n, 0)) || y.dtype != td_in_type(n, 0)->dtype)
        return td_error(TD_ESHAPE, "%s: dy does not have the convolution's type", n->op->name);
    return TD_OK;
}

static td_status grad_x_infer(const td_node *n, td_type *y)
{
    const td_type x = td_type_as(td_in_type(n, 2), td_in_type(n, 0)->dtype);
    TD_TRY(check_dy(n, &x, td_in_type(n, 1)));
    *y = td_type_plain(&x);
    return TD_OK;
}

static td_status grad_w_infer(const td_node *n, td_type *y)
{
    const td_conv_attr *a = n->attr;
    td_type w = td_type_as(td_in_type(n, 2), td_in_type(n, 0)->dtype);
    TD_TRY(check_dy(n, td_in_type(n, 1), &w));
    *y = td_type_plain(&w);
    if (a->wide && y->dtype != TD_DT_F64)
        y->dtype = TD_DT_F32;
    return TD_OK;
}

static td_status fused_infer(const td_node *n, td_type *y)
{
    const td_conv_attr *a = n->attr;
    TD_TRY(conv_infer(n, y));
    if (a->relu && a->act != TD_CONV_LINEAR)
        return td_error(TD_ESHAPE, "conv2d_fused: both relu and act are set");
    if (n->n_in > 2 && td_in_type(n, 2)->dim[0] != y->dim[1])
        return td_error(TD_ESHAPE, "conv2d_fused: bias has %lld elements, wanted %lld",
                        (long long)td_in_type(n, 2)->dim[0], (long long)y->dim[1]);
    if (n->n_in > 3 && !td_type_same_shape(td_in_type(n, 3), y))
        return td_error(TD_ESHAPE, "conv2d_fused: the residual does not have the result's shape");
    for (int i = 2; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != y->dtype && !td_is_wide_operand(n, i))
            return td_error(TD_ESHAPE, "conv2d_fused: operand %d is %s, wanted %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype), td_dtype_name(y->dtype));
    return TD_OK;
}

/* operands `from` and from + 1, if any, are [C] for images x, both of x's dtype or both float32 */
static td_status check_vectors(const td_node *n, const td_type *x, int from)
{
    if (n->n_in == from + 1)
        return td_error(TD_ESHAPE, "%s: operand %d, scale, has no shift", n->op->name, from);
    for (int i = from; i < n->n_in; i++) {
        const td_type *t = td_in_type(n, i);
        if (t->dim[0] != x->dim[1])
            return td_error(TD_ESHAPE, "%s: operand %d has %lld elements, input has %lld channels",
                            n->op->name, i, (long long)t->dim[0], (long long)x->dim[1]);
        if (t->dtype != td_in_type(n, from)->dtype ||
            (t->dtype != x->dtype && t->dtype != TD_DT_F32))
            return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted %s or f32, both alike",
                            n->op->name, i, td_dtype_name(t->dtype), td_dtype_name(x->dtype));
    }
    return TD_OK;
}

static td_status statistics_infer(const td_node *n, td_type *y)
{
    TD_TRY(conv_infer(n, &y[0]));
    TD_TRY(check_vectors(n, td_in_type(n, 0), 2));
    y[1] = y[2] = td_type_1d(y->dtype == TD_DT_F64 ? TD_DT_F64 : TD_DT_F32, y->dim[1]);
    return TD_OK;
}

static td_status scale_relu_grad_w_infer(const td_node *n, td_type *y)
{
    TD_TRY(grad_w_infer(n, y));
    return check_vectors(n, td_in_type(n, 1), 3);
}

static void conv_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    /* the filter's gradient first: afterwards x is dead and its buffer can hold dx */
    dx[1] = td_emit(b, &td_op_conv2d_grad_w, n->attr, dy[0], n->in[0], n->in[1]);
    dx[0] = td_emit(b, &td_op_conv2d_grad_x, n->attr, dy[0], n->in[1], n->in[0]);
}

/* of a transposed convolution, which conv2d_grad_x is (conv_transpose.c) */
static void grad_x_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[1] = td_emit(b, &td_op_conv2d_grad_w, n->attr, n->in[0], dy[0], n->in[1]);
    dx[0] = td_emit(b, &td_op_conv2d, n->attr, dy[0], n->in[1]);
}

/* N K P Q (C/groups) R S, for each of the three ops */
static int64_t macs_of(const td_type *y, const td_type *w)
{
    return td_mul_capped(td_type_count(y), td_mul_capped(w->dim[1], w->dim[2] * w->dim[3]));
}

static int64_t conv_macs(const td_node *n)
{
    return macs_of(&n->out[0]->type, td_in_type(n, 1));
}

static int64_t grad_x_macs(const td_node *n)
{
    return macs_of(td_in_type(n, 0), td_in_type(n, 1));
}

static int64_t grad_w_macs(const td_node *n)
{
    return macs_of(td_in_type(n, 0), td_in_type(n, 2));
}

const td_op td_op_conv2d = {
    .name = "conv2d",
    .summary = "grouped, strided, dilated 2-D convolution",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 4 },
    .fields = conv_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2D",
    .layout = TD_LAYOUT_CHOOSES,
    .infer = conv_infer,
    .grad = conv_grad,
    .macs = conv_macs,
};

const td_op td_op_conv2d_grad_x = {
    .name = "conv2d_grad_x",
    .summary = "gradient of conv2d for its image",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 4 },
    .fields = conv_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2DBackpropInput",
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 2,
    .infer = grad_x_infer,
    .grad = grad_x_grad,
    .macs = grad_x_macs,
};

const td_op td_op_conv2d_grad_w = {
    .name = "conv2d_grad_w",
    .summary = "gradient of conv2d for its filter",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 4 },
    .fields = grad_w_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2DBackpropFilter",
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 2,
    .infer = grad_w_infer,
    .macs = grad_w_macs,
};

const td_op td_op_conv2d_fused = {
    .name = "conv2d_fused",
    .summary = "relu?(conv2d(x, w) + bias + residual), for inference",
    .n_in = 2,
    .n_in_max = 4,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 4 },
    .fields = fused_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2D",
    .wide_in = 1u << 2,
    .layout = TD_LAYOUT_CHOOSES,
    .may_overwrite = 1u << 3,
    .infer = fused_infer,
    .macs = conv_macs,
};

const td_op td_op_conv2d_statistics = {
    .name = "conv2d_statistics",
    .summary = "conv2d of x or relu(scale x + shift), and the sums for a batch norm of its result",
    .n_in = 2,
    .n_in_max = 4,
    .n_out = 3,
    .in_rank = { 4, 4, 1, 1 },
    .fields = statistics_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2D",
    .wide_in = 1u << 2 | 1u << 3,
    .wide_out = 1u << 1 | 1u << 2,
    .layout = TD_LAYOUT_CHOOSES,
    .infer = statistics_infer,
    .macs = conv_macs,
};

const td_op td_op_conv2d_scale_relu_grad_w = {
    .name = "conv2d_scale_relu_grad_w",
    .summary = "gradient of conv2d_statistics for its filter",
    .n_in = 5,
    .n_out = 1,
    .in_rank = { 4, 4, 4, 1, 1 },
    .fields = statistics_fields,
    .attr_bytes = sizeof(td_conv_attr),
    .tf_op = "Conv2DBackpropFilter",
    .wide_in = 1u << 3 | 1u << 4,
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 2,
    .infer = scale_relu_grad_w_infer,
    .macs = grad_w_macs,
};

const td_op *td_conv_act_op(int act)
{
    return act == TD_CONV_SILU ? &td_op_silu : act == TD_CONV_HARDSWISH ? &td_op_hardswish : NULL;
}

td_value *td_conv2d(td_builder *b, td_value *x, td_value *w, const char *attrs)
{
    return td_emit(b, &td_op_conv2d, td_build_attr(b, &td_op_conv2d, attrs), x, w);
}
