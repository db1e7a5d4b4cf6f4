/*
 * gpu_normalize.c -- bytes of images to normalised floats
 */
#include <string.h>

#include "backend/gpu/gpu.h"

static bool is_channels_last(const td_type *t)
{
    return strcmp(t->layout, "acdb") == 0;
}

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (!td_type_is_plain(x) || (!td_type_is_plain(y) && !is_channels_last(y)))
        return td_error(TD_ENOKERNEL, "layouts '%s' and '%s'", x->layout, y->layout);
    if (y->dtype != TD_DT_F32 && !td_dtype_is_half(y->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(y->dtype));
    return TD_OK;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_type *y = &p->node->out[0]->type;
    td_normalize_values v;
    TD_TRY(td_normalize_constants(p->node, &v));
    td_gpu_normalize_bytes g = { .y = { .dtype = y->dtype,
                                        .is_channels_last = is_channels_last(y),
                                        .n = y->dim[0],
                                        .channels = y->dim[1],
                                        .area = y->dim[2] * y->dim[3] },
                                 .x = args[0],
                                 .to = args[1] };
    memcpy(g.mean, v.mean, sizeof v.mean);
    memcpy(g.std, v.std, sizeof v.std);
    return td_gpu_status(td_gpu()->normalize_bytes(&g));
}

_Static_assert((int)TD_NORMALIZE_CHANNELS == (int)TD_GPU_CHANNELS, "constants of each channel");

const td_kernel td_gpu_normalize = {
    .name = "cuda_normalize", .op = &td_op_normalize, .accepts = accepts, .run = run
};
