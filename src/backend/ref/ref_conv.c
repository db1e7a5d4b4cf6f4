/*
 * ref_conv.c -- convolutions as matrix products over an image's unfolded windows
 *
 *   cols[c r s, p q] = x[c, p stride + r dilation - pad, q stride + s dilation - pad], 0 outside
 *
 *     forward      y[k, pq]    = sum over crs of w[k, crs] cols[crs, pq]
 *     for x        dcols[crs, pq] = sum over k of w[k, crs] dy[k, pq]; each entry is added to the
 *                  input that it was read from
 *     for w        dw[k, crs] += sum over pq of dy[k, pq] cols[crs, pq], image after image
 *
 * With groups, each group has its own rows of cols, w and y.  One image is unfolded at a time.
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

typedef struct {
    int64_t N, C, H, W, K, R, S, P, Q, G;
    int64_t stride, pad, dilation; /* the padding at the end follows from P and Q */
} conv_shape;

static conv_shape shape_of(const td_node *n, const td_type *x, const td_type *w, const td_type *y)
{
    const td_conv_attr *a = n->attr;
    return (conv_shape){
        .N = x->dim[0],
        .C = x->dim[1],
        .H = x->dim[2],
        .W = x->dim[3],
        .K = w->dim[0],
        .R = w->dim[2],
        .S = w->dim[3],
        .P = y->dim[2],
        .Q = y->dim[3],
        .G = a->groups,
        .stride = a->stride,
        .pad = a->pad,
        .dilation = a->dilation,
    };
}

static bool unfolded_is_image(const conv_shape *v)
{
    return v->R == 1 && v->S == 1 && v->stride == 1 && v->P == v->H && v->Q == v->W;
}

/* the columns q of an output row whose tap s is inside the image: [from, to) */
static void inside(const conv_shape *v, int64_t s, int64_t *from, int64_t *to)
{
    int64_t shift = s * v->dilation - v->pad; /* w = q stride + shift */
    int64_t lo = shift < 0 ? (-shift + v->stride - 1) / v->stride : 0;
    int64_t hi = v->W - 1 - shift < 0 ? 0 : (v->W - 1 - shift) / v->stride + 1;
    *from = lo < v->Q ? lo : v->Q;
    *to = hi < v->Q ? hi : v->Q;
    *to = *to < *from ? *from : *to;
}

/* x [C, H, W] -> cols [C R S, P Q] */
static void unfold(const conv_shape *v, const double *x, double *cols)
{
#pragma omp parallel for
    for (int64_t crs = 0; crs < v->C * v->R * v->S; crs++) {
        const int64_t c = crs / (v->R * v->S), r = crs / v->S % v->R, s = crs % v->S;
        int64_t from, to;
        inside(v, s, &from, &to);
        for (int64_t p = 0; p < v->P; p++) {
            const int64_t h = p * v->stride + r * v->dilation - v->pad;
            double *row = cols + (crs * v->P + p) * v->Q;
            memset(row, 0, (size_t)v->Q * sizeof *row);
            if (h < 0 || h >= v->H)
                continue;
            const double *from_row = x + (c * v->H + h) * v->W + s * v->dilation - v->pad;
            for (int64_t q = from; q < to; q++)
                row[q] = from_row[q * v->stride];
        }
    }
}

/* cols [C R S, P Q] added up into x [C, H, W] */
static void fold(const conv_shape *v, const double *cols, double *x)
{
#pragma omp parallel for
    for (int64_t c = 0; c < v->C; c++) {
        memset(x + c * v->H * v->W, 0, (size_t)(v->H * v->W) * sizeof *x);
        for (int64_t rs = 0; rs < v->R * v->S; rs++) {
            const int64_t r = rs / v->S, s = rs % v->S;
            int64_t from, to;
            inside(v, s, &from, &to);
            for (int64_t p = 0; p < v->P; p++) {
                const int64_t h = p * v->stride + r * v->dilation - v->pad;
                if (h < 0 || h >= v->H)
                    continue;
                const double *row = cols + ((c * v->R * v->S + rs) * v->P + p) * v->Q;
                double *to_row = x + (c * v->H + h) * v->W + s * v->dilation - v->pad;
                for (int64_t q = from; q < to; q++)
                    to_row[q * v->stride] += row[q];
            }
        }
    }
}

static int64_t work_of(const conv_shape *v)
{
    return unfolded_is_image(v) ? 0 : v->C * v->R * v->S * v->P * v->Q;
}

/* --- the three products for one image ------------------------------------------------------- */

static double *unfolded(const conv_shape *v, double *x, double *work)
{
    if (unfolded_is_image(v))
        return x;
    unfold(v, x, work);
    return work;
}

/* y [K, P Q] += */
static void forward(const conv_shape *v, double *x, double *w, double *y, double *work)
{
    const int64_t kg = v->K / v->G, crs = v->C / v->G * v->R * v->S, pq = v->P * v->Q;
    double *cols = unfolded(v, x, work);
#pragma omp parallel for if (v->G > 1)
    for (int64_t g = 0; g < v->G; g++) {
        td_ref_matrix a = { w + g * kg * crs, crs, 1 };
        td_ref_matrix b = { cols + g * crs * pq, pq, 1 };
        td_ref_matrix c = { y + g * kg * pq, pq, 1 };
        td_ref_multiply(kg, pq, crs, a, b, c);
    }
}

static void for_x(const conv_shape *v, double *dy, double *w, double *dx, double *work)
{
    const int64_t kg = v->K / v->G, crs = v->C / v->G * v->R * v->S, pq = v->P * v->Q;
    double *cols = unfolded_is_image(v) ? dx : work;
    memset(cols, 0, (size_t)(v->G * crs * pq) * sizeof *cols);
#pragma omp parallel for if (v->G > 1)
    for (int64_t g = 0; g < v->G; g++) {
        td_ref_matrix a = { w + g * kg * crs, 1, crs };
        td_ref_matrix b = { dy + g * kg * pq, pq, 1 };
        td_ref_matrix c = { cols + g * crs * pq, pq, 1 };
        td_ref_multiply(crs, pq, kg, a, b, c);
    }
    if (cols != dx)
        fold(v, cols, dx);
}

/* dw [K, C/G R S] += */
static void for_w(const conv_shape *v, double *dy, double *x, double *dw, double *work)
{
    const int64_t kg = v->K / v->G, crs = v->C / v->G * v->R * v->S, pq = v->P * v->Q;
    double *cols = unfolded(v, x, work);
#pragma omp parallel for if (v->G > 1)
    for (int64_t g = 0; g < v->G; g++) {
        td_ref_matrix a = { dy + g * kg * pq, pq, 1 };
        td_ref_matrix b = { cols + g * crs * pq, 1, pq };
        td_ref_matrix c = { dw + g * kg * crs, crs, 1 };
        td_ref_multiply(kg, crs, pq, a, b, c);
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static conv_shape forward_shape(const td_node *n)
{
    return shape_of(n, td_in_type(n, 0), td_in_type(n, 1), &n->out[0]->type);
}

static int64_t forward_work(const td_node *n)
{
    const conv_shape v = forward_shape(n);
    return work_of(&v) + td_ref_factors_work(n);
}

static void conv2d(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    const conv_shape v = forward_shape(n);
    td_ref_round_factors(n, given, work_of(&v), a);
    const int64_t x_size = v.C * v.H * v.W, y_size = v.K * v.P * v.Q;
    double *x = a[0], *w = a[1], *y = a[2];
    memset(y, 0, (size_t)(v.N * y_size) * sizeof *y);
    for (int64_t i = 0; i < v.N; i++)
        forward(&v, x + i * x_size, w, y + i * y_size, a[3]);
}

/* y = residual + bias, to which the convolution is then added; y may be the residual */
static void fill_fused(const conv_shape *v, const double *bias, const double *residual, double *y)
{
    const int64_t pq = v->P * v->Q;
#pragma omp parallel for
    for (int64_t nk = 0; nk < v->N * v->K; nk++)
        for (int64_t i = nk * pq; i < (nk + 1) * pq; i++)
            y[i] = (residual ? residual[i] : 0) + (bias ? bias[nk % v->K] : 0);
}

double td_ref_activation(int act, double v)
{
    if (act == TD_CONV_SILU)
        return v / (1 + exp(-v));
    return act == TD_CONV_HARDSWISH ? v * fmin(fmax(v / 6 + 0.5, 0), 1) : v;
}

static void activate(int64_t count, int act, double *y)
{
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
        y[i] = td_ref_activation(act, y[i]);
}

static void conv2d_fused(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    const conv_shape v = forward_shape(n);
    td_ref_round_factors(n, given, work_of(&v), a);
    const int64_t x_size = v.C * v.H * v.W, y_size = v.K * v.P * v.Q;
    double *x = a[0], *w = a[1], *y = a[n->n_in];
    fill_fused(&v, n->n_in > 2 ? a[2] : NULL, n->n_in > 3 ? a[3] : NULL, y);
    for (int64_t i = 0; i < v.N; i++)
        forward(&v, x + i * x_size, w, y + i * y_size, a[n->n_in + 1]);
    const td_conv_attr *attr = n->attr;
    const double cap = attr->relu6 ? 6 : INFINITY;
    if (attr->act != TD_CONV_LINEAR)
        activate(v.N * y_size, attr->act, y);
    if (!attr->relu)
        return;
#pragma omp parallel for
    for (int64_t i = 0; i < v.N * y_size; i++)
        y[i] = y[i] < 0 ? 0 : y[i] > cap ? cap : y[i];
}

static conv_shape grad_x_shape(const td_node *n)
{
    return shape_of(n, td_in_type(n, 2), td_in_type(n, 1), td_in_type(n, 0));
}

static int64_t grad_x_work(const td_node *n)
{
    const conv_shape v = grad_x_shape(n);
    return work_of(&v) + td_ref_factors_work(n);
}

static void conv2d_grad_x(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    const conv_shape v = grad_x_shape(n);
    td_ref_round_factors(n, given, work_of(&v), a);
    const int64_t x_size = v.C * v.H * v.W, y_size = v.K * v.P * v.Q;
    double *dy = a[0], *w = a[1], *dx = a[3];
    for (int64_t i = 0; i < v.N; i++)
        for_x(&v, dy + i * y_size, w, dx + i * x_size, a[4]);
}

static conv_shape grad_w_shape(const td_node *n)
{
    return shape_of(n, td_in_type(n, 1), td_in_type(n, 2), td_in_type(n, 0));
}

static int64_t grad_w_work(const td_node *n)
{
    const conv_shape v = grad_w_shape(n);
    return work_of(&v) + td_ref_factors_work(n);
}

static void conv2d_grad_w(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    const conv_shape v = grad_w_shape(n);
    td_ref_round_factors(n, given, work_of(&v), a);
    const int64_t x_size = v.C * v.H * v.W, y_size = v.K * v.P * v.Q;
    double *dy = a[0], *x = a[1], *dw = a[3];
    memset(dw, 0, (size_t)td_type_count(&n->out[0]->type) * sizeof *dw);
    for (int64_t i = 0; i < v.N; i++)
        for_w(&v, dy + i * y_size, x + i * x_size, dw, a[4]);
}

/* --- with statistics, of relu(scale x + shift) ----------------------------------------------- */

/* image i of x, or relu(scale x + shift) in `to` */
static double *prologue(const conv_shape *v, double *x, int64_t i, const double *scale,
                        const double *shift, double *to)
{
    const int64_t area = v->H * v->W;
    double *from = x + i * v->C * area;
    if (!scale)
        return from;
#pragma omp parallel for
    for (int64_t c = 0; c < v->C; c++)
        for (int64_t j = c * area; j < (c + 1) * area; j++) {
            const double y = scale[c] * from[j] + shift[c];
            to[j] = y < 0 ? 0 : y;
        }
    return to;
}

/* sum and squares of channel k of all results */
static void add_channel(const conv_shape *v, const double *y, int64_t k, double *sum,
                        double *squares)
{
    const int64_t pq = v->P * v->Q;
    *sum = *squares = 0;
    for (int64_t i = 0; i < v->N; i++)
        for (int64_t j = (i * v->K + k) * pq; j < (i * v->K + k + 1) * pq; j++) {
            *sum += y[j];
            *squares += y[j] * y[j];
        }
}

static void conv2d_statistics(const td_node *n, void *const *a)
{
    const conv_shape v = forward_shape(n);
    const int64_t y_size = v.K * v.P * v.Q;
    const bool is_scaled = n->n_in > 2;
    double *y = a[n->n_in], *sum = a[n->n_in + 1], *squares = a[n->n_in + 2];
    double *work = a[n->n_in + 3], *image = work + work_of(&v);
    memset(y, 0, (size_t)(v.N * y_size) * sizeof *y);
    for (int64_t i = 0; i < v.N; i++) {
        double *x = prologue(&v, a[0], i, is_scaled ? a[2] : NULL, is_scaled ? a[3] : NULL, image);
        forward(&v, x, a[1], y + i * y_size, work);
    }
#pragma omp parallel for
    for (int64_t k = 0; k < v.K; k++)
        add_channel(&v, y, k, &sum[k], &squares[k]);
}

static int64_t statistics_work(const td_node *n)
{
    const conv_shape v = forward_shape(n);
    return work_of(&v) + v.C * v.H * v.W;
}

static void conv2d_scale_relu_grad_w(const td_node *n, void *const *a)
{
    const conv_shape v = grad_w_shape(n);
    const int64_t y_size = v.K * v.P * v.Q;
    double *dy = a[0], *dw = a[5], *work = a[6], *image = work + work_of(&v);
    memset(dw, 0, (size_t)td_type_count(&n->out[0]->type) * sizeof *dw);
    for (int64_t i = 0; i < v.N; i++)
        for_w(&v, dy + i * y_size, prologue(&v, a[1], i, a[3], a[4], image), dw, work);
}

static int64_t scale_relu_grad_w_work(const td_node *n)
{
    const conv_shape v = grad_w_shape(n);
    return work_of(&v) + v.C * v.H * v.W;
}

const td_ref_kernel td_ref_conv2d_statistics =
    TD_REF_WORK(conv2d_statistics, conv2d_statistics, statistics_work);
const td_ref_kernel td_ref_conv2d_scale_relu_grad_w =
    TD_REF_WORK(conv2d_scale_relu_grad_w, conv2d_scale_relu_grad_w, scale_relu_grad_w_work);
const td_ref_kernel td_ref_conv2d = TD_REF_WORK(conv2d, conv2d, forward_work);
const td_ref_kernel td_ref_conv2d_fused = TD_REF_WORK(conv2d_fused, conv2d_fused, forward_work);
const td_ref_kernel td_ref_conv2d_grad_x = TD_REF_WORK(conv2d_grad_x, conv2d_grad_x, grad_x_work);
const td_ref_kernel td_ref_conv2d_grad_w = TD_REF_WORK(conv2d_grad_w, conv2d_grad_w, grad_w_work);
