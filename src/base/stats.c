/*
 * stats.c -- top-k and quantiles
 */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

void td_top_k(const float *x, int n, int k, int *out)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int at = kept < k ? kept : k;
        while (at > 0 && x[out[at - 1]] < x[i])
            at--;
        if (at >= k)
            continue;
        for (int j = (kept < k ? kept : k - 1); j > at; j--)
            out[j] = out[j - 1];
        out[at] = i;
        kept += kept < k;
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double td_quantile(double *x, int n, double q)
{
    if (n == 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    int i = (int)ceil(q * n) - 1;
    return x[i < 0 ? 0 : i >= n ? n - 1 : i];
}

double td_median(double *x, int64_t n)
{
    if (n == 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

double td_quantile_linear(double *x, int n, double q)
{
    if (n == 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    const double at = q * (n - 1);
    const int i = (int)floor(at), next = i + 1 < n ? i + 1 : i;
    return x[i] + (at - i) * (x[next] - x[i]);
}
