/*
 * round_tf32(x) -> y        x rounded to TF32: float32's exponent and ten bits of fraction
 *
 *   x, y   any shape, float32
 *
 * To nearest, ties to even; infinities and NaN are kept, values above the largest become infinite.
 * Inserted before convolutions and linear layers where TF32 is emulated (pass/tf32.c), after grad:
 * it has no gradient.
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

const td_op td_op_round_tf32 = {
    .name = "round_tf32",
    .summary = "float32 rounded to ten bits of fraction",
    .n_in = 1,
    .n_out = 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u,
    .infer = infer,
};
