/*
 * ref_reduce.c -- sums over all elements, and whether all are finite
 */
#include <math.h>

#include "backend/ref/ref.h"

static void sum(const td_node *n, void *const *a)
{
    const double *x = a[0];
    double s = 0;
    for (int64_t i = 0; i < td_type_count(td_in_type(n, 0)); i++)
        s += x[i];
    *(double *)a[1] = s;
}

static void mean(const td_node *n, void *const *a)
{
    sum(n, a);
    *(double *)a[1] /= (double)td_type_count(td_in_type(n, 0));
}

static void all_finite(const td_node *n, void *const *a)
{
    const double *x = a[0], *before = a[1];
    bool is_finite = n->n_in < 2 || *before != 0;
    for (int64_t i = 0; i < td_type_count(td_in_type(n, 0)); i++)
        is_finite = is_finite && isfinite(x[i]);
    *(double *)a[n->n_in] = is_finite ? 1 : 0;
}

const td_ref_kernel td_ref_sum = TD_REF(sum, sum);
const td_ref_kernel td_ref_mean = TD_REF(mean, mean);
const td_ref_kernel td_ref_all_finite = TD_REF(all_finite, all_finite);
