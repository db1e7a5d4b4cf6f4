/*
 * native_kernel.c -- checks that many kernels make of a node
 */
#include "backend/native/common/native_kernel.h"

#include <string.h>

#include "base/machine.h"

bool td_native_knows(td_dtype dtype)
{
    return dtype == TD_DT_F32 || dtype == TD_DT_BF16 || dtype == TD_DT_F16;
}

td_status td_native_check_no_amx(void)
{
    return td_cpu_bf16_rate() == TD_BF16_RATE_MATRICES
               ? td_error(TD_ENOKERNEL, "the processor has AMX, which oneDNN uses")
               : TD_OK;
}

td_status td_native_check_layouts(const td_node *n, const td_node_layouts *l)
{
    for (int i = 0; i < n->n_in; i++)
        if (strcmp(td_in_type(n, i)->layout, l->in[i]) != 0)
            return td_error(TD_ENOKERNEL, "operand %d does not have layout '%s'", i, l->in[i]);
    if (strcmp(n->out[0]->type.layout, l->out) != 0)
        return td_error(TD_ENOKERNEL, "the result does not have layout '%s'", l->out);
    return TD_OK;
}

void td_native_release_state(td_prepared *p)
{
    td_free(p->state);
    p->state = NULL;
}

bool td_native_is_streamed(int64_t n_bytes)
{
    return n_bytes > (int64_t)24 << 20; /* 24 MiB: about what a shared last-level cache retains */
}
