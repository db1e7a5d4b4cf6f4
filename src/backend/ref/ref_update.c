/*
 * ref_update.c -- optimiser steps, element by element
 */
#include "backend/ref/ref.h"

static void sgd(const td_node *n, int64_t count, double *const *a)
{
    const td_sgd_attr *at = n->attr;
    const double lr = a[3][0];
    double *w = a[0], *v = a[1];
    for (int64_t i = 0; i < count; i++) {
        const double g = a[2][i] + at->decay * w[i];
        v[i] = at->momentum * v[i] + g;
        w[i] -= lr * (at->nesterov ? g + at->momentum * v[i] : v[i]);
    }
}

const td_ref_kernel td_ref_sgd = TD_REF_EACH(sgd, sgd);
