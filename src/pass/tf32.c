/*
 * tf32.c -- emulates TF32: rounds the factors of convolutions and linear layers to ten fraction
 * bits
 *
 *     %y = conv2d %x, %w              ->     %r = round_tf32 %x
 *                                            %s = round_tf32 %w
 *                                            %y = conv2d %r, %s
 *
 * Their gradients likewise.  A product of two rounded numbers is exact in float32, sums are in
 * float32, and everything else (storage, biases, residuals, norms, losses, updates) is unchanged:
 * as NVIDIA's Ampere GPUs do by default.  A value is rounded once, at its first reader, however
 * often it is read; so a weight is rounded once per step.
 *
 * Used only with --precision tf32-emulated: it is slower than float32, and shows the results of
 * training on such a device.
 */
#include "ops/ops.h"
#include "pass/amp.h"
#include "pass/pass.h"

/* the operands that are multiplied with each other, as bits; others are addends or shape-only */
static uint32_t factors(const td_op *op)
{
    const bool multiplies = op == &td_op_conv2d || op == &td_op_conv2d_fused ||
                            op == &td_op_conv2d_grad_x || op == &td_op_conv2d_grad_w ||
                            op == &td_op_linear || op == &td_op_linear_grad_x ||
                            op == &td_op_linear_grad_w;
    return multiplies ? 3u : 0;
}

static td_status begin(td_rewriter *rw)
{
    rw->state = td_alloc((size_t)rw->old->n_values + 1, sizeof(td_value *));
    return rw->state ? TD_OK : TD_ENOMEM;
}

static void end(td_rewriter *rw)
{
    td_free(rw->state);
}

static td_value *rounded(td_rewriter *rw, const td_value *old, td_value *now)
{
    td_value **of = rw->state;
    if (old->type.dtype != TD_DT_F32 || old->producer->op == &td_op_round_tf32)
        return now;
    if (!of[old->id]) {
        of[old->id] = td_emit(rw->b, &td_op_round_tf32, NULL, now);
        rw->n_changed++;
    }
    return of[old->id];
}

static void node(td_rewriter *rw, const td_node *n, td_value **in)
{
    const bool is_emulated = rw->amp && rw->amp->precision == TD_PRECISION_TF32_EMULATED;
    const uint32_t which = is_emulated ? factors(n->op) : 0;
    for (int i = 0; i < n->n_in; i++)
        if (which >> i & 1 && !td_is_shape_only(n, i))
            in[i] = rounded(rw, n->in[i], in[i]);
    td_rw_copy_with(rw, n, in);
}

const td_pass td_pass_tf32 = {
    .name = "tf32",
    .summary = "factors rounded to ten bits of fraction, if asked for",
    .counts = "values rounded",
    .node = node,
    .begin = begin,
    .end = end,
};
