/*
 * gradient.c -- a placeholder for a gradient
 *
 *   gradient(loss, w) -> dw         d loss / d w, replaced by the grad pass; loss is a scalar
 */
#include "ir/build.h"
#include "ops/ops.h"

static td_status gradient_infer(const td_node *n, td_type *y)
{
    if (td_type_count(td_in_type(n, 0)) != 1)
        return td_error(TD_ESHAPE, "gradient: the loss has %lld elements, wanted 1",
                        (long long)td_type_count(td_in_type(n, 0)));
    *y = *td_in_type(n, 1);
    return TD_OK;
}

const td_op td_op_gradient = {
    .name = "gradient",
    .summary = "d loss / d parameter, worked out by the grad pass",
    .n_in = 2,
    .n_out = 1,
    .layout = TD_LAYOUT_PLAIN,
    .is_composite = true,
    .infer = gradient_infer,
};

td_value *td_gradient(td_builder *b, td_value *loss, td_value *param)
{
    return td_emit(b, &td_op_gradient, NULL, loss, param);
}
