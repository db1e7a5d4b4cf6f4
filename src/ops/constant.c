/*
 * constant.c -- a tensor of equal elements
 *
 *   constant {value, type} -> y     every element `value`
 */
#include "ops/ops.h"

/* clang-format off */
static const td_field constant_fields[] = {
    TD_REAL(td_constant_attr, value, 0, -1e300, 1e300, "of every element"),
    TD_TEXT(td_constant_attr, type, "f32[]", "TYPE", "of the result"),
    TD_END,
};
/* clang-format on */

static td_status constant_infer(const td_node *n, td_type *y)
{
    const td_constant_attr *a = n->attr;
    const char *end;
    if (!a->type || !td_type_parse(a->type, y, &end) || *end)
        return td_error(TD_ESHAPE, "constant: '%s' is not a type", a->type ? a->type : "");
    return TD_OK;
}

const td_op td_op_constant = {
    .name = "constant",
    .summary = "every element the same value",
    .n_out = 1,
    .fields = constant_fields,
    .attr_bytes = sizeof(td_constant_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = constant_infer,
};
