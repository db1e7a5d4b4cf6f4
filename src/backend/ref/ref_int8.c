/*
 * ref_int8.c -- quantize, dequantize, quantize_weights, shift_int8, shift_int8_bias and conv2d_int8
 * by their definition
 *
 * Sums of products are exact integers; scales, bias and residual are added in double and the result
 * is rounded once.
 */
#include <math.h>

#include "backend/ref/ref.h"

/* --- conversion ------------------------------------------------------------------------------- */

/* to the nearest integer in lo .. hi, ties to even; NaN becomes 0 */
static double round_within(double x, double lo, double hi)
{
    return x != x ? 0 : fmax(lo, fmin(hi, rint(x)));
}

/* the quotient is rounded to float32 before it is rounded to an integer */
static void quantize(const td_node *n, int64_t count, double *const *a)
{
    const float scale = (float)((const td_quantize_attr *)n->attr)->scale;
    const bool is_signed = n->out[0]->type.dtype == TD_DT_S8;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = round_within((double)((float)a[0][i] / scale), is_signed ? INT8_MIN : 0,
                               is_signed ? TD_INT8_MAX : UINT8_MAX);
}

static void dequantize(const td_node *n, int64_t count, double *const *a)
{
    const float scale = (float)((const td_quantize_attr *)n->attr)->scale;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = (double)((float)a[0][i] * scale);
}

static void quantize_weights(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t each = t->dim[1] * t->dim[2] * t->dim[3];
    const double *w = a[0];
    int8_t *q = a[1];
    double *scale = a[2];
    const int limit = ((const td_quantize_weights_attr *)n->attr)->most;
#pragma omp parallel for
    for (int64_t k = 0; k < t->dim[0]; k++) {
        double most = 0;
        for (int64_t i = 0; i < each; i++)
            most = fmax(most, fabs(w[k * each + i]));
        scale[k] = most > 0 ? (double)((float)most / (float)limit) : 1;
        scale[k] = scale[k] > 0 ? scale[k] : 1; /* the filter is subnormal */
        for (int64_t i = 0; i < each; i++)
            q[k * each + i] = (int8_t)round_within(
                (double)((float)w[k * each + i] / (float)scale[k]), -limit, limit);
    }
}

/* --- signed images as unsigned ones ----------------------------------------------------------- */

static void shift_int8(const td_node *n, void *const *a)
{
    const int pad = ((const td_shift_int8_attr *)n->attr)->pad;
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    for (int64_t i = 0; i < td_type_count(y); i++) {
        const int64_t plane = i / (y->dim[2] * y->dim[3]);
        const int64_t h = i / y->dim[3] % y->dim[2] - pad, w = i % y->dim[3] - pad;
        const bool is_inside = h >= 0 && w >= 0 && h < x->dim[2] && w < x->dim[3];
        const int v =
            is_inside ? ((const int8_t *)a[0])[(plane * x->dim[2] + h) * x->dim[3] + w] : 0;
        ((uint8_t *)a[1])[i] = (uint8_t)(v + TD_INT8_ZERO);
    }
}

static void shift_int8_bias(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t each = t->dim[1] * t->dim[2] * t->dim[3];
    const double x_scale = ((const td_shift_int8_bias_attr *)n->attr)->x_scale;
    const int8_t *w = a[0];
    const double *scale = a[1], *bias = a[2];
    double *y = a[3];
    for (int64_t k = 0; k < t->dim[0]; k++) {
        double sum = 0;
        for (int64_t i = 0; i < each; i++)
            sum += w[k * each + i];
        y[k] = bias[k] - TD_INT8_ZERO * x_scale * scale[k] * sum;
    }
}

/* --- convolution ------------------------------------------------------------------------------ */

static int32_t int8_at(td_dtype d, const void *data, int64_t i)
{
    return d == TD_DT_U8 ? ((const uint8_t *)data)[i] : ((const int8_t *)data)[i];
}

/* the sum of products of result [image, k, p, q] over one input channel */
static int32_t sum_of_channel(const td_node *n, const void *x, const int8_t *w, int64_t p,
                              int64_t q)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *tx = td_in_type(n, 0), *tw = td_in_type(n, 1);
    int32_t sum = 0;
    for (int64_t i = 0; i < tw->dim[2] * tw->dim[3]; i++) {
        const int64_t h = p * a->stride + i / tw->dim[3] * a->dilation - a->pad;
        const int64_t v = q * a->stride + i % tw->dim[3] * a->dilation - a->pad;
        if (h >= 0 && v >= 0 && h < tx->dim[2] && v < tx->dim[3])
            sum += int8_at(tx->dtype, x, h * tx->dim[3] + v) * w[i];
    }
    return sum;
}

static int32_t sum_at(const td_node *n, void *const *args, int64_t image, int64_t k, int64_t p,
                      int64_t q)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    const int64_t groups = ((const td_conv_int8_attr *)n->attr)->groups;
    const int64_t first = image * x->dim[1] + k / (w->dim[0] / groups) * w->dim[1];
    int32_t sum = 0;
    for (int64_t c = 0; c < w->dim[1]; c++)
        sum += sum_of_channel(n, (const int8_t *)args[0] + (first + c) * x->dim[2] * x->dim[3],
                              (const int8_t *)args[1] + (k * w->dim[1] + c) * w->dim[2] * w->dim[3],
                              p, q);
    return sum;
}

static double residual_at(const td_node *n, void *const *args, int64_t i)
{
    const td_dtype d = td_in_type(n, 4)->dtype;
    if (d == TD_DT_F32)
        return ((const double *)args[4])[i];
    return ((const td_conv_int8_attr *)n->attr)->residual_scale * int8_at(d, args[4], i);
}

static void put(const td_node *n, void *y, int64_t i, double v)
{
    const double steps = v / ((const td_conv_int8_attr *)n->attr)->y_scale;
    const td_dtype d = n->out[0]->type.dtype;
    if (d == TD_DT_F32)
        ((double *)y)[i] = v;
    else if (d == TD_DT_U8)
        ((uint8_t *)y)[i] = (uint8_t)round_within(steps, 0, UINT8_MAX);
    else
        ((int8_t *)y)[i] = (int8_t)round_within(steps, INT8_MIN, INT8_MAX);
}

static void conv2d_int8(const td_node *n, void *const *args)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *y = &n->out[0]->type;
    const double *scale = args[2], *bias = args[3];
    const int64_t pq = y->dim[2] * y->dim[3];
#pragma omp parallel for
    for (int64_t i = 0; i < td_type_count(y); i++) {
        const int64_t k = i / pq % y->dim[1];
        const int32_t sum =
            sum_at(n, args, i / pq / y->dim[1], k, i / y->dim[3] % y->dim[2], i % y->dim[3]);
        double v = a->x_scale * scale[k] * sum + bias[k];
        if (n->n_in > 4)
            v += residual_at(n, args, i);
        v = td_ref_activation(a->act, v);
        v = a->relu && v < 0 ? 0 : v;
        put(n, args[n->n_in], i, a->relu && a->relu6 && v > 6 ? 6 : v);
    }
}

const td_ref_kernel td_ref_quantize = TD_REF_EACH(quantize, quantize);
const td_ref_kernel td_ref_dequantize = TD_REF_EACH(dequantize, dequantize);
const td_ref_kernel td_ref_quantize_weights = TD_REF(quantize_weights, quantize_weights);
const td_ref_kernel td_ref_shift_int8 = TD_REF(shift_int8, shift_int8);
const td_ref_kernel td_ref_shift_int8_bias = TD_REF(shift_int8_bias, shift_int8_bias);
const td_ref_kernel td_ref_conv2d_int8 = TD_REF(conv2d_int8, conv2d_int8);
