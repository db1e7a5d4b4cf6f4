/*
 * leaf.c -- the leaf ops of every graph: input and param
 *
 *   input -> y                          set by the caller before each run
 *   param {role, init, scale, of} -> y  persists between runs
 *
 * role is the purpose of a parameter: weight (trained), stat (running statistics), momentum (the
 * optimizer's), copy (of another parameter in half precision, stored in no file).  init is how
 * `tandem init` fills it: normal has standard deviation `scale`, uniform is in [-scale, scale],
 * truncated_normal is truncated at two deviations of the underlying normal distribution and has
 * standard deviation `scale`, constant is `scale` itself.
 */
#include "ir/leaf.h"

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
/* clang-format on */

static td_status leaf_infer(const td_node *n, td_type *y)
{
    *y = n->out[0]->type;
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
