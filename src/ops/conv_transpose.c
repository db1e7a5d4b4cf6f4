/*
 * conv_transpose2d(x, w) -> y      transposed convolution: the gradient of conv2d for its image
 *
 *   x  [N, C, H, W]          any float
 *   w  [C, K/groups, R, S]   same as x
 *   y  [N, K, P, Q]          same as x
 *             P = (H - 1) stride + dilation (R - 1) + 1 + output_pad - 2 pad - pad_extra
 *
 * pad and pad_extra remove rows and columns that a convolution with this padding would add.
 * Composite: conv2d_grad_x, whose kernels run it; its gradients are conv2d and conv2d_grad_w.
 * Source: Dumoulin and Visin 2016, chapter 4.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field conv_transpose_fields[] = {
    TD_INT(td_conv_transpose_attr, stride,     1, 1, 64, "pixels between windows of the result"),
    TD_INT(td_conv_transpose_attr, pad,        0, 0, 64, "pixels removed on every side"),
    TD_INT(td_conv_transpose_attr, dilation,   1, 1, 64, "pixels between filter taps"),
    TD_INT(td_conv_transpose_attr, groups,     1, 1, 65536, "channel groups convolved apart"),
    TD_INT(td_conv_transpose_attr, pad_extra,  0, 0, 64,
           "pixels removed below and to the right beyond pad"),
    TD_INT(td_conv_transpose_attr, output_pad, 0, 0, 63,
           "pixels added below and to the right; less than stride"),
    TD_END,
};
/* clang-format on */

static td_status conv_transpose_infer(const td_node *n, td_type *y)
{
    const td_conv_transpose_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    if (x->dtype != w->dtype)
        return td_error(TD_ESHAPE, "%s: input is %s, filter is %s, wanted one float type",
                        n->op->name, td_dtype_name(x->dtype), td_dtype_name(w->dtype));
    if (x->dim[1] != w->dim[0] || x->dim[1] % a->groups)
        return td_error(TD_ESHAPE, "%s: input has %lld channels, filter %lld, in %d groups",
                        n->op->name, (long long)x->dim[1], (long long)w->dim[0], a->groups);
    if (a->output_pad >= a->stride)
        return td_error(TD_ESHAPE, "%s: output_pad %d is not less than stride %d", n->op->name,
                        a->output_pad, a->stride);
    int64_t side[2];
    for (int i = 0; i < 2; i++) {
        const int64_t grown = td_mul_capped(x->dim[2 + i] - 1, a->stride);
        const int64_t window = td_mul_capped(w->dim[2 + i] - 1, a->dilation) + 1;
        if (grown > TD_TYPE_BYTES_MAX || window > TD_TYPE_BYTES_MAX)
            return td_error(TD_ESHAPE, "%s: the result is too large", n->op->name);
        side[i] = grown + window + a->output_pad - 2 * a->pad - a->pad_extra;
        if (side[i] < 1)
            return td_error(TD_ESHAPE, "%s: pad %d removes the whole result", n->op->name, a->pad);
    }
    *y = td_type_4d(x->dtype, x->dim[0], td_mul_capped(w->dim[1], a->groups), side[0], side[1]);
    return TD_OK;
}

static int64_t conv_transpose_macs(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    return td_mul_capped(td_type_count(x), td_type_count(w) / w->dim[0]);
}

static void conv_transpose_decompose(td_builder *b, const td_node *n, td_value *const *in,
                                     td_value **out)
{
    const td_conv_transpose_attr *a = n->attr;
    const td_conv_attr conv = { .stride = a->stride,
                                .pad = a->pad,
                                .dilation = a->dilation,
                                .groups = a->groups,
                                .pad_extra = a->pad_extra };
    const td_type y = td_type_plain(&n->out[0]->type);
    const td_constant_attr like = { .value = 0, .type = td_build_type_text(b, &y) };
    out[0] = td_emit(b, &td_op_conv2d_grad_x, &conv, in[0], in[1],
                     td_emit_n(b, &td_op_constant, &like, 0, NULL, NULL));
}

const td_op td_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .summary = "transposed convolution",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 4 },
    .fields = conv_transpose_fields,
    .attr_bytes = sizeof(td_conv_transpose_attr),
    .layout = TD_LAYOUT_PLAIN,
    .is_composite = true,
    .infer = conv_transpose_infer,
    .decompose = conv_transpose_decompose,
    .macs = conv_transpose_macs,
};
