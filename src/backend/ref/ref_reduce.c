/*
 * ref_reduce.c -- sums over all elements
 */
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

const td_ref_kernel td_ref_sum = TD_REF(sum, sum);
const td_ref_kernel td_ref_mean = TD_REF(mean, mean);
