/*
 * native_amx_filter.c -- `reorder` of filters from the float32 blocks that gradients and optimizers
 * have to the pairs of bfloat16 that native_amx_conv.c reads
 *
 * In training this is done for every filter in every step, twice.  Blocks of 32 by 32 channels are
 * divided among the threads.
 */
#include "backend/native/amx/native_amx_filter.h"

#include <string.h>

#include "backend/native/amx/native_amx.h"
#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (x->dtype != TD_DT_F32 || y->dtype != TD_DT_BF16 || !td_amx_filter_loops_here())
        return td_error(TD_ENOKERNEL, "from %s to %s, or the processor has no AMX",
                        td_dtype_name(x->dtype), td_dtype_name(y->dtype));
    if (strcmp(x->layout, TD_AMX_GRADIENT) != 0 ||
        (strcmp(y->layout, TD_AMX_FILTER) != 0 && strcmp(y->layout, TD_AMX_FILTER_BACK) != 0))
        return td_error(TD_ENOKERNEL, "layout '%s' to '%s'", x->layout, y->layout);
    if (x->dim[0] % TD_AMX_CHANNELS || x->dim[1] % TD_AMX_CHANNELS)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld, wanted multiples of %d",
                        (long long)x->dim[1], (long long)x->dim[0], TD_AMX_CHANNELS);
    return TD_OK;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    const bool is_back = strcmp(p->node->out[0]->type.layout, TD_AMX_FILTER_BACK) == 0;
    const td_amx_filter f = { x->dim[0], x->dim[1], x->dim[2] * x->dim[3], is_back };
    td_amx_filter_loops *loops = td_amx_filter_loops_here();
#pragma omp parallel for collapse(2)
    for (int64_t k = 0; k < f.K / TD_AMX_CHANNELS; k++)
        for (int64_t c = 0; c < f.C / TD_AMX_CHANNELS; c++)
            loops(&f, k, c, args[0], args[1]);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_type *x = td_in_type(n, 0);
    const int64_t block = TD_AMX_CHANNELS * TD_AMX_CHANNELS;
    return td_work_share_of(x->dim[0] * x->dim[1] / block, (double)(block * x->dim[2] * x->dim[3]),
                            threads);
}

const td_kernel td_native_amx_filter = { .name = "native_amx_filter",
                                         .op = &td_op_reorder,
                                         .accepts = accepts,
                                         .run = run,
                                         .share = share };
