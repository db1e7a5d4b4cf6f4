/*
 * ref_heads.c -- channel biases, and joining a detector's heads into one table
 */
#include "backend/ref/ref.h"

static void bias_add(const td_node *n, void *const *a)
{
    const td_type *x = td_in_type(n, 0);
    const int64_t C = x->dim[1], area = x->dim[2] * x->dim[3];
    const double *from = a[0], *bias = a[1];
    double *y = a[2];
    for (int64_t i = 0; i < td_type_count(x); i++)
        y[i] = from[i] + bias[i / area % C];
}

static void bias_add_grad(const td_node *n, void *const *a)
{
    const td_type *x = td_in_type(n, 0);
    const int64_t C = x->dim[1], area = x->dim[2] * x->dim[3];
    const double *dy = a[0];
    double *dbias = a[1];
#pragma omp parallel for
    for (int64_t c = 0; c < C; c++) {
        dbias[c] = 0;
        for (int64_t i = 0; i < x->dim[0]; i++)
            for (int64_t p = 0; p < area; p++)
                dbias[c] += dy[(i * C + c) * area + p];
    }
}

/* offset of channel c of pixel p in a head's table, in elements from its first row */
static int64_t place(const td_join_attr *a, const td_type *x, int64_t c, int64_t p)
{
    const int64_t n_anchors = x->dim[1] / a->columns, area = x->dim[2] * x->dim[3];
    if (a->order == TD_JOIN_PIXEL)
        return (p * n_anchors + c / a->columns) * a->columns + c % a->columns;
    return (c % n_anchors * area + p) * a->columns + c / n_anchors;
}

static void join_heads(const td_node *n, void *const *a)
{
    const td_join_attr *attr = n->attr;
    const int64_t table = n->out[0]->type.dim[1] * attr->columns; /* elements per image */
    int64_t start = 0;
    for (int k = 0; k < n->n_in; k += 2) {
        const td_type *x = td_in_type(n, k);
        const int64_t C = x->dim[1], area = x->dim[2] * x->dim[3];
        const double *from = a[k], *bias = a[k + 1];
        double *y = (double *)a[n->n_in] + start * attr->columns;
        for (int64_t i = 0; i < td_type_count(x); i++) {
            const int64_t c = i / area % C;
            y[i / area / C * table + place(attr, x, c, i % area)] = from[i] + bias[c];
        }
        start += td_join_rows(attr, x);
    }
}

static void join_heads_grad(const td_node *n, void *const *a)
{
    const td_join_attr *attr = n->attr;
    const td_type *x = td_in_type(n, 1);
    const int64_t table = td_in_type(n, 0)->dim[1] * attr->columns;
    const int64_t C = x->dim[1], area = x->dim[2] * x->dim[3];
    const double *dy = (const double *)a[0] + attr->start * attr->columns;
    double *dx = a[2], *dbias = a[3];
    for (int64_t c = 0; c < C; c++)
        dbias[c] = 0;
    for (int64_t i = 0; i < td_type_count(x); i++) {
        const int64_t c = i / area % C;
        dx[i] = dy[i / area / C * table + place(attr, x, c, i % area)];
        dbias[c] += dx[i];
    }
}

const td_ref_kernel td_ref_bias_add = TD_REF(bias_add, bias_add);
const td_ref_kernel td_ref_bias_add_grad = TD_REF(bias_add_grad, bias_add_grad);
const td_ref_kernel td_ref_join_heads = TD_REF(join_heads, join_heads);
const td_ref_kernel td_ref_join_heads_grad = TD_REF(join_heads_grad, join_heads_grad);
