/*
 * leaf.c -- where values come from: input, param, constant; and gradient, the grad pass's question
 *
 *   input -> y                      fed by the caller before each run
 *   param {role, init, scale, of} -> y  persists between runs
 *   constant {value, type} -> y     every element `value`
 *   gradient(loss, w) -> dw         d loss / d w, replaced by the grad pass; loss is a scalar
 *
 * role says what a parameter is for: weight (trained), stat (running statistics), momentum (the
 * optimiser's), copy (of another parameter in half precision, in no file).  init says how
 * `tandem init` fills it: normal has standard deviation `scale`, uniform lies in [-scale, scale].
 * truncated_normal has no values beyond two deviations of the normal it is cut from, and itself the
 * standard deviation `scale`.  constant is `scale` itself.
 */
#include "ir/build.h"
#include "ops/ops.h"

static const char *const role_names[] = { "weight", "stat", "momentum", "copy", NULL };
static const char *const init_names[] = {
    "zeros", "ones", "normal", "uniform", "truncated_normal", "constant", NULL
};

/* clang-format off */
static const td_field param_fields[] = {
    TD_ENUM(td_param_attr, role,  TD_ROLE_WEIGHT, role_names, "what the parameter is for"),
    TD_ENUM(td_param_attr, init,  TD_INIT_ZEROS, init_names, "how it is filled at first"),
    TD_REAL(td_param_attr, scale, 1, -1e6, 1e6, "standard deviation, half the width, or the value"),
    TD_TEXT(td_param_attr, of, NULL, "NAME", "role copy: the parameter it is a copy of"),
    TD_END,
};

static const td_field constant_fields[] = {
    TD_REAL(td_constant_attr, value, 0, -1e300, 1e300, "of every element"),
    TD_TEXT(td_constant_attr, type, "f32[]", "TYPE", "of the result"),
    TD_END,
};
/* clang-format on */

static td_status leaf_infer(const td_node *n, td_type *y)
{
    *y = n->out[0]->type;
    return TD_OK;
}

static td_status constant_infer(const td_node *n, td_type *y)
{
    const td_constant_attr *a = n->attr;
    const char *end;
    if (!a->type || !td_type_parse(a->type, y, &end) || *end)
        return td_error(TD_ESHAPE, "constant: '%s' is no type", a->type ? a->type : "");
    return TD_OK;
}

static td_status gradient_infer(const td_node *n, td_type *y)
{
    if (td_type_count(td_in_type(n, 0)) != 1)
        return td_error(TD_ESHAPE, "gradient: the loss has %lld elements, wants 1",
                        (long long)td_type_count(td_in_type(n, 0)));
    *y = *td_in_type(n, 1);
    return TD_OK;
}

const td_op td_op_input = {
    .name = "input",
    .summary = "fed by the caller before each run",
    .n_out = 1,
    .is_leaf = true,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = leaf_infer,
};

const td_op td_op_param = {
    .name = "param",
    .summary = "a tensor that persists between runs",
    .n_out = 1,
    .fields = param_fields,
    .attr_bytes = sizeof(td_param_attr),
    .is_leaf = true,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = leaf_infer,
};

const td_op td_op_constant = {
    .name = "constant",
    .summary = "every element the same value",
    .n_out = 1,
    .fields = constant_fields,
    .attr_bytes = sizeof(td_constant_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = constant_infer,
};

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
