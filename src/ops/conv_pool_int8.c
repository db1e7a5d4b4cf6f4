/*
 * conv2d_pool_int8(x, w, bias) {stride, pad, kernel, pool_stride, pool_pad, y_scale} -> y
 *
 *   v = relu(sum over c, r, s of x w  + bias[k])
 *   y = saturate(round(largest v of each kernel x kernel window / y_scale)), to nearest, ties to
 *       even
 *
 *   x     [N, C, H, W]   float32
 *   w     [K, C, R, S]   float32 or bf16: with bf16 x is rounded to bf16, too
 *   bias  [K]            float32
 *   y     [N, K, P, Q]   u8
 *
 * Sums are float32.  Padding is zeros for the convolution and never the largest of a window; a NaN
 * is the largest, and becomes 0.  Inference only: pass `int8_ends` makes it of the first
 * convolution of a network of 8-bit integers, its max pooling and the quantize after it.
 */
#include "ir/build.h"
#include "ops/ops.h"

td_pooled_sizes td_pooled_sizes_of(const td_conv_pool_int8_attr *a, const td_type *x,
                                   const td_type *w)
{
    td_pooled_sizes s = { .P = td_windows(x->dim[2], w->dim[2], a->stride, 2 * a->pad, 1),
                          .Q = td_windows(x->dim[3], w->dim[3], a->stride, 2 * a->pad, 1) };
    if (s.P < 1 || s.Q < 1)
        return (td_pooled_sizes){ 0 };
    s.pooled_P = td_windows(s.P, a->kernel, a->pool_stride, 2 * a->pool_pad, 1);
    s.pooled_Q = td_windows(s.Q, a->kernel, a->pool_stride, 2 * a->pool_pad, 1);
    return s;
}

static td_status check_dtypes(const td_node *n)
{
    const td_dtype x = td_in_type(n, 0)->dtype, w = td_in_type(n, 1)->dtype;
    const td_dtype bias = td_in_type(n, 2)->dtype;
    if (x != TD_DT_F32 || (w != TD_DT_F32 && w != TD_DT_BF16) || bias != TD_DT_F32)
        return td_error(TD_ESHAPE,
                        "conv2d_pool_int8: input is %s, filter is %s, bias is %s, wanted f32, f32 "
                        "or bf16, f32",
                        td_dtype_name(x), td_dtype_name(w), td_dtype_name(bias));
    return TD_OK;
}

static td_status infer(const td_node *n, td_type *y)
{
    const td_conv_pool_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1), *bias = td_in_type(n, 2);
    TD_TRY(check_dtypes(n));
    if (w->dim[1] != x->dim[1] || bias->dim[0] != w->dim[0])
        return td_error(TD_ESHAPE,
                        "conv2d_pool_int8: filter is %lldx%lld, input has %lld channels, bias %lld",
                        (long long)w->dim[0], (long long)w->dim[1], (long long)x->dim[1],
                        (long long)bias->dim[0]);
    if (2 * a->pool_pad > a->kernel)
        return td_error(TD_ESHAPE, "conv2d_pool_int8: pool_pad %d is more than half of kernel %d",
                        a->pool_pad, a->kernel);
    const td_pooled_sizes s = td_pooled_sizes_of(a, x, w);
    if (s.pooled_P < 1 || s.pooled_Q < 1)
        return td_error(TD_ESHAPE, "conv2d_pool_int8: a window does not fit a %lldx%lld image",
                        (long long)x->dim[2], (long long)x->dim[3]);
    *y = td_type_4d(TD_DT_U8, x->dim[0], w->dim[0], s.pooled_P, s.pooled_Q);
    return TD_OK;
}

static int64_t macs(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    const td_pooled_sizes s = td_pooled_sizes_of(n->attr, x, w);
    return td_mul_capped(x->dim[0] * s.P * s.Q, td_type_count(w));
}

/* clang-format off */
static const td_field fields[] = {
    TD_INT (td_conv_pool_int8_attr, stride,      1, 1, 64, "pixels between windows"),
    TD_INT (td_conv_pool_int8_attr, pad,         0, 0, 64, "zeros added on every side"),
    TD_INT (td_conv_pool_int8_attr, kernel,      2, 1, 15, "side of a window of the pooling"),
    TD_INT (td_conv_pool_int8_attr, pool_stride, 1, 1, 64, "pixels between these windows"),
    TD_INT (td_conv_pool_int8_attr, pool_pad,    0, 0, 7,  "pixels added on every side of them"),
    TD_REAL(td_conv_pool_int8_attr, y_scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX,
            "value of one step of y"),
    TD_END,
};
/* clang-format on */

const td_op td_op_conv2d_pool_int8 = {
    .name = "conv2d_pool_int8",
    .summary = "integers of 8 bits of max pooling of relu(convolution + bias), for inference",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 1 },
    .fields = fields,
    .attr_bytes = sizeof(td_conv_pool_int8_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .infer = infer,
    .macs = macs,
};
