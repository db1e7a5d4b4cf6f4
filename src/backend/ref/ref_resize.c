/*
 * ref_resize.c -- bilinear and bicubic resize
 */
#include <string.h>

#include "backend/ref/ref.h"
#include "ops/resize_taps.h"

static void resize(const td_node *n, void *const *a)
{
    const td_type *x = td_in_type(n, 0);
    const td_resize_axis rows = td_resize_axis_of(n->attr, x, false);
    const td_resize_axis columns = td_resize_axis_of(n->attr, x, true);
#pragma omp parallel for
    for (int64_t plane = 0; plane < x->dim[0] * x->dim[1]; plane++) {
        const double *from = (const double *)a[0] + plane * rows.from * columns.from;
        double *y = (double *)a[1] + plane * rows.to * columns.to;
        for (int64_t p = 0; p < rows.to; p++) {
            const td_resize_taps v = td_resize_taps_of(&rows, p);
            for (int64_t q = 0; q < columns.to; q++) {
                const td_resize_taps w = td_resize_taps_of(&columns, q);
                double sum = 0;
                for (int i = 0; i < v.n; i++)
                    for (int j = 0; j < w.n; j++)
                        sum += v.weight[i] * w.weight[j] * from[v.at[i] * columns.from + w.at[j]];
                y[p * columns.to + q] = sum;
            }
        }
    }
}

static void resize_grad(const td_node *n, void *const *a)
{
    const td_type *x = td_in_type(n, 1);
    const td_resize_axis rows = td_resize_axis_of(n->attr, x, false);
    const td_resize_axis columns = td_resize_axis_of(n->attr, x, true);
#pragma omp parallel for
    for (int64_t plane = 0; plane < x->dim[0] * x->dim[1]; plane++) {
        const double *dy = (const double *)a[0] + plane * rows.to * columns.to;
        double *dx = (double *)a[2] + plane * rows.from * columns.from;
        memset(dx, 0, (size_t)(rows.from * columns.from) * sizeof *dx);
        for (int64_t p = 0; p < rows.to; p++) {
            const td_resize_taps v = td_resize_taps_of(&rows, p);
            for (int64_t q = 0; q < columns.to; q++) {
                const td_resize_taps w = td_resize_taps_of(&columns, q);
                for (int i = 0; i < v.n; i++)
                    for (int j = 0; j < w.n; j++)
                        dx[v.at[i] * columns.from + w.at[j]] +=
                            v.weight[i] * w.weight[j] * dy[p * columns.to + q];
            }
        }
    }
}

const td_ref_kernel td_ref_resize = TD_REF(resize, resize);
const td_ref_kernel td_ref_resize_grad = TD_REF(resize_grad, resize_grad);
