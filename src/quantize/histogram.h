/*
 * quantize/histogram.h -- the magnitudes of an activation, and the range to represent
 *
 *     td_histogram h = { 0 };
 *     TD_TRY(td_histogram_add(&h, x, n, 0));                   any number of times
 *     double r = td_histogram_range(&h, TD_RANGE_MSE, 0, 255);
 *
 * 2048 bins of equal width from 0 to a power of two.  A larger value doubles the width until it
 * fits, and pairs of bins are added, so the histogram does not depend on the order of the values.
 */
#ifndef TD_QUANTIZE_HISTOGRAM_H
#define TD_QUANTIZE_HISTOGRAM_H

#include <stdint.h>

#include "base/status.h"
#include "tandem/quantize.h"

enum { TD_HISTOGRAM_BINS = 2048 };

typedef struct {
    int exponent; /* the last bin ends at 2^exponent; valid if n > 0 */
    int64_t n;
    double largest;
    double bins[TD_HISTOGRAM_BINS]; /* counts */
} td_histogram;

/**
 * Add |x[0 .. n-1]|, without n_padding zeros that are among them.  TD_ENUMERIC: a value is not
 * finite.
 */
td_status td_histogram_add(td_histogram *h, const float *x, int64_t n,
                           int64_t n_padding) TD_CHECKED;

/** Add the values of `other`. */
void td_histogram_merge(td_histogram *h, const td_histogram *other);

/**
 * The magnitude r so that -r .. r is represented by `steps` steps from zero (255 or 127).
 *   MAX         the largest value
 *   PERCENTILE  the end of the first bin up to which at least `percentile` percent of the values
 *               are
 *   MSE         the center of a bin, from bin 128 on, with the smallest mean squared error of
 *               rounding and clipping; all values of a bin count as its center
 * 1 if all values are zero.
 */
double td_histogram_range(const td_histogram *h, td_range_method method, double percentile,
                          int steps);

/** Power of the values over that of the errors of range r, in decibels, at most 200. */
double td_histogram_snr_db(const td_histogram *h, double r, int steps);

#endif
