/*
 * tf32.c -- TF32: the factors of convolutions and linear layers have ten bits of fraction
 *
 *     --precision tf32, on a device that has it:
 *
 *     %y = conv2d %x, %w              ->     %y = conv2d %x, %w {tf32}
 *
 *     --precision tf32-emulated, on any device:
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
 * The emulation is slower than float32, and shows the results of training on such a device.
 */
#include <string.h>

#include "ops/ops.h"
#include "pass/amp.h"
#include "pass/pass.h"

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

/* the node with its attribute tf32 */
static void set_tf32(td_rewriter *rw, const td_node *n, td_value **in)
{
    union {
        td_conv_attr conv;
        td_linear_attr linear;
    } attr;
    memcpy(&attr, n->attr, n->op->attr_bytes);
    *td_tf32_of(n->op, &attr) = true;
    td_rw_set(rw, n->out[0], td_emit_n(rw->b, n->op, &attr, n->n_in, in, NULL));
    rw->n_changed++;
}

static void node(td_rewriter *rw, const td_node *n, td_value **in)
{
    const bool is_emulated = rw->amp && rw->amp->precision == TD_PRECISION_TF32_EMULATED;
    const bool is_device =
        rw->amp && rw->amp->precision == TD_PRECISION_TF32 && rw->target && rw->target->has_tf32;
    const uint32_t which = is_emulated ? td_factors(n->op) : 0;
    if (is_device && td_factors(n->op) && td_in_type(n, 0)->dtype == TD_DT_F32) {
        set_tf32(rw, n, in);
        return;
    }
    for (int i = 0; i < n->n_in; i++)
        if (which >> i & 1 && !td_is_shape_only(n, i))
            in[i] = rounded(rw, n->in[i], in[i]);
    td_rw_copy_with(rw, n, in);
}

const td_pass td_pass_tf32 = {
    .name = "tf32",
    .summary = "factors with ten bits of fraction, if asked for",
    .counts = "values rounded or nodes changed",
    .node = node,
    .begin = begin,
    .end = end,
};
