/*
 * ref_conv_pool_int8.c -- conv2d_pool_int8 by its definition: the convolution of an image as a
 * whole, then the windows
 */
#include <math.h>

#include "backend/ref/ref.h"
#include "base/half.h"

/* result [k, p, q] of the convolution of one image */
static double sum_at(const td_node *n, const double *x, const double *w, int64_t p, int64_t q)
{
    const td_conv_pool_int8_attr *a = n->attr;
    const td_type *tx = td_in_type(n, 0), *tw = td_in_type(n, 1);
    const bool is_half = tw->dtype == TD_DT_BF16;
    double sum = 0;
    for (int64_t i = 0; i < tw->dim[1] * tw->dim[2] * tw->dim[3]; i++) {
        const int64_t c = i / (tw->dim[2] * tw->dim[3]);
        const int64_t h = p * a->stride + i / tw->dim[3] % tw->dim[2] - a->pad;
        const int64_t v = q * a->stride + i % tw->dim[3] - a->pad;
        if (h < 0 || v < 0 || h >= tx->dim[2] || v >= tx->dim[3])
            continue;
        const double pixel = x[(c * tx->dim[2] + h) * tx->dim[3] + v];
        sum += w[i] * (is_half ? (double)td_bf16_to_f32(td_f32_to_bf16((float)pixel)) : pixel);
    }
    return sum;
}

/* v [K, P, Q] of one image */
static void convolve(const td_node *n, const double *x, const double *w, const double *bias,
                     double *v)
{
    const td_type *tw = td_in_type(n, 1);
    const td_pooled_sizes s = td_pooled_sizes_of(n->attr, td_in_type(n, 0), tw);
    const int64_t each = tw->dim[1] * tw->dim[2] * tw->dim[3], area = s.P * s.Q;
#pragma omp parallel for
    for (int64_t i = 0; i < tw->dim[0] * area; i++) {
        const int64_t k = i / area, p = i % area / s.Q, q = i % s.Q;
        const double sum = sum_at(n, x, w + k * each, p, q) + bias[k];
        v[i] = sum < 0 ? 0 : sum;
    }
}

/* the largest of window [p, q] of a plane, or NaN */
static double largest(const td_conv_pool_int8_attr *a, const td_pooled_sizes *s, const double *v,
                      int64_t p, int64_t q)
{
    double most = 0; /* v is not negative */
    for (int i = 0; i < a->kernel * a->kernel; i++) {
        const int64_t h = p * a->pool_stride + i / a->kernel - a->pool_pad;
        const int64_t w = q * a->pool_stride + i % a->kernel - a->pool_pad;
        if (h < 0 || w < 0 || h >= s->P || w >= s->Q)
            continue;
        if (isnan(v[h * s->Q + w]))
            return NAN;
        most = fmax(most, v[h * s->Q + w]);
    }
    return most;
}

static void conv2d_pool_int8(const td_node *n, void *const *args)
{
    const td_conv_pool_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const td_pooled_sizes s = td_pooled_sizes_of(a, x, td_in_type(n, 1));
    const int64_t each = x->dim[1] * x->dim[2] * x->dim[3], area = y->dim[2] * y->dim[3];
    double *v = args[4];
    uint8_t *to = args[3];
    for (int64_t i = 0; i < y->dim[0]; i++, to += y->dim[1] * area) {
        convolve(n, (const double *)args[0] + i * each, args[1], args[2], v);
#pragma omp parallel for
        for (int64_t j = 0; j < y->dim[1] * area; j++) {
            const double most =
                largest(a, &s, v + j / area * s.P * s.Q, j % area / y->dim[3], j % y->dim[3]);
            const float steps = (float)most / (float)a->y_scale; /* as quantize */
            to[j] = isnan(steps) ? 0 : (uint8_t)fmin(UINT8_MAX, rint((double)steps));
        }
    }
}

static int64_t work(const td_node *n)
{
    const td_type *w = td_in_type(n, 1);
    const td_pooled_sizes s = td_pooled_sizes_of(n->attr, td_in_type(n, 0), w);
    return w->dim[0] * s.P * s.Q;
}

const td_ref_kernel td_ref_conv2d_pool_int8 = TD_REF_WORK(conv2d_pool_int8, conv2d_pool_int8, work);
