/*
 * ref_pool.c -- pooling, one plane [H, W] -> [P, Q] at a time
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

typedef struct {
    int64_t planes, H, W, P, Q;         /* planes = N C */
    int64_t kernel, width, stride, pad; /* a window has kernel rows and width columns */
    bool count_include_pad;
} pool_shape;

static pool_shape shape_of(const td_node *n, const td_type *x, const td_type *y)
{
    const td_pool_attr *a = n->attr;
    return (pool_shape){
        x->dim[0] * x->dim[1], x->dim[2], x->dim[3], y->dim[2],           y->dim[3], a->kernel,
        td_pool_width(a),      a->stride, a->pad,    a->count_include_pad
    };
}

/* the part of window i along one side that is inside the image: [from, to) */
typedef struct {
    int64_t from, to;
} span;

static span window(const pool_shape *v, int64_t i, int64_t kernel, int64_t side)
{
    const int64_t at = i * v->stride - v->pad;
    return (span){ at < 0 ? 0 : at, at + kernel < side ? at + kernel : side };
}

/* --- max -------------------------------------------------------------------------------------- */

static void max_of_window(const pool_shape *v, const double *x, int64_t p, int64_t q, double *y,
                          uint8_t *where)
{
    const span hs = window(v, p, v->kernel, v->H), ws = window(v, q, v->width, v->W);
    int64_t best = hs.from * v->W + ws.from;
    for (int64_t h = hs.from; h < hs.to; h++)
        for (int64_t w = ws.from; w < ws.to; w++)
            if (x[h * v->W + w] > x[best] || (isnan(x[h * v->W + w]) && !isnan(x[best])))
                best = h * v->W + w;
    const int64_t r = best / v->W - (p * v->stride - v->pad);
    const int64_t s = best % v->W - (q * v->stride - v->pad);
    *y = x[best];
    *where = (uint8_t)(r * v->width + s);
}

static void max_pool2d(const td_node *n, void *const *a)
{
    const pool_shape v = shape_of(n, td_in_type(n, 0), &n->out[0]->type);
    const double *x = a[0];
    double *y = a[1];
    uint8_t *where = a[2];
#pragma omp parallel for
    for (int64_t i = 0; i < v.planes; i++)
        for (int64_t p = 0; p < v.P; p++)
            for (int64_t q = 0; q < v.Q; q++) {
                const int64_t at = (i * v.P + p) * v.Q + q;
                max_of_window(&v, x + i * v.H * v.W, p, q, &y[at], &where[at]);
            }
}

static void max_pool2d_grad(const td_node *n, void *const *a)
{
    const pool_shape v = shape_of(n, td_in_type(n, 2), td_in_type(n, 0));
    const double *dy = a[0];
    const uint8_t *where = a[1];
    double *dx = a[3];
#pragma omp parallel for
    for (int64_t i = 0; i < v.planes; i++) {
        double *plane = dx + i * v.H * v.W;
        memset(plane, 0, (size_t)(v.H * v.W) * sizeof *plane);
        for (int64_t p = 0; p < v.P; p++)
            for (int64_t q = 0; q < v.Q; q++) {
                const int64_t at = (i * v.P + p) * v.Q + q;
                const int64_t h = p * v.stride - v.pad + where[at] / v.width;
                const int64_t w = q * v.stride - v.pad + where[at] % v.width;
                plane[h * v.W + w] += dy[at];
            }
    }
}

/* --- average ---------------------------------------------------------------------------------- */

static double divisor(const pool_shape *v, span hs, span ws)
{
    return (double)(v->count_include_pad ? v->kernel * v->width
                                         : (hs.to - hs.from) * (ws.to - ws.from));
}

static double mean_of_window(const pool_shape *v, const double *x, int64_t p, int64_t q)
{
    const span hs = window(v, p, v->kernel, v->H), ws = window(v, q, v->width, v->W);
    double sum = 0;
    for (int64_t h = hs.from; h < hs.to; h++)
        for (int64_t w = ws.from; w < ws.to; w++)
            sum += x[h * v->W + w];
    return sum / divisor(v, hs, ws);
}

static void avg_pool2d(const td_node *n, void *const *a)
{
    const pool_shape v = shape_of(n, td_in_type(n, 0), &n->out[0]->type);
    const double *x = a[0];
    double *y = a[1];
#pragma omp parallel for
    for (int64_t i = 0; i < v.planes; i++)
        for (int64_t p = 0; p < v.P; p++)
            for (int64_t q = 0; q < v.Q; q++)
                y[(i * v.P + p) * v.Q + q] = mean_of_window(&v, x + i * v.H * v.W, p, q);
}

static void spread_over_window(const pool_shape *v, double dy, int64_t p, int64_t q, double *dx)
{
    const span hs = window(v, p, v->kernel, v->H), ws = window(v, q, v->width, v->W);
    const double share = dy / divisor(v, hs, ws);
    for (int64_t h = hs.from; h < hs.to; h++)
        for (int64_t w = ws.from; w < ws.to; w++)
            dx[h * v->W + w] += share;
}

static void avg_pool2d_grad(const td_node *n, void *const *a)
{
    const pool_shape v = shape_of(n, td_in_type(n, 1), td_in_type(n, 0));
    const double *dy = a[0];
    double *dx = a[2];
#pragma omp parallel for
    for (int64_t i = 0; i < v.planes; i++) {
        double *plane = dx + i * v.H * v.W;
        memset(plane, 0, (size_t)(v.H * v.W) * sizeof *plane);
        for (int64_t p = 0; p < v.P; p++)
            for (int64_t q = 0; q < v.Q; q++)
                spread_over_window(&v, dy[(i * v.P + p) * v.Q + q], p, q, plane);
    }
}

static void global_avg_pool(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t planes = t->dim[0] * t->dim[1], area = t->dim[2] * t->dim[3];
    const double *x = a[0];
    double *y = a[1];
#pragma omp parallel for
    for (int64_t i = 0; i < planes; i++) {
        double sum = 0;
        for (int64_t j = 0; j < area; j++)
            sum += x[i * area + j];
        y[i] = sum / (double)area;
    }
}

static void global_avg_pool_grad(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 1);
    const int64_t planes = t->dim[0] * t->dim[1], area = t->dim[2] * t->dim[3];
    const double *dy = a[0];
    double *dx = a[2];
#pragma omp parallel for
    for (int64_t i = 0; i < planes; i++)
        for (int64_t j = 0; j < area; j++)
            dx[i * area + j] = dy[i] / (double)area;
}

const td_ref_kernel td_ref_max_pool2d = TD_REF(max_pool2d, max_pool2d);
const td_ref_kernel td_ref_max_pool2d_grad = TD_REF(max_pool2d_grad, max_pool2d_grad);
const td_ref_kernel td_ref_avg_pool2d = TD_REF(avg_pool2d, avg_pool2d);
const td_ref_kernel td_ref_avg_pool2d_grad = TD_REF(avg_pool2d_grad, avg_pool2d_grad);
const td_ref_kernel td_ref_global_avg_pool = TD_REF(global_avg_pool, global_avg_pool);
const td_ref_kernel td_ref_global_avg_pool_grad =
    TD_REF(global_avg_pool_grad, global_avg_pool_grad);
