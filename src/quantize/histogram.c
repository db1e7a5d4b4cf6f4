/*
 * histogram.c -- counts magnitudes and chooses ranges
 *
 * Sources: NVIDIA's pytorch-quantization (percentile and mse over histograms of 2048 bins).
 */
#include "quantize/histogram.h"

#include <math.h>
#include <string.h>

enum { MSE_FIRST = 128, EXPONENT_MIN = -100 };

/* --- counting --------------------------------------------------------------------------------- */

/* the smallest exponent, of at least EXPONENT_MIN, with x < 2^exponent; x > 0 */
static int exponent_of(double x)
{
    int e;
    (void)frexp(x, &e);
    return e > EXPONENT_MIN ? e : EXPONENT_MIN;
}

static void double_width(td_histogram *h)
{
    for (int i = 0; i < TD_HISTOGRAM_BINS / 2; i++)
        h->bins[i] = h->bins[2 * i] + h->bins[2 * i + 1];
    memset(h->bins + TD_HISTOGRAM_BINS / 2, 0, sizeof h->bins / 2);
    h->exponent++;
}

static void grow(td_histogram *h, int exponent)
{
    if (h->largest == 0)
        h->exponent = exponent; /* only zeros, in bin 0 */
    while (h->exponent < exponent)
        double_width(h);
}

/* the largest magnitude; infinite if a value is not finite */
static float find_largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        const float v = fabsf(x[i]);
        most = v <= most ? most : v == v ? v : INFINITY;
    }
    return most;
}

td_status td_histogram_add(td_histogram *h, const float *x, int64_t n, int64_t n_padding)
{
    const float largest = find_largest(x, n);
    if (isinf(largest))
        return td_error(TD_ENUMERIC, "a value is infinite or NaN");
    if (largest > 0)
        grow(h, exponent_of((double)largest));
    h->largest = fmax(h->largest, (double)largest);
    const float scale = (float)ldexp(TD_HISTOGRAM_BINS, -h->exponent);
    int64_t counts[TD_HISTOGRAM_BINS] = { 0 };
    for (int64_t i = 0; i < n; i++)
        counts[(int)(fabsf(x[i]) * scale)]++;
    counts[0] -= n_padding;
    for (int i = 0; i < TD_HISTOGRAM_BINS; i++)
        h->bins[i] += (double)counts[i];
    h->n += n - n_padding;
    return TD_OK;
}

void td_histogram_merge(td_histogram *h, const td_histogram *other)
{
    td_histogram o = *other;
    if (o.largest > 0)
        grow(h, o.exponent);
    while (o.largest > 0 && o.exponent < h->exponent)
        double_width(&o);
    for (int i = 0; i < TD_HISTOGRAM_BINS; i++)
        h->bins[i] += o.bins[i];
    h->n += o.n;
    h->largest = fmax(h->largest, o.largest);
}

/* --- choosing --------------------------------------------------------------------------------- */

static double width_of(const td_histogram *h)
{
    return ldexp(1.0 / TD_HISTOGRAM_BINS, h->exponent);
}

static double center_of(const td_histogram *h, int i)
{
    return (i + 0.5) * width_of(h);
}

/* the sum of squared errors of range r */
static double error_of(const td_histogram *h, double r, int steps)
{
    const double scale = r / steps;
    double sum = 0;
    for (int i = 0; i < TD_HISTOGRAM_BINS; i++) {
        if (h->bins[i] == 0)
            continue;
        const double x = center_of(h, i), gap = x - scale * fmin(rint(x / scale), steps);
        sum += h->bins[i] * gap * gap;
    }
    return sum;
}

static double percentile_of(const td_histogram *h, double percentile)
{
    double sum = 0;
    int i = 0;
    for (; i < TD_HISTOGRAM_BINS; i++) {
        sum += h->bins[i];
        if (sum >= percentile / 100 * (double)h->n)
            break;
    }
    return fmin((i + 1) * width_of(h), h->largest);
}

static double least_error(const td_histogram *h, int steps)
{
    const int last = (int)(h->largest / width_of(h));
    double best = h->largest, least = INFINITY;
    for (int i = MSE_FIRST; i <= last && i < TD_HISTOGRAM_BINS; i++) {
        const double error = error_of(h, center_of(h, i), steps);
        if (error < least) {
            least = error;
            best = center_of(h, i);
        }
    }
    return best;
}

double td_histogram_range(const td_histogram *h, td_range_method method, double percentile,
                          int steps)
{
    if (h->largest == 0)
        return 1;
    if (method == TD_RANGE_PERCENTILE)
        return percentile_of(h, percentile);
    return method == TD_RANGE_MSE ? least_error(h, steps) : h->largest;
}

double td_histogram_snr_db(const td_histogram *h, double r, int steps)
{
    enum { MOST_DB = 200 };
    double power = 0;
    for (int i = 0; i < TD_HISTOGRAM_BINS; i++)
        power += h->bins[i] * center_of(h, i) * center_of(h, i);
    const double error = error_of(h, r, steps);
    return error > 0 ? fmin(10 * log10(power / error), MOST_DB) : MOST_DB;
}
