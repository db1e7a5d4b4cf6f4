/*
 * conv2d_gated(x, gate, w, bias, residual) -> y
 *
 *   y[n, k, p] = sum over c of w[k, c] gate[n, c] x[n, c, p]  + bias[k] [+ residual[n, k, p]]
 *
 *   x         [N, C, H, W]   any float, all operands the same; bias may be float32 with a half x
 *   gate      [N, C]
 *   w         [K, C, 1, 1]   bias [K]
 *   residual  [N, K, H, W]   may be omitted
 *   y         [N, K, H, W]
 *
 * The projection of an inverted residual block with the gate of its squeeze-excite layer.  Pass
 * `inverted_residual` creates it, in inference, so that x gate is not written to memory.
 */
#include "ir/build.h"
#include "ops/ops.h"

static td_status infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *gate = td_in_type(n, 1), *w = td_in_type(n, 2);
    TD_TRY(td_block_check_dtypes(n));
    if (gate->dim[0] != x->dim[0] || gate->dim[1] != x->dim[1])
        return td_error(TD_ESHAPE, "conv2d_gated: gate is %lldx%lld, wanted %lldx%lld",
                        (long long)gate->dim[0], (long long)gate->dim[1], (long long)x->dim[0],
                        (long long)x->dim[1]);
    if (w->dim[1] != x->dim[1] || w->dim[2] != 1 || w->dim[3] != 1)
        return td_error(TD_ESHAPE,
                        "conv2d_gated: filter is %lldx%lldx%lldx%lld, wanted %lldx%lldx1x1",
                        (long long)w->dim[0], (long long)w->dim[1], (long long)w->dim[2],
                        (long long)w->dim[3], (long long)w->dim[0], (long long)x->dim[1]);
    if (td_in_type(n, 3)->dim[0] != w->dim[0])
        return td_error(TD_ESHAPE, "conv2d_gated: bias has %lld elements, wanted %lld",
                        (long long)td_in_type(n, 3)->dim[0], (long long)w->dim[0]);
    *y = td_type_4d(x->dtype, x->dim[0], w->dim[0], x->dim[2], x->dim[3]);
    if (n->n_in > 4 && !td_type_same_shape(td_in_type(n, 4), y))
        return td_error(TD_ESHAPE, "conv2d_gated: the residual does not have the result's shape");
    return TD_OK;
}

static int64_t macs(const td_node *n)
{
    const td_type *y = &n->out[0]->type;
    return td_mul_capped(y->dim[0] * y->dim[2] * y->dim[3], td_type_count(td_in_type(n, 2)));
}

const td_op td_op_conv2d_gated = {
    .name = "conv2d_gated",
    .summary = "1x1 convolution of an image times a gate for each channel, for inference",
    .n_in = 4,
    .n_in_max = 5,
    .n_out = 1,
    .in_rank = { 4, 2, 4, 1, 4 },
    .layout = TD_LAYOUT_CHOOSES,
    .infer = infer,
    .macs = macs,
};
