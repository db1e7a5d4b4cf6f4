/*
 * native_winograd_filter.c -- filters transformed for Winograd's F(4 x 4, 3 x 3)
 *
 *     w [K, C, 3, 3], plain or ABcd16b16a   ->   u [K/16][36][C][16]
 *     with grad_x: w rotated                ->   u [C/16][36][K][16]
 *
 * 16 neighbours of the first dimension of u are transformed at once, in float64, and rounded once:
 * the result depends on neither the layout nor the number of threads.  Training transforms filters
 * in every step; ABcd16b16a is the layout in which its filters and their gradients are kept.
 */
#include <string.h>

#include "backend/native/native.h"
#include "backend/native/native_winograd.h"
#include "tandem/program.h"

#define LANES   TD_WINO_LANES
#define TAPS    9
#define BLOCKED "ABcd16b16a"

static bool is_blocked(const td_type *w)
{
    return strcmp(w->layout, BLOCKED) == 0 && w->dim[0] % LANES == 0 && w->dim[1] % LANES == 0;
}

static td_status accepts(const td_node *n)
{
    const td_type *w = td_in_type(n, 0), *u = &n->out[0]->type;
    if (w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(w->dtype));
    if ((!td_type_is_plain(w) && !is_blocked(w)) || !td_type_is_plain(u))
        return td_error(TD_ENOKERNEL, "layout is not plain or " BLOCKED " with whole blocks");
    return TD_OK;
}

/* strides of w in elements */
typedef struct {
    int64_t outer, inner; /* dimensions 0 and 1; within a block if blocked */
    int64_t outer_block, inner_block;
    int64_t tap;
} strides;

static strides strides_of(const td_type *w)
{
    const int64_t C = w->dim[1];
    if (is_blocked(w))
        return (strides){ 1, LANES, TAPS * LANES * C, TAPS * LANES * LANES, LANES * LANES };
    return (strides){ TAPS * C, TAPS, TAPS * C * LANES, TAPS * LANES, 1 };
}

/* with K and C exchanged, and the taps in reverse order: add 8 taps to the address */
static strides rotated(strides s)
{
    return (strides){ s.inner, s.outer, s.inner_block, s.outer_block, -s.tap };
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_type *u_type = &p->node->out[0]->type, *w_type = td_in_type(p->node, 0);
    const bool grad_x = ((const td_winograd_filter_attr *)p->node->attr)->grad_x;
    const int64_t blocks = u_type->dim[0], C = u_type->dim[2];
    const td_native_wino_simd *simd = td_native_wino_simd_at(0);
    const strides to_k = strides_of(w_type), s = grad_x ? rotated(to_k) : to_k;
    const float *w = (const float *)args[0] + (grad_x ? (TAPS - 1) * to_k.tap : 0);
    float *u = args[1];
    td_winograd m;
    td_winograd_matrices(&m);
#pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < C; c++) {
            float copy[TAPS * LANES];
            const float *g =
                w + b * s.outer_block + c / LANES * s.inner_block + c % LANES * s.inner;
            int64_t tap = s.tap;
            if (s.outer != 1) {
                for (int t = 0; t < TAPS; t++)
                    for (int l = 0; l < LANES; l++)
                        copy[t * LANES + l] = g[t * tap + l * s.outer];
                g = copy;
                tap = LANES;
            }
            simd->filter(&m, g, tap, u + (b * TD_WINO_POINTS * C + c) * LANES, C * LANES);
        }
    return TD_OK;
}

const td_kernel td_native_winograd_filter = {
    .name = "native_winograd_filter",
    .op = &td_op_winograd_filter,
    .accepts = accepts,
    .run = run,
};

bool td_native_winograd_filter_preferred_layout(const td_node *n, td_node_layouts *out)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dtype != TD_DT_F32 || w->dim[0] % LANES || w->dim[1] % LANES)
        return false;
    *out = (td_node_layouts){ .in = { BLOCKED } };
    return true;
}
