/*
 * ref_layer_norm.c -- rows normalised by their own statistics
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

static void layer_norm(const td_node *n, void *const *a)
{
    const td_layer_norm_sizes s = td_layer_norm_sizes_of(td_in_type(n, 0), td_in_type(n, 1));
    const double eps = ((const td_layer_norm_attr *)n->attr)->eps;
    const double *gamma = a[1], *beta = a[2];
    double *mean = a[4], *scale = a[5];
#pragma omp parallel for
    for (int64_t i = 0; i < s.rows; i++) {
        const double *x = (double *)a[0] + i * s.width;
        double *y = (double *)a[3] + i * s.width, sum = 0, squares = 0;
        for (int64_t k = 0; k < s.width; k++)
            sum += x[k];
        mean[i] = sum / (double)s.width;
        for (int64_t k = 0; k < s.width; k++)
            squares += (x[k] - mean[i]) * (x[k] - mean[i]);
        scale[i] = 1 / sqrt(squares / (double)s.width + eps);
        for (int64_t k = 0; k < s.width; k++)
            y[k] = gamma[k] * ((x[k] - mean[i]) * scale[i]) + beta[k];
    }
}

static void layer_norm_grad(const td_node *n, void *const *a)
{
    const td_layer_norm_sizes s = td_layer_norm_sizes_of(td_in_type(n, 1), td_in_type(n, 2));
    const double *gamma = a[2], *mean = a[3], *scale = a[4];
    double *dgamma = a[6], *dbeta = a[7];
    memset(dgamma, 0, (size_t)s.width * sizeof *dgamma);
    memset(dbeta, 0, (size_t)s.width * sizeof *dbeta);
    for (int64_t i = 0; i < s.rows; i++) {
        const double *dy = (double *)a[0] + i * s.width, *x = (double *)a[1] + i * s.width;
        double *dx = (double *)a[5] + i * s.width, sum = 0, dot = 0;
        for (int64_t k = 0; k < s.width; k++) {
            const double xhat = (x[k] - mean[i]) * scale[i], g = gamma[k] * dy[k];
            sum += g;
            dot += g * xhat;
            dgamma[k] += dy[k] * xhat;
            dbeta[k] += dy[k];
        }
        for (int64_t k = 0; k < s.width; k++)
            dx[k] = scale[i] * (gamma[k] * dy[k] - sum / (double)s.width -
                                (x[k] - mean[i]) * scale[i] * dot / (double)s.width);
    }
}

const td_ref_kernel td_ref_layer_norm = TD_REF(layer_norm, layer_norm);
const td_ref_kernel td_ref_layer_norm_grad = TD_REF(layer_norm_grad, layer_norm_grad);
