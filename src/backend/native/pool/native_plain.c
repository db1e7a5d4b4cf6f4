/*
 * native_plain.c -- plain maps plane by plane, each with one number: global average pooling, biases
 *
 *     global_avg_pool        x [N, C, H, W] -> y [N, C]       the mean of a plane
 *     global_avg_pool_grad   dy [N, C] -> dx [N, C, H, W]     dy / (H W) in all of a plane
 *     bias_add               x [N, C, H, W], bias [C] -> y    the channel's bias in all of a plane
 *
 * native_pool.c and native_heads.c have the layouts with channels in vector lanes.  Half types are
 * widened in pieces; sums are float32 within a piece and float64 over the pieces of a plane.
 */
#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/elementwise/native_act.h"
#include "backend/native/simd/native_rows.h"
#include "backend/native/simd/native_simd.h"

#define PIECE 512

typedef struct {
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    int64_t C, planes, area;
    const td_native_simd *simd;
    const td_native_rows *rows;
} maps;

static td_status maps_of(const td_type *t, maps *m)
{
    if (!td_native_knows(t->dtype) || t->rank != 4 || !td_type_is_plain(t))
        return td_error(TD_ENOKERNEL, "not plain maps of float32 or a half type");
    *m = (maps){ .dtype = t->dtype,
                 .each = (int64_t)td_dtype_bytes(t->dtype),
                 .C = t->dim[1],
                 .planes = t->dim[0] * t->dim[1],
                 .area = t->dim[2] * t->dim[3],
                 .simd = td_native_simd_for(t->dtype, 16),
                 .rows = td_native_rows_here() };
    return TD_OK;
}

static double number(const maps *m, const void *tensor, int64_t i)
{
    float wide[1];
    return (double)*td_native_floats(m->simd, 1, (const char *)tensor + i * m->each, wide);
}

static td_work_share share_of(const td_type *t, int threads)
{
    maps m;
    TD_CHECK(maps_of(t, &m) == TD_OK);
    return td_work_share_of(m.planes, (double)m.area, threads);
}

/* --- global average --------------------------------------------------------------------------- */

static td_status accepts_pool(const td_node *n)
{
    maps m;
    TD_TRY(maps_of(td_in_type(n, 0), &m));
    return td_native_check_alike(n, td_in_type(n, 0));
}

static void pool_plane(const maps *m, const char *x, char *y)
{
    float room[PIECE];
    double sum = 0;
    for (int64_t i = 0; i < m->area; i += PIECE) {
        const int64_t n = smaller(m->area - i, PIECE);
        sum += (double)m->rows->sum(n, td_native_floats(m->simd, n, x + i * m->each, room));
    }
    const float mean = (float)(sum / (double)m->area);
    td_native_put(m->simd, 1, &mean, y);
}

static td_status run_pool(const td_prepared *p, void *const *args)
{
    maps m;
    TD_TRY(maps_of(td_in_type(p->node, 0), &m));
    const char *x = args[0];
    char *y = args[1];
#pragma omp parallel for if (m.planes * m.area > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < m.planes; k++)
        pool_plane(&m, x + k * m.area * m.each, y + k * m.each);
    return TD_OK;
}

static td_work_share share_pool(const td_node *n, int threads)
{
    return share_of(td_in_type(n, 0), threads);
}

static td_status accepts_pool_grad(const td_node *n)
{
    maps m;
    const td_type *dy = td_in_type(n, 0);
    TD_TRY(maps_of(&n->out[0]->type, &m));
    return dy->dtype == m.dtype && td_type_is_plain(dy)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "dy is not plain %s", td_dtype_name(m.dtype));
}

static void fill_plane(const maps *m, float value, char *dx)
{
    float room[PIECE + TD_NATIVE_ROW_STEP]; /* `repeat` writes whole steps */
    m->rows->repeat(smaller(m->area, PIECE), value, room);
    for (int64_t i = 0; i < m->area; i += PIECE)
        td_native_put(m->simd, smaller(m->area - i, PIECE), room, dx + i * m->each);
}

static td_status run_pool_grad(const td_prepared *p, void *const *args)
{
    maps m;
    TD_TRY(maps_of(&p->node->out[0]->type, &m));
    const double by = 1.0 / (double)m.area;
    char *dx = args[p->node->n_in];
#pragma omp parallel for if (m.planes * m.area > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < m.planes; k++)
        fill_plane(&m, (float)(number(&m, args[0], k) * by), dx + k * m.area * m.each);
    return TD_OK;
}

/* for the kernels whose result is maps */
static td_work_share share_result(const td_node *n, int threads)
{
    return share_of(&n->out[0]->type, threads);
}

/* --- biases ----------------------------------------------------------------------------------- */

static td_status accepts_bias(const td_node *n)
{
    maps m;
    TD_TRY(maps_of(td_in_type(n, 0), &m));
    if (!td_type_equal(&n->out[0]->type, td_in_type(n, 0)))
        return td_error(TD_ENOKERNEL, "the result has another type or layout");
    return td_in_type(n, 1)->dtype == m.dtype
               ? TD_OK
               : td_error(TD_ENOKERNEL, "the bias is %s", td_dtype_name(td_in_type(n, 1)->dtype));
}

static void add_plane(const maps *m, float bias, const char *x, char *y)
{
    const td_native_act_simd *loops = td_native_act_simd_at(0);
    float room[PIECE];
    for (int64_t i = 0; i < m->area; i += PIECE) {
        const int64_t n = smaller(m->area - i, PIECE), at = i * m->each;
        float *to = m->dtype == TD_DT_F32 ? (float *)(void *)(y + at) : room;
        loops->binary[TD_BINARY_add](n, td_native_floats(m->simd, n, x + at, room), false, &bias,
                                     true, to);
        td_native_put(m->simd, n, to, y + at);
    }
}

static td_status run_bias(const td_prepared *p, void *const *args)
{
    maps m;
    TD_TRY(maps_of(td_in_type(p->node, 0), &m));
    const char *x = args[0];
    char *y = args[2];
#pragma omp parallel for if (m.planes * m.area > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < m.planes; k++) {
        const int64_t at = k * m.area * m.each;
        add_plane(&m, (float)number(&m, args[1], k % m.C), x + at, y + at);
    }
    return TD_OK;
}

#define KERNEL(op_, accepts_, run_, share_)                                                        \
    const td_kernel td_native_##op_##_plain = { .name = "native_" #op_ "_plain",                   \
                                                .op = &td_op_##op_,                                \
                                                .accepts = accepts_,                               \
                                                .run = run_,                                       \
                                                .share = share_ }

KERNEL(global_avg_pool, accepts_pool, run_pool, share_pool);
KERNEL(global_avg_pool_grad, accepts_pool_grad, run_pool_grad, share_result);
KERNEL(bias_add, accepts_bias, run_bias, share_result);
