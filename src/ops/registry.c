/*
 * registry.c -- the table of ops, made from ops.def
 */
#include <string.h>

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
