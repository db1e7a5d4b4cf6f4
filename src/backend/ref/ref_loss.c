/*
 * ref_loss.c -- softmax, targets, cross-entropy
 *
 * Every exponential is of x - max(x), so that no logit overflows.
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

static double largest(const double *x, int64_t K)
{
    double max = x[0];
    for (int64_t k = 1; k < K; k++)
        max = x[k] > max ? x[k] : max;
    return max;
}

/* log of the sum of exp(x - max) */
static double log_sum(const double *x, int64_t K, double max)
{
    double sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += exp(x[k] - max);
    return log(sum);
}

static void softmax_row(const double *x, int64_t K, double *y)
{
    const double max = largest(x, K), log_of_sum = log_sum(x, K, max);
    for (int64_t k = 0; k < K; k++)
        y[k] = exp(x[k] - max - log_of_sum);
}

/* the size of the last dimension, and the number of rows of that size */
static void rows_of(const td_type *t, int64_t *rows, int64_t *K)
{
    *K = t->dim[t->rank - 1];
    *rows = td_type_count(t) / *K;
}

static void softmax(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 0), &rows, &K);
    const double *x = a[0];
    double *y = a[1];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows; i++)
        softmax_row(x + i * K, K, y + i * K);
}

static void softmax_grad(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 0), &rows, &K);
    const double *dy = a[0], *y = a[1];
    double *dx = a[2];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows; i++) {
        double dot = 0;
        for (int64_t k = i * K; k < (i + 1) * K; k++)
            dot += dy[k] * y[k];
        for (int64_t k = i * K; k < (i + 1) * K; k++)
            dx[k] = y[k] * (dy[k] - dot);
    }
}

static void one_hot(const td_node *n, void *const *a)
{
    const td_one_hot_attr *at = n->attr;
    const int64_t N = td_in_type(n, 0)->dim[0], K = at->classes;
    const int64_t *labels = a[0];
    double *q = a[1];
    for (int64_t i = 0; i < N; i++) {
        const bool is_class = labels[i] >= 0 && labels[i] < K;
        for (int64_t k = 0; k < K; k++)
            q[i * K + k] = is_class ? at->smoothing / (double)K : 0;
        if (is_class)
            q[i * K + labels[i]] += 1 - at->smoothing;
    }
}

static void softmax_cross_entropy(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 0), &rows, &K);
    double *loss = a[2];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows; i++) {
        const double *x = (double *)a[0] + i * K, *q = (double *)a[1] + i * K;
        const double max = largest(x, K), log_of_sum = log_sum(x, K, max);
        loss[i] = 0;
        for (int64_t k = 0; k < K; k++)
            loss[i] -= q[k] == 0 ? 0 : q[k] * (x[k] - max - log_of_sum);
    }
}

static void softmax_cross_entropy_grad(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 1), &rows, &K);
    const double *dloss = a[0];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows; i++) {
        const double *q = (double *)a[2] + i * K;
        double *dx = (double *)a[3] + i * K, sum = 0;
        for (int64_t k = 0; k < K; k++)
            sum += q[k];
        softmax_row((double *)a[1] + i * K, K, dx);
        for (int64_t k = 0; k < K; k++)
            dx[k] = dloss[i] * (dx[k] * sum - q[k]);
    }
}

/* the target of a class by sigmoid_cross_entropy */
static double target_of(const td_node *n, double q)
{
    const double threshold = ((const td_sigmoid_loss_attr *)n->attr)->threshold;
    return threshold < 0 ? q : q > threshold;
}

static void sigmoid_cross_entropy(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 0), &rows, &K);
    const double *weights = n->n_in > 2 ? a[2] : NULL;
    double *loss = a[n->n_in];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows; i++) {
        const double *x = (double *)a[0] + i * K, *q = (double *)a[1] + i * K;
        double sum = 0;
        for (int64_t k = 0; k < K; k++) {
            const double t = target_of(n, q[k]), u = weights ? 1 + (weights[k] - 1) * t : 1;
            sum += (1 - t) * x[k] + u * (fmax(-x[k], 0) + log1p(exp(-fabs(x[k]))));
        }
        loss[i] = sum / (double)K;
    }
}

static void sigmoid_cross_entropy_grad(const td_node *n, void *const *a)
{
    int64_t rows, K;
    rows_of(td_in_type(n, 1), &rows, &K);
    const double *dloss = a[0], *x = a[1], *q = a[2];
    const double *weights = n->n_in > 3 ? a[3] : NULL;
    double *dx = a[n->n_in];
#pragma omp parallel for if (rows * K > 65536)
    for (int64_t i = 0; i < rows * K; i++) {
        const double t = target_of(n, q[i]), u = weights ? 1 + (weights[i % K] - 1) * t : 1;
        dx[i] = dloss[i / K] * (1 - t - u / (1 + exp(x[i]))) / (double)K;
    }
}

const td_ref_kernel td_ref_softmax = TD_REF(softmax, softmax);
const td_ref_kernel td_ref_softmax_grad = TD_REF(softmax_grad, softmax_grad);
const td_ref_kernel td_ref_one_hot = TD_REF(one_hot, one_hot);
const td_ref_kernel td_ref_softmax_cross_entropy =
    TD_REF(softmax_cross_entropy, softmax_cross_entropy);
const td_ref_kernel td_ref_softmax_cross_entropy_grad =
    TD_REF(softmax_cross_entropy_grad, softmax_cross_entropy_grad);
const td_ref_kernel td_ref_sigmoid_cross_entropy =
    TD_REF(sigmoid_cross_entropy, sigmoid_cross_entropy);
const td_ref_kernel td_ref_sigmoid_cross_entropy_grad =
    TD_REF(sigmoid_cross_entropy_grad, sigmoid_cross_entropy_grad);
