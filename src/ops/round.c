/*
 * round_tf32(x) -> y        x rounded to TF32: float32's exponent and ten bits of fraction
 *
 *   x, y   any shape, float32
 *
 * To nearest, ties to even; infinities and NaN are kept, values above the largest become infinite.
 * Convolutions and linear layers with the attribute tf32 round their factors so themselves.  The
 * op is inserted before them where TF32 is emulated (pass/tf32.c), after grad: it has no gradient.
 */
#include "ir/build.h"
#include "ops/ops.h"

static td_status infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    if (y->dtype != TD_DT_F32)
        return td_error(TD_ESHAPE, "round_tf32: the operand is %s, wanted f32",
                        td_dtype_name(y->dtype));
    return TD_OK;
}

td_status td_check_tf32(const td_node *n, bool is_tf32)
{
    if (is_tf32 && td_dtype_is_half(td_in_type(n, 0)->dtype))
        return td_error(TD_ESHAPE, "%s: tf32 is set and the operand is %s", n->op->name,
                        td_dtype_name(td_in_type(n, 0)->dtype));
    return TD_OK;
}

const td_op td_op_round_tf32 = {
    .name = "round_tf32",
    .summary = "float32 rounded to ten bits of fraction",
    .n_in = 1,
    .n_out = 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u,
    .infer = infer,
};
