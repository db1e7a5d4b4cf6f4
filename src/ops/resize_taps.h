/*
 * ops/resize_taps.h -- which pixels of a row or column a pixel of op resize is computed from
 *
 * For C and for kernels of a GPU (pool.cu).
 */
#ifndef TD_OPS_RESIZE_TAPS_H
#define TD_OPS_RESIZE_TAPS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define TD_TAPS_HERE __host__ __device__
#else
#define TD_TAPS_HERE
#endif

#define TD_RESIZE_TAPS 4

/* one axis: `from` pixels become `to`; pixel i of the result is at slope i + offset of x */
typedef struct td_resize_axis {
    int64_t from, to;
    double slope, offset;
    bool is_cubic;
    double cubic; /* the parameter of the cubic */
} td_resize_axis;

/* a source pixel, the last one in place of those beyond the ends, and its weight */
typedef struct {
    int64_t at;
    double weight;
} td_resize_tap;

/* all of a pixel: 2 or 4 */
typedef struct {
    int n;
    int64_t at[TD_RESIZE_TAPS];
    double weight[TD_RESIZE_TAPS];
} td_resize_taps;

static inline TD_TAPS_HERE int64_t td_resize_floor(double x)
{
    const int64_t i = (int64_t)x;
    return (double)i > x ? i - 1 : i;
}

/* Keys's kernel for |x| = t */
static inline TD_TAPS_HERE double td_resize_cubic(double t, double a)
{
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* the number of taps of each pixel */
static inline TD_TAPS_HERE int td_resize_count(const td_resize_axis *a)
{
    return a->is_cubic ? 4 : 2;
}

/* tap k of pixel i; kernels of a GPU ask for one at a time, as arrays would be in its memory */
static inline TD_TAPS_HERE td_resize_tap td_resize_tap_of(const td_resize_axis *a, int64_t i, int k)
{
    const double x = a->slope * (double)i + a->offset;
    const int64_t at = td_resize_floor(x) - (a->is_cubic ? 1 : 0) + k;
    const double far = x > (double)at ? x - (double)at : (double)at - x;
    td_resize_tap t;
    t.at = at < 0 ? 0 : at < a->from ? at : a->from - 1;
    t.weight = a->is_cubic ? td_resize_cubic(far, a->cubic) : 1 - far;
    return t;
}

static inline TD_TAPS_HERE td_resize_taps td_resize_taps_of(const td_resize_axis *a, int64_t i)
{
    td_resize_taps t;
    t.n = td_resize_count(a);
    for (int k = 0; k < t.n; k++) {
        const td_resize_tap tap = td_resize_tap_of(a, i, k);
        t.at[k] = tap.at;
        t.weight[k] = tap.weight;
    }
    return t;
}

/* the sum of the weights of source pixel `at` in pixel i */
static inline TD_TAPS_HERE double td_resize_weight(const td_resize_axis *a, int64_t i, int64_t at)
{
    double sum = 0;
    for (int k = 0; k < td_resize_count(a); k++) {
        const td_resize_tap t = td_resize_tap_of(a, i, k);
        sum += t.at == at ? t.weight : 0;
    }
    return sum;
}

/* all pixels of the result that source pixel `at` is a tap of are from *begin to *end - 1 */
static inline TD_TAPS_HERE void td_resize_readers(const td_resize_axis *a, int64_t at,
                                                  int64_t *begin, int64_t *end)
{
    const double reach = 3; /* a tap is less than 2 pixels away, and one for rounding */
    const bool is_level = !(a->slope > 0);
    const double low = is_level ? 0 : ((double)at - reach - a->offset) / a->slope;
    const double high = is_level ? 0 : ((double)at + reach - a->offset) / a->slope + 1;
    *begin = at == 0 || is_level || low < 0 ? 0 : low < (double)a->to ? (int64_t)low : a->to;
    *end = at == a->from - 1 || is_level || high > (double)a->to ? a->to
           : high < 0                                            ? 0
                                                                 : (int64_t)high;
}

#endif
