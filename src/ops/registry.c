/*
 * registry.c -- the table of ops, made from ops.def, and the creation of nodes by op name
 */
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"

static const td_op *const all[] = {
#define OP(name) &td_op_##name,
#include "ops/ops.def"
#undef OP
};

#define N_OPS ((int)(sizeof all / sizeof all[0]))

const td_op *const *td_op_all(int *n)
{
    *n = N_OPS;
    return all;
}

const td_op *td_op_find(const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

const char *td_op_name_at(int i, const char **summary)
{
    if (i < 0 || i >= N_OPS)
        return NULL;
    if (summary)
        *summary = all[i]->summary;
    return all[i]->name;
}

void td_apply(td_builder *b, const char *name, int n_in, td_value *const *in, const char *attrs,
              int n_out, td_value **out)
{
    const td_op *op = td_op_find(name);
    for (int i = 0; i < n_out; i++)
        out[i] = td_build_dummy(b);
    if (!td_build_ok(b))
        return;
    if (!op)
        td_build_fail(b, td_error(TD_EARG, "unknown op '%s'", name));
    else if (op->is_leaf)
        td_build_fail(b, td_error(TD_EARG, "%s requires a name: use td_input or td_param", name));
    else if (n_out != op->n_out)
        td_build_fail(b,
                      td_error(TD_EARG, "%s: has %d results, wanted %d", name, op->n_out, n_out));
    else if (n_in > TD_IN_MAX)
        td_build_fail(b, td_error(TD_EARG, "%s: more than %d operands", name, TD_IN_MAX));
    else if (attrs && !op->attr_bytes)
        td_build_fail(b, td_error(TD_EARG, "%s: has no attributes", name));
    else
        td_emit_n(b, op, attrs ? td_build_attr(b, op, attrs) : NULL, n_in, in, out);
}
