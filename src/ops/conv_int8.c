/*
 * quantize(x) {scale, to} -> y          y = saturate(round(x / scale)), to nearest, ties to even
 * dequantize(x) {scale} -> y            y = x scale, float32
 *
 *   x, y   any shape; float (dequantize: u8 or s8); u8 or s8 (dequantize: float32)
 *
 * A NaN becomes 0; s8 is -128 .. 127, as of ONNX's QuantizeLinear.
 *
 * quantize_weights(w) {most} -> q, scale    q[k] = round(w[k] / scale[k])
 *                                           scale[k] = max |w[k]| / most
 *
 *   w      [K, C, R, S]   float32        a filter of zeros has scale 1
 *   q      [K, C, R, S]   s8             -most .. most; most is 127 or less
 *   scale  [K]            float32
 *
 * shift_int8(x) {pad, pad_extra} -> y               y = x + 128, around it pixels of 128
 * shift_int8_bias(w, scale, bias) {x_scale} -> y
 *                                y[k] = bias[k] - 128 x_scale scale[k] (sum over c, r, s of w[k])
 *
 *   x      [N, C, H, W]          s8
 *   y      [N, C, H', W']        u8             H' = H + 2 pad + pad_extra
 *   w      [K, C/groups, R, S]   s8
 *   scale, bias, y  [K]          float32
 *
 * conv2d_int8 of x with `bias` is that of shift_int8(x) without padding with shift_int8_bias, for
 * kernels that take u8 images only.
 *
 * conv2d_int8(x, w, scale, bias, residual) {x_scale, y_scale, residual_scale, to} -> y
 *
 *   v = x_scale scale[k] (sum over c, r, s of x w) + bias[k] + residual_scale residual
 *   y = saturate(round(f(v) / y_scale)), or f(v) if `to` is f32; f: relu, relu6, `act` or nothing
 *
 *   x         [N, C, H, W]          u8 or s8    padding is zero
 *   w         [K, C/groups, R, S]   s8          filter, -weight_max .. weight_max
 *   scale     [K]                   float32     of the filters
 *   bias      [K]                   float32
 *   residual  [N, K, P, Q]          may be omitted; u8 or s8, or float32 if `to` is f32
 *   y         [N, K, P, Q]          of dtype `to`: u8, s8 (-128 .. 127) or f32
 *
 * Sums of products are exact integers of 32 bits.  Inference only; pass `quantize` creates these
 * ops.  Source: Jacob et al. 2018 (integer arithmetic), without zero points.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* --- conversion ------------------------------------------------------------------------------- */

static const char *const int8_names[] = { "u8", "s8", NULL };
static const char *const result_names[] = { "u8", "s8", "f32", NULL };

static bool is_int8(td_dtype d)
{
    return d == TD_DT_U8 || d == TD_DT_S8;
}

/* clang-format off */
static const td_field quantize_fields[] = {
    TD_REAL(td_quantize_attr, scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX, "value of one step"),
    TD_ENUM(td_quantize_attr, to, 0, int8_names, "dtype of the result"),
    TD_END,
};

static const td_field dequantize_fields[] = {
    TD_REAL(td_quantize_attr, scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX, "value of one step"),
    TD_END,
};
/* clang-format on */

int td_int8_to(td_dtype d)
{
    return d == TD_DT_U8 ? 0 : d == TD_DT_S8 ? 1 : 2;
}

static td_status quantize_infer(const td_node *n, td_type *y)
{
    const td_quantize_attr *a = n->attr;
    *y = td_type_as(td_in_type(n, 0), td_dtype_parse(int8_names[a->to]));
    return TD_OK;
}

static td_status dequantize_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0);
    if (!is_int8(x->dtype))
        return td_error(TD_ESHAPE, "dequantize: operand 0 is %s, wanted u8 or s8",
                        td_dtype_name(x->dtype));
    *y = td_type_as(x, TD_DT_F32);
    return TD_OK;
}

static td_status weights_infer(const td_node *n, td_type *y)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dtype != TD_DT_F32)
        return td_error(TD_ESHAPE, "quantize_weights: operand 0 is %s, wanted f32",
                        td_dtype_name(w->dtype));
    y[0] = td_type_as(w, TD_DT_S8);
    y[1] = td_type_1d(TD_DT_F32, w->dim[0]);
    return TD_OK;
}

/* --- signed images as unsigned ones ----------------------------------------------------------- */

static td_status shift_infer(const td_node *n, td_type *y)
{
    const td_shift_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    const int pads = 2 * a->pad + a->pad_extra;
    if (x->dtype != TD_DT_S8)
        return td_error(TD_ESHAPE, "shift_int8: operand 0 is %s, wanted s8",
                        td_dtype_name(x->dtype));
    *y = td_type_as(x, TD_DT_U8);
    y->dim[2] += pads;
    y->dim[3] += pads;
    return TD_OK;
}

static td_status shift_bias_infer(const td_node *n, td_type *y)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dtype != TD_DT_S8)
        return td_error(TD_ESHAPE, "shift_int8_bias: operand 0 is %s, wanted s8",
                        td_dtype_name(w->dtype));
    for (int i = 1; i < 3; i++) {
        const td_type *t = td_in_type(n, i);
        if (t->dtype != TD_DT_F32 || t->dim[0] != w->dim[0])
            return td_error(TD_ESHAPE, "shift_int8_bias: operand %d is %s[%lld], wanted f32[%lld]",
                            i, td_dtype_name(t->dtype), (long long)t->dim[0], (long long)w->dim[0]);
    }
    *y = td_type_1d(TD_DT_F32, w->dim[0]);
    return TD_OK;
}

/* clang-format off */
static const td_field shift_fields[] = {
    TD_INT (td_shift_int8_attr, pad,       0, 0, 64, "pixels on every side"),
    TD_INT (td_shift_int8_attr, pad_extra, 0, 0, 64, "pixels below and to the right beyond pad"),
    TD_END,
};

static const td_field shift_bias_fields[] = {
    TD_REAL(td_shift_int8_bias_attr, x_scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX,
            "value of one step of x"),
    TD_END,
};
/* clang-format on */

/* --- convolution ------------------------------------------------------------------------------ */

static td_status check_dtypes(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dtype x = td_in_type(n, 0)->dtype, w = td_in_type(n, 1)->dtype;
    if (!is_int8(x) || w != TD_DT_S8)
        return td_error(TD_ESHAPE, "conv2d_int8: input is %s, filter is %s, wanted u8 or s8, s8",
                        td_dtype_name(x), td_dtype_name(w));
    for (int i = 2; i < 4; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32)
            return td_error(TD_ESHAPE, "conv2d_int8: operand %d is %s, wanted f32", i,
                            td_dtype_name(td_in_type(n, i)->dtype));
    if (n->n_in < 5)
        return TD_OK;
    const td_dtype r = td_in_type(n, 4)->dtype;
    const bool is_wide = td_int8_result(a) == TD_DT_F32;
    if (is_wide ? r != TD_DT_F32 : !is_int8(r))
        return td_error(TD_ESHAPE, "conv2d_int8: the residual is %s, wanted %s", td_dtype_name(r),
                        is_wide ? "f32" : "u8 or s8");
    return TD_OK;
}

static td_status check_sizes(const td_node *n, const td_type *y)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    if (x->dim[1] != w->dim[1] * a->groups || w->dim[0] % a->groups)
        return td_error(
            TD_ESHAPE, "conv2d_int8: input has %lld channels, %lld filters need %lld x %d groups",
            (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1], a->groups);
    if (y->dim[2] < 1 || y->dim[3] < 1)
        return td_error(TD_ESHAPE, "conv2d_int8: the filter is larger than the padded image");
    for (int i = 2; i < 4; i++)
        if (td_in_type(n, i)->dim[0] != w->dim[0])
            return td_error(TD_ESHAPE, "conv2d_int8: operand %d has %lld elements, wanted %lld", i,
                            (long long)td_in_type(n, i)->dim[0], (long long)w->dim[0]);
    if (n->n_in > 4 && !td_type_same_shape(td_in_type(n, 4), y))
        return td_error(TD_ESHAPE, "conv2d_int8: the residual does not have the result's shape");
    return TD_OK;
}

td_dtype td_int8_result(const td_conv_int8_attr *a)
{
    return td_dtype_parse(result_names[a->to]);
}

static td_status conv_infer(const td_node *n, td_type *y)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    const int pads = 2 * a->pad + a->pad_extra;
    if (a->relu && a->act != TD_CONV_LINEAR)
        return td_error(TD_ESHAPE, "conv2d_int8: both relu and act are set");
    TD_TRY(check_dtypes(n));
    *y = td_type_4d(td_int8_result(a), x->dim[0], w->dim[0],
                    td_windows(x->dim[2], w->dim[2], a->stride, pads, a->dilation),
                    td_windows(x->dim[3], w->dim[3], a->stride, pads, a->dilation));
    return check_sizes(n, y);
}

static int64_t conv_macs(const td_node *n)
{
    const td_type *w = td_in_type(n, 1);
    return td_mul_capped(td_type_count(&n->out[0]->type),
                         td_mul_capped(w->dim[1], w->dim[2] * w->dim[3]));
}

/* clang-format off */
static const td_field conv_fields[] = {
    TD_INT (td_conv_int8_attr, stride,   1, 1, 64,   "pixels between windows"),
    TD_INT (td_conv_int8_attr, pad,      0, 0, 64,   "zeros added on every side"),
    TD_INT (td_conv_int8_attr, dilation, 1, 1, 64,   "pixels between filter taps"),
    TD_INT (td_conv_int8_attr, groups,   1, 1, 65536, "channel groups convolved apart"),
    TD_INT (td_conv_int8_attr, pad_extra, 0, 0, 64,
            "zeros added below and to the right beyond pad"),
    TD_BOOL(td_conv_int8_attr, relu, false, "clip the result at zero"),
    TD_BOOL(td_conv_int8_attr, relu6, false, "with relu: clip it at six too"),
    TD_ENUM(td_conv_int8_attr, act, TD_CONV_LINEAR, td_conv_act_names,
            "without relu: what follows instead"),
    TD_REAL(td_conv_int8_attr, x_scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX,
            "value of one step of x"),
    TD_REAL(td_conv_int8_attr, y_scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX,
            "value of one step of y"),
    TD_REAL(td_conv_int8_attr, residual_scale, 1, TD_INT8_SCALE_MIN, TD_INT8_SCALE_MAX,
            "value of one step of the residual"),
    TD_ENUM(td_conv_int8_attr, to, 0, result_names, "dtype of the result"),
    TD_INT (td_conv_int8_attr, weight_max, TD_INT8_MAX, 1, TD_INT8_MAX,
            "largest magnitude of w, which the caller guarantees"),
    TD_END,
};

static const td_field weights_fields[] = {
    TD_INT(td_quantize_weights_attr, most, TD_INT8_MAX, 1, TD_INT8_MAX,
           "largest magnitude of the integers"),
    TD_END,
};
/* clang-format on */

/* --- ops -------------------------------------------------------------------------------------- */

const td_op td_op_quantize = {
    .name = "quantize",
    .summary = "floats to integers of 8 bits, in steps of one size",
    .n_in = 1,
    .n_out = 1,
    .fields = quantize_fields,
    .attr_bytes = sizeof(td_quantize_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = quantize_infer,
};

const td_op td_op_dequantize = {
    .name = "dequantize",
    .summary = "integers of 8 bits to floats",
    .n_in = 1,
    .n_out = 1,
    .fields = dequantize_fields,
    .attr_bytes = sizeof(td_quantize_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u,
    .infer = dequantize_infer,
};

const td_op td_op_quantize_weights = {
    .name = "quantize_weights",
    .summary = "filters as integers of 8 bits, with a scale for each filter",
    .n_in = 1,
    .n_out = 2,
    .in_rank = { 4 },
    .fields = weights_fields,
    .attr_bytes = sizeof(td_quantize_weights_attr),
    .layout = TD_LAYOUT_PLAIN,
    .infer = weights_infer,
};

const td_op td_op_shift_int8 = {
    .name = "shift_int8",
    .summary = "signed integers of 8 bits as unsigned ones, from -128 on, with a border",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = shift_fields,
    .attr_bytes = sizeof(td_shift_int8_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u,
    .infer = shift_infer,
};

const td_op td_op_shift_int8_bias = {
    .name = "shift_int8_bias",
    .summary = "the bias of a convolution whose image shift_int8 has shifted",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 1, 1 },
    .fields = shift_bias_fields,
    .attr_bytes = sizeof(td_shift_int8_bias_attr),
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u,
    .infer = shift_bias_infer,
};

const td_op td_op_conv2d_int8 = {
    .name = "conv2d_int8",
    .summary = "convolution + bias + residual of 8-bit integers and an activation, for inference",
    .n_in = 4,
    .n_in_max = 5,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 1, 4 },
    .fields = conv_fields,
    .attr_bytes = sizeof(td_conv_int8_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .any_dtype = 1u | 1u << 1 | 1u << 4,
    .may_overwrite = 1u << 4,
    .infer = conv_infer,
    .macs = conv_macs,
};
