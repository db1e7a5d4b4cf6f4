/*
 * ref_inverted_residual.c -- the convolutions of inverted residual blocks, by definition
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

typedef struct {
    int64_t C, H, W, M, side, P, Q, K;
    int64_t stride, pad;
    int act;
} shape;

static shape shape_of(const td_node *n)
{
    const td_inverted_residual_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w2 = td_in_type(n, td_block_depthwise(a));
    const td_type *y = &n->out[0]->type;
    return (shape){ .C = x->dim[1],
                    .H = x->dim[2],
                    .W = x->dim[3],
                    .M = w2->dim[0],
                    .side = w2->dim[2],
                    .P = y->dim[2],
                    .Q = y->dim[3],
                    .K = y->dim[1],
                    .stride = a->stride,
                    .pad = a->pad,
                    .act = a->act };
}

static double activate(int act, double v)
{
    switch (act) {
    case TD_BLOCK_RELU:
        return v < 0 ? 0 : v;
    case TD_BLOCK_RELU6:
        return v < 0 ? 0 : v > 6 ? 6 : v;
    case TD_BLOCK_SILU:
        return v / (1 + exp(-v));
    case TD_BLOCK_HARDSWISH:
        return v * fmin(fmax(v / 6 + 0.5, 0), 1);
    default:
        return v;
    }
}

/* e [M, H W] = act(w1 x + b1) */
static void expand(const shape *v, double *x, double *w1, const double *b1, double *e)
{
    const int64_t area = v->H * v->W;
    for (int64_t i = 0; i < v->M * area; i++)
        e[i] = b1[i / area];
    td_ref_multiply(v->M, area, v->C, (td_ref_matrix){ w1, v->C, 1 }, (td_ref_matrix){ x, area, 1 },
                    (td_ref_matrix){ e, area, 1 });
#pragma omp parallel for
    for (int64_t i = 0; i < v->M * area; i++)
        e[i] = activate(v->act, e[i]);
}

/* the window of one plane of e at (p, q) */
static double window(const shape *v, const double *e, const double *w, int64_t p, int64_t q)
{
    double sum = 0;
    for (int64_t r = 0; r < v->side; r++)
        for (int64_t s = 0; s < v->side; s++) {
            const int64_t h = p * v->stride + r - v->pad, c = q * v->stride + s - v->pad;
            if (h >= 0 && h < v->H && c >= 0 && c < v->W)
                sum += w[r * v->side + s] * e[h * v->W + c];
        }
    return sum;
}

/* d [M, P Q] */
static void depthwise(const shape *v, const double *e, const double *w2, const double *b2,
                      double *d)
{
#pragma omp parallel for
    for (int64_t m = 0; m < v->M; m++)
        for (int64_t p = 0; p < v->P; p++)
            for (int64_t q = 0; q < v->Q; q++)
                d[(m * v->P + p) * v->Q + q] =
                    activate(v->act, b2[m] + window(v, e + m * v->H * v->W,
                                                    w2 + m * v->side * v->side, p, q));
}

/* y [K, P Q] = w3 d + b3 */
static void project(const shape *v, double *d, double *w3, const double *b3, double *y)
{
    const int64_t area = v->P * v->Q;
    for (int64_t i = 0; i < v->K * area; i++)
        y[i] = b3[i / area];
    td_ref_multiply(v->K, area, v->M, (td_ref_matrix){ w3, v->M, 1 }, (td_ref_matrix){ d, area, 1 },
                    (td_ref_matrix){ y, area, 1 });
}

static void add(int64_t count, const double *x, double *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

/* image i up to d; e has room for the expansion */
static void begin(const td_node *n, const shape *v, void *const *a, int64_t i, double *e, double *d)
{
    const td_inverted_residual_attr *attr = n->attr;
    const int w2 = td_block_depthwise(attr);
    double *x = (double *)a[0] + i * v->C * v->H * v->W;
    if (attr->expand)
        expand(v, x, a[1], a[2], e);
    depthwise(v, attr->expand ? e : x, a[w2], a[w2 + 1], d);
}

static void inverted_residual(const td_node *n, void *const *a)
{
    const td_inverted_residual_attr *attr = n->attr;
    const shape v = shape_of(n);
    const int w3 = td_block_depthwise(attr) + 2;
    const int64_t y_size = v.K * v.P * v.Q;
    double *e = a[n->n_in + 1], *d = e + v.M * v.H * v.W;
    for (int64_t i = 0; i < td_in_type(n, 0)->dim[0]; i++) {
        double *y = (double *)a[n->n_in] + i * y_size;
        begin(n, &v, a, i, e, d);
        project(&v, d, a[w3], a[w3 + 1], y);
        if (attr->residual)
            add(y_size, (double *)a[0] + i * y_size, y);
    }
}

static void expand_depthwise(const td_node *n, void *const *a)
{
    const shape v = shape_of(n);
    const int64_t area = v.P * v.Q;
    double *e = a[n->n_in + 2];
    for (int64_t i = 0; i < td_in_type(n, 0)->dim[0]; i++) {
        double *d = (double *)a[n->n_in] + i * v.M * area;
        begin(n, &v, a, i, e, d);
        for (int64_t m = 0; m < v.M; m++) {
            double sum = 0;
            for (int64_t k = 0; k < area; k++)
                sum += d[m * area + k];
            ((double *)a[n->n_in + 1])[i * v.M + m] = sum / (double)area;
        }
    }
}

static int64_t work(const td_node *n)
{
    const shape v = shape_of(n);
    return v.M * (v.H * v.W + v.P * v.Q);
}

static void conv2d_gated(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t area = t->dim[2] * t->dim[3];
    const shape v = {
        .M = t->dim[1], .K = td_in_type(n, 2)->dim[0], .P = t->dim[2], .Q = t->dim[3]
    };
    double *scaled = a[n->n_in + 1];
    for (int64_t i = 0; i < t->dim[0]; i++) {
        const double *x = (double *)a[0] + i * v.M * area, *gate = (double *)a[1] + i * v.M;
        double *y = (double *)a[n->n_in] + i * v.K * area;
        for (int64_t k = 0; k < v.M * area; k++)
            scaled[k] = x[k] * gate[k / area];
        project(&v, scaled, a[2], a[3], y);
        if (n->n_in > 4)
            add(v.K * area, (double *)a[4] + i * v.K * area, y);
    }
}

static int64_t gated_work(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    return x->dim[1] * x->dim[2] * x->dim[3];
}

const td_ref_kernel td_ref_inverted_residual =
    TD_REF_WORK(inverted_residual, inverted_residual, work);
const td_ref_kernel td_ref_expand_depthwise = TD_REF_WORK(expand_depthwise, expand_depthwise, work);
const td_ref_kernel td_ref_conv2d_gated = TD_REF_WORK(conv2d_gated, conv2d_gated, gated_work);
