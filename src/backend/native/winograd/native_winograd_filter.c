/*
 * native_winograd_filter.c -- filters transformed for F(4 x 4, 3 x 3) and F(2 x 2, 3 x 3)
 *
 *     w [K, C, 3, 3], plain or in blocks    ->   u [K/16][36][C][16]      with stride 2, too
 *     with grad_x: w rotated                ->   u [C/16][36][K][16]
 *     with tile 2                           ->   u [K/16][16][C/2][16][2], bfloat16
 *
 * 16 neighbours of the first dimension of u are transformed at once, in float64 (with tile 2 in
 * float32), and rounded once: the result depends on neither the layout nor the number of threads.
 * Training transforms filters in every step; ABcd16b16a, or ABcd8b8a without AVX-512, is the layout
 * in which its filters and their gradients are kept.
 */
#include <string.h>

#include "backend/native/common/native_kernel.h"
#include "backend/native/winograd/native_winograd.h"
#include "tandem/program.h"

#define LANES  TD_WINO_LANES
#define HALF   TD_WINO_HALF
#define TAPS   9
#define BLOCKS "ABcd16b16a"
#define HALVES "ABcd8b8a"

/* the width of the layout's blocks; 0 if it has none, or not whole blocks */
static int64_t width_of(const td_type *w)
{
    const int64_t width = strcmp(w->layout, BLOCKS) == 0   ? LANES
                          : strcmp(w->layout, HALVES) == 0 ? HALF
                                                           : 0;
    return width && w->dim[0] % width == 0 && w->dim[1] % width == 0 ? width : 0;
}

static bool is_small(const td_node *n)
{
    return td_winograd_form_of(n) == TD_WINO_SMALL;
}

static td_status accepts(const td_node *n)
{
    const td_type *w = td_in_type(n, 0), *u = &n->out[0]->type;
    if (is_small(n) && !td_native_wino_pairs())
        return td_error(TD_ENOKERNEL, "this processor has no fast products of bf16");
    if (w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(w->dtype));
    if ((!td_type_is_plain(w) && !width_of(w)) || !td_type_is_plain(u))
        return td_error(TD_ENOKERNEL,
                        "layout is not plain, " BLOCKS " or " HALVES " with whole blocks");
    return TD_OK;
}

/* the strides of a dimension of w in elements: from one index to the next within 8, from one 8 to
   the next within 16, from one 16 to the next */
typedef struct {
    int64_t lane, half, block;
} steps;

typedef struct {
    steps outer, inner; /* dimensions 0 and 1 */
    int64_t tap;
} strides;

static steps even_steps(int64_t lane)
{
    return (steps){ lane, lane * HALF, lane * LANES };
}

static strides strides_of(const td_type *w)
{
    const int64_t C = w->dim[1], width = width_of(w);
    const int64_t row = TAPS * width * C, block = TAPS * width * width; /* of blocks */
    if (width == LANES)
        return (strides){ { 1, HALF, row }, { LANES, LANES * HALF, block }, LANES * LANES };
    if (width == HALF)
        return (strides){ { 1, row, 2 * row }, { HALF, block, 2 * block }, HALF * HALF };
    return (strides){ even_steps(TAPS * C), even_steps(TAPS), 1 };
}

/* with K and C exchanged, and the taps in reverse order: add 8 taps to the address */
static strides rotated(strides s)
{
    return (strides){ s.inner, s.outer, -s.tap };
}

static int64_t offset_of(const steps *s, int64_t i)
{
    return i / LANES * s->block + i % LANES / HALF * s->half + i % HALF * s->lane;
}

/* the taps of 16 filters, one after the other */
static void gather(const strides *s, const float *g, float *out)
{
    for (int t = 0; t < TAPS; t++)
        for (int h = 0; h < LANES / HALF; h++)
            for (int l = 0; l < HALF; l++)
                *out++ = g[t * s->tap + h * s->outer.half + l * s->outer.lane];
}

/* what a kernel reads */
typedef struct {
    strides at;
    const float *w;   /* the first tap */
    bool is_adjacent; /* 16 filters lie side by side */
    int64_t step;     /* floats from one tap to the next of what taps_of returns */
} filters;

static filters filters_of(const td_node *n, const float *w)
{
    const bool grad_x = ((const td_winograd_filter_attr *)n->attr)->grad_x;
    const strides to_k = strides_of(td_in_type(n, 0)), s = grad_x ? rotated(to_k) : to_k;
    const bool is_adjacent = s.outer.lane == 1 && s.outer.half == HALF;
    return (filters){ s, w + (grad_x ? (TAPS - 1) * to_k.tap : 0), is_adjacent,
                      is_adjacent ? s.tap : LANES };
}

/* the taps of channel c of block b of 16 filters, f->step floats apart; `copy`: room for them */
static const float *taps_of(const filters *f, int64_t b, int64_t c, float copy[TAPS * LANES])
{
    const float *g = f->w + b * f->at.outer.block + offset_of(&f->at.inner, c);
    if (f->is_adjacent)
        return g;
    gather(&f->at, g, copy);
    return copy;
}

static void run_large(td_winograd_form form, const filters *f, const td_type *u_type, float *u)
{
    const int64_t blocks = u_type->dim[0], C = u_type->dim[2];
    const td_native_wino_simd *simd = td_native_wino_simd_at(TD_DT_F32, 0);
    td_winograd m;
    td_winograd_matrices(form, &m);
#pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < C; c++) {
            float copy[TAPS * LANES];
            simd->forms[form].filter(&m, taps_of(f, b, c, copy), f->step,
                                     u + (b * TD_WINO_POINTS * C + c) * LANES, C * LANES);
        }
}

static void run_small(const filters *f, const td_type *u_type, uint16_t *u)
{
    const int64_t blocks = u_type->dim[0], pairs = u_type->dim[2], line = u_type->dim[3];
    const td_native_wino_simd *simd = td_native_wino_pairs();
#pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < pairs; c++) {
            float even[TAPS * LANES], odd[TAPS * LANES];
            simd->filter_pair(taps_of(f, b, 2 * c, even), taps_of(f, b, 2 * c + 1, odd), f->step,
                              u + (b * TD_WINO_SMALL_POINTS * pairs + c) * line, pairs * line);
        }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_type *u = &p->node->out[0]->type;
    const filters f = filters_of(p->node, args[0]);
    if (is_small(p->node))
        run_small(&f, u, args[1]);
    else
        run_large(td_winograd_form_of(p->node), &f, u, args[1]);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_type *u = &n->out[0]->type;
    return td_work_share_of(u->dim[0] * u->dim[2], TAPS * LANES, threads);
}

const td_kernel td_native_winograd_filter = {
    .name = "native_winograd_filter",
    .op = &td_op_winograd_filter,
    .accepts = accepts,
    .run = run,
    .share = share,
};

bool td_native_winograd_filter_preferred_layout(const td_node *n, td_node_layouts *out)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dtype != TD_DT_F32 || w->dim[0] % LANES || w->dim[1] % LANES)
        return false;
    const int64_t width = width_of(w);
    const bool is_half = width ? width == HALF : td_native_wino_prefers_halves(w);
    *out = (td_node_layouts){ 0 };
    memcpy(out->in[0], is_half ? HALVES : BLOCKS, is_half ? sizeof HALVES : sizeof BLOCKS);
    return true;
}
