/*
 * ref_winograd.c -- winograd_filter and conv2d_winograd[_scaled, _grad_x, _grad_w] by definition,
 * image by image
 *
 *     v [36, C, tiles]  =  B' x B        every tile of every channel
 *     m [36, K, tiles]  =  u v           36 matrix products; 16 with {tile=2}, 81 with {stride=2}
 *     y [K, P, Q]       =  A' m A  (+ bias + residual, relu)
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

#define POINTS TD_WINO_STRIDED_POINTS /* at most */
#define LANES  TD_WINO_LANES

/* --- filters ---------------------------------------------------------------------------------- */

/* u[36] = G g G', element p of it at u[p * step] */
static void transform_filter(const td_winograd *m, const double *g, double *u, int64_t step)
{
    for (int i = 0; i < m->filters; i++)
        for (int j = 0; j < m->filters; j++) {
            double sum = 0;
            for (int r = 0; r < 3; r++)
                for (int s = 0; s < 3; s++)
                    sum += m->g[i][r] * g[r * 3 + s] * m->g[j][s];
            u[(i * m->filters + j) * step] = sum;
        }
}

/* the filter's point of point i along a side */
static int64_t filter_point(const td_winograd *m, int64_t i)
{
    return i < m->filters ? i : m->filters - 1;
}

/* channels that are interleaved in u */
static int64_t together_of(const td_winograd *m)
{
    return m->filters == TD_WINO_SMALL_SIDE ? 2 : 1;
}

static void winograd_filter(const td_node *n, void *const *a)
{
    const td_type *type = td_in_type(n, 0);
    const td_winograd_filter_attr *attr = n->attr;
    const bool grad_x = attr->grad_x;
    const int64_t K = type->dim[grad_x ? 1 : 0], C = type->dim[grad_x ? 0 : 1];
    const double *w = a[0];
    double *u = a[1];
    td_winograd m;
    td_winograd_matrices(td_winograd_form_of(n), &m);
    const int64_t together = together_of(&m), points = m.filters * m.filters;
#pragma omp parallel for
    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++) {
            double g[9];
            for (int t = 0; t < 9; t++)
                g[t] = grad_x ? w[(c * K + k) * 9 + 8 - t] : w[(k * C + c) * 9 + t];
            const int64_t lane = k % LANES * together + c % together;
            transform_filter(&m, g,
                             u + (k / LANES * points * C + c / together * together) * LANES + lane,
                             C * LANES);
        }
}

/* --- convolution ------------------------------------------------------------------------------ */

typedef struct {
    int64_t C, H, W, K, P, Q, pad;
    td_winograd_form form;
    td_winograd_side rows, cols;
    int64_t in_step, out_step; /* inputs and results of one unit of a tile's size */
    int64_t tiles;             /* number of tiles in one image */
} shape;

/* the shape of a convolution from x to y; of conv2d_winograd_grad_x x is dy and y is dx */
static shape shape_between(const td_node *n, const td_type *x, const td_type *y)
{
    const td_winograd_form form = td_winograd_form_of(n);
    const bool is_transposed = form == TD_WINO_TRANSPOSED;
    const td_type *tiled = is_transposed ? x : y;
    shape v = { .C = x->dim[1],
                .H = x->dim[2],
                .W = x->dim[3],
                .K = y->dim[1],
                .P = y->dim[2],
                .Q = y->dim[3],
                .pad = is_transposed ? 0 : ((const td_winograd_attr *)n->attr)->pad,
                .form = form,
                .rows = td_winograd_side_of(tiled->dim[2], form),
                .cols = td_winograd_side_of(tiled->dim[3], form),
                .in_step = form == TD_WINO_STRIDED ? 2 : 1,
                .out_step = is_transposed ? 2 : 1 };
    v.tiles = v.rows.tiles * v.cols.tiles;
    return v;
}

static shape shape_of(const td_node *n)
{
    return shape_between(n, td_in_type(n, 0), &n->out[0]->type);
}

static int64_t conv_work(const td_node *n)
{
    const shape v = shape_of(n);
    const int64_t side = td_winograd_points(v.form);
    return side * side * (v.C + v.K) * v.tiles;
}

/* a tile: its first input, which may be in the padding, and its results, rows [p, p_end) and
   columns [q, q_end) */
typedef struct {
    int64_t h, w, p, q, p_end, q_end;
} box;

static box box_of(const shape *v, int64_t tile)
{
    const int64_t row = tile / v->cols.tiles, col = tile % v->cols.tiles;
    const int64_t first_row = td_winograd_first(&v->rows, v->form, row);
    const int64_t first_col = td_winograd_first(&v->cols, v->form, col);
    const int64_t p_end = v->out_step * td_winograd_first(&v->rows, v->form, row + 1);
    const int64_t q_end = v->out_step * td_winograd_first(&v->cols, v->form, col + 1);
    return (box){ .h = v->in_step * first_row - v->pad,
                  .w = v->in_step * first_col - v->pad,
                  .p = v->out_step * first_row,
                  .q = v->out_step * first_col,
                  .p_end = p_end < v->P ? p_end : v->P,
                  .q_end = q_end < v->Q ? q_end : v->Q };
}

/* one tile of channel c: v[36] at step C * tiles */
static void transform_input(const td_winograd *m, const shape *v, const double *x, int64_t tile,
                            double *out)
{
    const int side = m->side, inputs = m->inputs;
    const box b = box_of(v, tile);
    double d[TD_WINO_STRIDED_SIDE][TD_WINO_STRIDED_SIDE] = { { 0 } };
    double half[TD_WINO_STRIDED_SIDE][TD_WINO_STRIDED_SIDE] = { { 0 } };
    for (int r = 0; r < inputs; r++)
        for (int s = 0; s < inputs; s++)
            if (b.h + r >= 0 && b.h + r < v->H && b.w + s >= 0 && b.w + s < v->W)
                d[r][s] = x[(b.h + r) * v->W + b.w + s];
    for (int i = 0; i < side; i++)
        for (int s = 0; s < inputs; s++)
            for (int r = 0; r < inputs; r++)
                half[i][s] += m->bt[i][r] * d[r][s];
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            double sum = 0;
            for (int s = 0; s < inputs; s++)
                sum += half[i][s] * m->bt[j][s];
            out[(i * side + j) * v->C * v->tiles] = sum;
        }
}

/* the results of one tile of filter k; results inside the image are added to y */
static void transform_output(const td_winograd *m, const shape *v, const double *in, int64_t tile,
                             double *y)
{
    const int side = m->side;
    const box b = box_of(v, tile);
    for (int64_t r = 0; r < b.p_end - b.p; r++)
        for (int64_t s = 0; s < b.q_end - b.q; s++)
            for (int i = 0; i < side; i++)
                for (int j = 0; j < side; j++)
                    y[(b.p + r) * v->Q + b.q + s] +=
                        m->at[r][i] * in[(i * side + j) * v->K * v->tiles] * m->at[s][j];
}

/* y [K, P, Q] += */
static void convolve(const td_winograd *m, const shape *v, const double *x, double *u, double *y,
                     double *work)
{
    const int64_t points = m->side * m->side, together = together_of(m);
    const int64_t filters = m->filters * m->filters;
    const int64_t blocks = v->K / LANES, products = points * v->K * v->tiles;
    double *in = work, *out = work + points * v->C * v->tiles;
#pragma omp parallel for
    for (int64_t c = 0; c < v->C; c++)
        for (int64_t t = 0; t < v->tiles; t++)
            transform_input(m, v, x + c * v->H * v->W, t, in + c * v->tiles + t);
    memset(out, 0, (size_t)products * sizeof *out);
#pragma omp parallel for collapse(2)
    for (int64_t p = 0; p < points; p++)
        for (int64_t kb = 0; kb < blocks; kb++)
            for (int64_t j = 0; j < together; j++) {
                const int64_t f =
                    filter_point(m, p / m->side) * m->filters + filter_point(m, p % m->side);
                td_ref_matrix a = { u + (kb * filters + f) * v->C * LANES + j, together,
                                    together * LANES };
                td_ref_matrix b = { in + (p * v->C + j) * v->tiles, together * v->tiles, 1 };
                td_ref_matrix c = { out + (p * v->K + kb * LANES) * v->tiles, v->tiles, 1 };
                td_ref_multiply(LANES, v->tiles, v->C / together, a, b, c);
            }
#pragma omp parallel for
    for (int64_t k = 0; k < v->K; k++)
        for (int64_t t = 0; t < v->tiles; t++)
            transform_output(m, v, out + k * v->tiles + t, t, y + k * v->P * v->Q);
}

/* adds the convolution of a[0] and a[1] to y */
static void add_images(const td_node *n, const shape *v, void *const *a, double *y)
{
    td_winograd m;
    td_winograd_matrices(v->form, &m);
    for (int64_t i = 0; i < td_in_type(n, 0)->dim[0]; i++)
        convolve(&m, v, (const double *)a[0] + i * v->C * v->H * v->W, a[1],
                 y + i * v->K * v->P * v->Q, a[n->n_in + 1]);
}

static void clip(const td_node *n, double *y)
{
    const td_winograd_attr *attr = n->attr;
    const double cap = attr->relu6 ? 6 : INFINITY;
    const int64_t count = td_type_count(&n->out[0]->type);
    for (int64_t i = 0; i < count && attr->relu; i++)
        y[i] = y[i] < 0 ? 0 : y[i] > cap ? cap : y[i];
}

static void conv2d_winograd(const td_node *n, void *const *a)
{
    const shape v = shape_of(n);
    const int64_t batch = td_in_type(n, 0)->dim[0], area = v.P * v.Q;
    const double *bias = n->n_in > 2 ? a[2] : NULL, *z = n->n_in > 3 ? a[3] : NULL;
    double *y = a[n->n_in];
    for (int64_t nk = 0; nk < batch * v.K; nk++)
        for (int64_t i = nk * area; i < (nk + 1) * area; i++)
            y[i] = (z ? z[i] : 0) + (bias ? bias[nk % v.K] : 0);
    add_images(n, &v, a, y);
    clip(n, y);
}

static void conv2d_winograd_scaled(const td_node *n, void *const *a)
{
    const shape v = shape_of(n);
    const int64_t batch = td_in_type(n, 0)->dim[0], area = v.P * v.Q;
    const double *scale = a[2], *bias = a[3];
    double *y = a[n->n_in];
    memset(y, 0, (size_t)(batch * v.K * area) * sizeof *y);
    add_images(n, &v, a, y);
    for (int64_t nk = 0; nk < batch * v.K; nk++)
        for (int64_t i = nk * area; i < (nk + 1) * area; i++)
            y[i] = y[i] * scale[nk % v.K] + bias[nk % v.K];
    clip(n, y);
}

static void conv2d_winograd_grad_x(const td_node *n, void *const *a)
{
    const shape v = shape_of(n);
    double *dx = a[n->n_in];
    memset(dx, 0, (size_t)td_type_count(&n->out[0]->type) * sizeof *dx);
    add_images(n, &v, a, dx);
}

/* --- filter gradient -------------------------------------------------------------------------- */

/* sum[36] += (A dy A') . (B' x B) for one tile, image planes dy and x */
static void add_tile(const td_winograd *m, const shape *v, const double *dy, const double *x,
                     int64_t tile, double *sum)
{
    const box b = box_of(v, tile);
    double d[POINTS];
    shape one = *v;
    one.C = one.tiles = 1; /* the points of the result are contiguous */
    transform_input(m, &one, x, tile, d);
    for (int i = 0; i < m->side; i++)
        for (int j = 0; j < m->side; j++) {
            double g = 0;
            for (int64_t r = 0; r < b.p_end - b.p; r++)
                for (int64_t s = 0; s < b.q_end - b.q; s++)
                    g += m->at[r][i] * dy[(b.p + r) * v->Q + b.q + s] * m->at[s][j];
            sum[filter_point(m, i) * m->filters + filter_point(m, j)] += g * d[i * m->side + j];
        }
}

/* dw[9] = G' sum G */
static void transform_sum(const td_winograd *m, const double *sum, double *dw)
{
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 3; s++) {
            dw[r * 3 + s] = 0;
            for (int i = 0; i < m->filters; i++)
                for (int j = 0; j < m->filters; j++)
                    dw[r * 3 + s] += m->g[i][r] * sum[i * m->filters + j] * m->g[j][s];
        }
}

static void conv2d_winograd_grad_w(const td_node *n, void *const *a)
{
    const shape v = shape_between(n, td_in_type(n, 1), td_in_type(n, 0));
    const int64_t batch = td_in_type(n, 0)->dim[0];
    const double *dy = a[0], *x = a[1];
    double *dw = a[3];
    td_winograd m;
    td_winograd_matrices(v.form, &m);
#pragma omp parallel for
    for (int64_t k = 0; k < v.K; k++)
        for (int64_t c = 0; c < v.C; c++) {
            double sum[TD_WINO_POINTS] = { 0 };
            for (int64_t i = 0; i < batch; i++)
                for (int64_t t = 0; t < v.tiles; t++)
                    add_tile(&m, &v, dy + (i * v.K + k) * v.P * v.Q, x + (i * v.C + c) * v.H * v.W,
                             t, sum);
            transform_sum(&m, sum, dw + (k * v.C + c) * 9);
        }
}

const td_ref_kernel td_ref_conv2d_winograd_grad_w =
    TD_REF(conv2d_winograd_grad_w, conv2d_winograd_grad_w);
const td_ref_kernel td_ref_conv2d_winograd_grad_x =
    TD_REF_WORK(conv2d_winograd_grad_x, conv2d_winograd_grad_x, conv_work);
const td_ref_kernel td_ref_winograd_filter = TD_REF(winograd_filter, winograd_filter);
const td_ref_kernel td_ref_conv2d_winograd =
    TD_REF_WORK(conv2d_winograd, conv2d_winograd, conv_work);
const td_ref_kernel td_ref_conv2d_winograd_scaled =
    TD_REF_WORK(conv2d_winograd_scaled, conv2d_winograd_scaled, conv_work);
