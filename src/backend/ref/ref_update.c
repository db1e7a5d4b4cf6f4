/*
 * ref_update.c -- optimiser steps, element by element
 */
#include "backend/ref/ref.h"

/* the copy is w as it is kept, rounded once more */
static double as_kept(const td_type *t, double x)
{
    return t->dtype == TD_DT_F32 ? (double)(float)x : x;
}

static void sgd(const td_node *n, int64_t count, double *const *a)
{
    const td_sgd_attr *at = n->attr;
    const double lr = a[3][0], inverse = n->n_in > 4 ? a[4][0] : 1;
    double *w = a[0], *v = a[1];
    if (n->n_in > 5 && a[5][0] == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double g = inverse * a[2][i] + at->decay * w[i];
        v[i] = at->momentum * v[i] + g;
        w[i] -= lr * (at->nesterov ? g + at->momentum * v[i] : v[i]);
        for (int k = 6; k < n->n_in; k++)
            a[k][i] = as_kept(td_in_type(n, 0), w[i]);
    }
}

const td_ref_kernel td_ref_sgd = TD_REF_EACH(sgd, sgd);
