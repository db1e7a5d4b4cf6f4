/*
 * native_rgb.c -- `reorder` of float32 images of three channels to bfloat16 with channels last
 *
 * The first convolution reads them so on processors with AMX.  oneDNN's general loops take as long
 * as that convolution.
 */
#include "backend/native/elementwise/native_rgb.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

enum { CHANNELS = 3 };

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (x->dtype != TD_DT_F32 || y->dtype != TD_DT_BF16 || !td_rgb_loop_here())
        return td_error(TD_ENOKERNEL, "from %s to %s, or no loop for this machine",
                        td_dtype_name(x->dtype), td_dtype_name(y->dtype));
    if (x->rank != 4 || x->dim[1] != CHANNELS || !td_type_is_plain(x) ||
        strcmp(y->layout, TD_CHANNELS_LAST) != 0)
        return td_error(TD_ENOKERNEL, "not %d channels from plain order to '%s'", CHANNELS,
                        TD_CHANNELS_LAST);
    return TD_OK;
}

/* all pixels of an image are a plane */
static td_native_planes divide(const td_type *x, int threads)
{
    return (td_native_planes){ x->dim[0], x->dim[2] * x->dim[3], TD_NATIVE_GRAIN * 2, threads };
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_native_planes d = divide(td_in_type(p->node, 0), td_threads());
    const float *x = args[0];
    uint16_t *y = args[1];
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span s = td_native_span_first(&d, t); td_native_span_next(&d, &s);) {
            const float *first = x + s.plane * CHANNELS * d.area + s.from;
            const float *const plane[] = { first, first + d.area, first + 2 * d.area };
            td_rgb_loop_here()(s.n, plane, y + (s.plane * d.area + s.from) * CHANNELS);
        }
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_native_planes d = divide(td_in_type(n, 0), threads);
    return td_native_planes_share(&d);
}

const td_kernel td_native_rgb = {
    .name = "native_rgb", .op = &td_op_reorder, .accepts = accepts, .run = run, .share = share
};
