/*
 * native_resize.c -- bilinear and bicubic resize, and its gradient
 *
 * Both are a sparse matrix for the rows and one for the columns; the gradient's are the transposed
 * ones.  `prepare` makes them.  A row of the result is first a sum of rows, then of its pixels:
 *
 *     scratch  [threads][W lanes] f32      the sum of rows
 */
#include <omp.h>
#include <string.h>

#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/simd/native_simd.h"
#include "ops/resize_taps.h"

#define LANES_MAX 16

/* row i of the matrix: the numbers first[i] to first[i + 1] - 1 */
typedef struct {
    int64_t *first; /* [rows + 1] */
    int64_t *at;
    float *weight;
} matrix;

typedef struct {
    matrix rows, columns;
} state;

/* planes of pixels of `lanes` numbers; plain order has one */
static td_status planes_of(const td_type *t, td_native_shape *s)
{
    if (!td_type_is_plain(t))
        return td_native_shape_of(t, s);
    if (t->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s in plain order", td_dtype_name(t->dtype));
    const int64_t area = t->dim[2] * t->dim[3];
    *s = (td_native_shape){ .dtype = t->dtype,
                            .each = sizeof(float),
                            .N = t->dim[0],
                            .C = t->dim[1],
                            .CB = t->dim[1],
                            .H = t->dim[2],
                            .W = t->dim[3],
                            .lanes = 1,
                            .channels = 1,
                            .image = t->dim[1] * area,
                            .block = area };
    s->plane.n_pixels = area;
    s->plane.stride = 1;
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_native_shape s;
    TD_TRY(planes_of(x, &s));
    if (strcmp(x->layout, y->layout) != 0 || x->dtype != y->dtype)
        return td_error(TD_ENOKERNEL, "operand and result have different layouts");
    return TD_OK;
}

/* --- matrices --------------------------------------------------------------------------------- */

static td_status matrix_new(int64_t rows, int64_t most, matrix *m)
{
    m->first = td_alloc((size_t)rows + 1, sizeof *m->first);
    m->at = td_alloc((size_t)most, sizeof *m->at);
    m->weight = td_alloc((size_t)most, sizeof *m->weight);
    return m->first && m->at && m->weight ? TD_OK : TD_ENOMEM;
}

static td_status forward_matrix(const td_resize_axis *a, matrix *m)
{
    int64_t n = 0;
    TD_TRY(matrix_new(a->to, a->to * TD_RESIZE_TAPS, m));
    for (int64_t i = 0; i < a->to; i++) {
        const td_resize_taps t = td_resize_taps_of(a, i);
        m->first[i] = n;
        for (int k = 0; k < t.n; k++, n++) {
            m->at[n] = t.at[k];
            m->weight[n] = (float)t.weight[k];
        }
    }
    m->first[a->to] = n;
    return TD_OK;
}

/* counts the taps of each source pixel, then puts each where those before it end */
static td_status backward_matrix(const td_resize_axis *a, matrix *m)
{
    TD_TRY(matrix_new(a->from, a->to * TD_RESIZE_TAPS, m));
    for (int64_t i = 0; i < a->to; i++) {
        const td_resize_taps t = td_resize_taps_of(a, i);
        for (int k = 0; k < t.n; k++)
            m->first[t.at[k] + 1]++;
    }
    for (int64_t i = 0; i < a->from; i++)
        m->first[i + 1] += m->first[i];
    for (int64_t i = 0; i < a->to; i++) {
        const td_resize_taps t = td_resize_taps_of(a, i);
        for (int k = 0; k < t.n; k++) {
            const int64_t n = m->first[t.at[k]]++;
            m->at[n] = i;
            m->weight[n] = (float)t.weight[k];
        }
    }
    memmove(m->first + 1, m->first, (size_t)a->from * sizeof *m->first);
    m->first[0] = 0;
    return TD_OK;
}

static void matrix_release(matrix *m)
{
    td_free(m->first);
    td_free(m->at);
    td_free(m->weight);
}

static void release(td_prepared *p)
{
    state *s = p->state;
    if (!s)
        return;
    matrix_release(&s->rows);
    matrix_release(&s->columns);
    td_free(s);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const bool is_grad = n->op == &td_op_resize_grad;
    const td_type *x = td_in_type(n, is_grad);
    const td_resize_axis rows = td_resize_axis_of(n->attr, x, false);
    const td_resize_axis columns = td_resize_axis_of(n->attr, x, true);
    td_status (*make)(const td_resize_axis *, matrix *) =
        is_grad ? backward_matrix : forward_matrix;
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    td_native_shape from;
    td_status st = planes_of(td_in_type(n, 0), &from);
    TD_OUT(st);
    TD_OUT(make(&rows, &s->rows));
    TD_OUT(make(&columns, &s->columns));
    out->scratch_bytes =
        (size_t)omp_get_max_threads() * (size_t)(from.W * from.lanes) * sizeof(float);
out:
    if (st != TD_OK) {
        release(out);
        out->state = NULL;
    }
    return st;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* `lanes` numbers as float32 */
static const float *load(const td_native_shape *s, const void *x, float *room)
{
    if (s->dtype == TD_DT_F32)
        return x;
    td_native_simd_for(s->dtype, s->lanes)->widen(s->lanes, x, room, false);
    return room;
}

/* sum [W lanes] = the rows of x by their weights */
static void add_rows(const td_native_shape *s, const matrix *m, int64_t i, const char *x,
                     float *sum)
{
    const int lanes = s->lanes;
    const int64_t step = s->plane.stride * s->each;
    memset(sum, 0, (size_t)(s->W * lanes) * sizeof *sum);
    for (int64_t k = m->first[i]; k < m->first[i + 1]; k++) {
        const char *row = x + m->at[k] * s->W * step;
        const float by = m->weight[k];
        for (int64_t j = 0; j < s->W; j++) {
            float room[LANES_MAX];
            const float *from = load(s, row + j * step, room);
            for (int c = 0; c < lanes; c++)
                sum[j * lanes + c] += by * from[c];
        }
    }
}

/* a row of the result from the sum of rows */
static void add_columns(const td_native_shape *s, const matrix *m, const float *sum, char *y)
{
    const int64_t step = s->plane.stride * s->each;
    for (int64_t j = 0; j < s->W; j++) {
        float pixel[LANES_MAX] = { 0 };
        for (int64_t k = m->first[j]; k < m->first[j + 1]; k++)
            for (int c = 0; c < s->lanes; c++)
                pixel[c] += m->weight[k] * sum[m->at[k] * s->lanes + c];
        if (s->dtype == TD_DT_F32)
            memcpy(y + j * step, pixel, (size_t)s->lanes * sizeof *pixel);
        else
            td_native_simd_for(s->dtype, s->lanes)->narrow(s->lanes, pixel, y + j * step, false);
    }
}

static td_status run_planes(const td_prepared *p, const void *from, void *to, float *scratch)
{
    td_native_shape x, y;
    const state *m = p->state;
    TD_TRY(planes_of(td_in_type(p->node, 0), &x));
    TD_TRY(planes_of(&p->node->out[0]->type, &y));
#pragma omp parallel for collapse(3)
    for (int64_t n = 0; n < x.N; n++)
        for (int64_t cb = 0; cb < x.CB; cb++)
            for (int64_t i = 0; i < y.H; i++) {
                float *sum = scratch + omp_get_thread_num() * x.W * x.lanes;
                add_rows(&x, &m->rows, i, td_native_plane_at(&x, from, n, cb), sum);
                add_columns(&y, &m->columns, sum,
                            (char *)td_native_plane_to(&y, to, n, cb) +
                                i * y.W * y.plane.stride * y.each);
            }
    return TD_OK;
}

static td_status run_resize(const td_prepared *p, void *const *args)
{
    return run_planes(p, args[0], args[1], args[2]);
}

static td_status run_resize_grad(const td_prepared *p, void *const *args)
{
    return run_planes(p, args[0], args[2], args[3]);
}

/* rows of the result */
static td_work_share share(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(planes_of(&n->out[0]->type, &s) == TD_OK);
    return td_work_share_of(s.N * s.CB * s.H, (double)(s.W * s.lanes), threads);
}

#define KERNEL(op_, run_)                                                                          \
    const td_kernel td_native_##op_ = { .name = "native_" #op_,                                    \
                                        .op = &td_op_##op_,                                        \
                                        .accepts = accepts,                                        \
                                        .prepare = prepare,                                        \
                                        .run = run_,                                               \
                                        .release = release,                                        \
                                        .share = share }

KERNEL(resize, run_resize);
KERNEL(resize_grad, run_resize_grad);
