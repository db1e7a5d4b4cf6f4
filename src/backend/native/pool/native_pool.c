/*
 * native_pool.c -- max pooling and global average pooling on channel blocks
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

/* --- max pooling: blocked layouts, one row at a time ------------------------------------------ */

static td_native_window window_of(const td_node *n, const td_type *x, const td_type *y)
{
    const td_pool_attr *a = n->attr;
    return (td_native_window){ .H = x->dim[2],
                               .W = x->dim[3],
                               .P = y->dim[2],
                               .Q = y->dim[3],
                               .kernel = a->kernel,
                               .stride = a->stride,
                               .pad = a->pad };
}

static td_status accepts_max(const td_node *n)
{
    td_native_shape s;
    const td_type *x = td_in_type(n, 0);
    const td_pool_attr *a = n->attr;
    if (td_pool_width(a) != a->kernel)
        return td_error(TD_ENOKERNEL, "windows are not square");
    TD_TRY(td_native_accepts(n, x));
    TD_TRY(td_native_shape_of(x, &s));
    if (s.plane.stride != s.lanes)
        return td_error(TD_ENOKERNEL, "layout is %s", x->layout);
    return TD_OK;
}

static td_status run_max(const td_prepared *p, void *const *args)
{
    const td_native_window v = window_of(p->node, td_in_type(p->node, 0), &p->node->out[0]->type);
    td_native_shape s;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &s));
    const int64_t pixel = s.lanes * s.each;
    const char *x = args[0];
    char *y = args[1];
    uint8_t *where = args[2];
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t plane = 0; plane < s.N * s.CB; plane++)
        for (int64_t row = 0; row < v.P; row++) {
            const int64_t to = (plane * v.P + row) * v.Q;
            simd->max_pool_row(&v, x + plane * v.H * v.W * pixel, row, y + to * pixel,
                               where + to * s.lanes);
        }
    return TD_OK;
}

/* rows of the planes of a type */
static td_work_share share_rows(const td_type *t, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_shape_of(t, &s) == TD_OK);
    return td_work_share_of(s.N * s.CB * s.H, (double)(s.W * s.lanes), threads);
}

static td_work_share share_max(const td_node *n, int threads)
{
    return share_rows(&n->out[0]->type, threads);
}

static td_status run_max_grad(const td_prepared *p, void *const *args)
{
    td_native_window v = window_of(p->node, &p->node->out[0]->type, td_in_type(p->node, 0));
    td_native_shape s;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &s));
    const int64_t pixel = s.lanes * s.each;
    const char *dy = args[0];
    const uint8_t *where = args[1];
    char *dx = args[3];
    v.is_streamed = td_native_is_streamed(s.N * s.CB * v.H * v.W * pixel);
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t plane = 0; plane < s.N * s.CB; plane++)
        for (int64_t row = 0; row < v.H; row++) {
            const int64_t from = plane * v.P * v.Q;
            simd->max_pool_grad_row(&v, dy + from * pixel, where + from * s.lanes, row,
                                    dx + (plane * v.H + row) * v.W * pixel);
        }
    return TD_OK;
}

/* --- global average --------------------------------------------------------------------------- */

static td_status accepts_global(const td_node *n)
{
    return td_native_accepts_padded(n, td_in_type(n, 0));
}

static td_status run_global(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_padded_shape_of(td_in_type(p->node, 0), &s));
    const double by = 1.0 / (double)s.plane.n_pixels;
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t cb = 0; cb < s.CB; cb++) {
            td_native_room sums;
            simd->sum(&s.plane, td_native_plane_at(&s, args[0], n, cb), by, &sums);
            td_native_block_put(&s, &p->node->out[0]->type, args[1], n, cb, &sums);
        }
    return TD_OK;
}

static td_work_share share_global(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_padded_shape_of(td_in_type(n, 0), &s) == TD_OK);
    return td_work_share_of(s.N * s.CB, (double)(s.plane.n_pixels * s.lanes), threads);
}

static td_status accepts_global_grad(const td_node *n)
{
    td_native_shape s;
    const td_type *dx = &n->out[0]->type, *dy = td_in_type(n, 0);
    TD_TRY(td_native_padded_shape_of(dx, &s));
    if (dy->dtype != dx->dtype || !td_type_is_plain(dy))
        return td_error(TD_ENOKERNEL, "dy is not plain %s", td_dtype_name(dx->dtype));
    return TD_OK;
}

static td_status run_global_grad(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_padded_shape_of(&p->node->out[0]->type, &s));
    s.plane.is_streamed = td_native_is_plane_streamed(&s);
    const float by = 1.0f / (float)s.plane.n_pixels;
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
    const td_native_planes d = td_native_planes_of(&s, TD_NATIVE_GRAIN, td_threads());
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span k = td_native_span_first(&d, t); td_native_span_next(&d, &k);) {
            const td_native_part q = td_native_part_of(&s, &k);
            td_native_room room;
            simd->fill(&q.plane,
                       td_native_block_at(&s, td_in_type(p->node, 0), args[0], q.n, q.cb, &room),
                       by, (char *)args[2] + q.at * s.each);
        }
    return TD_OK;
}

static td_work_share share_global_grad(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_padded_shape_of(&n->out[0]->type, &s) == TD_OK);
    return td_native_shape_share(&s, TD_NATIVE_GRAIN, threads);
}

TD_NATIVE_KERNEL(max_pool2d, accepts_max, NULL, run_max, share_max);
TD_NATIVE_KERNEL(max_pool2d_grad, accepts_max, NULL, run_max_grad, share_max);
TD_NATIVE_KERNEL(global_avg_pool, accepts_global, NULL, run_global, share_global);
TD_NATIVE_KERNEL(global_avg_pool_grad, accepts_global_grad, NULL, run_global_grad,
                 share_global_grad);
