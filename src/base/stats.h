/*
 * base/stats.h -- the largest values and the quantiles of an array
 */
#ifndef TD_BASE_STATS_H
#define TD_BASE_STATS_H

#include <stdint.h>

/** The indices of the k largest of n numbers, largest first; of equal ones, the lower index
    first. */
void td_top_k(const float *x, int n, int k, int *out);

/** Value at quantile q of n sorted numbers, nearest rank; 0 when n is 0.  Sorts x. */
double td_quantile(double *x, int n, double q);

/** The middle value of n, for an even n the mean of the middle two; 0 when n is 0.  Sorts x. */
double td_median(double *x, int64_t n);

/** Like td_quantile, but interpolates between the two nearest ranks, like numpy.percentile. */
double td_quantile_linear(double *x, int n, double q);

#endif
