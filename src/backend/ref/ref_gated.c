/*
 * ref_gated.c -- gated sums, and their gradients
 */
#include "backend/ref/ref.h"

static void gated_add(const td_node *n, void *const *a)
{
    const td_gated_attr *attr = n->attr;
    const td_type *t = td_in_type(n, 0);
    const int64_t area = t->dim[2] * t->dim[3];
    const bool is_vector = td_in_type(n, 2)->rank == 2;
    const double *x = a[0], *gate = a[1], *z = a[2];
    double *y = a[3];
    for (int64_t i = 0; i < td_type_count(t); i++) {
        const double sum = x[i] * gate[i / area] + attr->by * z[is_vector ? i / area : i];
        y[i] = attr->relu && sum < 0 ? 0 : sum;
    }
}

static void gated_add_relu_grad(const td_node *n, void *const *a)
{
    const td_type *t = td_in_type(n, 0);
    const int64_t area = t->dim[2] * t->dim[3], planes = t->dim[0] * t->dim[1];
    const double *dy = a[0], *y = a[1], *x = a[2], *dy2 = n->n_in > 3 ? a[3] : NULL;
    double *dz = a[n->n_in], *dgate = a[n->n_in + 1];
    for (int64_t plane = 0; plane < planes; plane++) {
        double sum = 0;
        for (int64_t i = plane * area; i < (plane + 1) * area; i++) {
            const double of_x = x[i]; /* dz may be x */
            dz[i] = y[i] > 0 ? dy[i] + (dy2 ? dy2[i] : 0) : 0;
            sum += dz[i] * of_x;
        }
        dgate[plane] = sum;
    }
}

const td_ref_kernel td_ref_gated_add = TD_REF(gated_add, gated_add);
const td_ref_kernel td_ref_gated_add_relu_grad = TD_REF(gated_add_relu_grad, gated_add_relu_grad);
