/*
 * ref_norm.c -- batch normalisation, forward and backward
 *
 *   forward   mean[c], var[c] over n, h, w (two passes, biased),
 *             xhat = (x - mean) / sqrt(var + eps), y = gamma xhat + beta,
 *             the fused ops then add z and apply relu
 *   backward  with m = N H W and g = dy where the mask is set:
 *             dbeta = sum g, dgamma = sum g xhat,
 *             dx = gamma / sqrt(var + eps) (g - dbeta / m - xhat dgamma / m)
 */
#include <math.h>

#include "backend/ref/ref.h"

typedef struct {
    int64_t N, C, area; /* area = H W */
    double eps;
} norm_shape;

static norm_shape shape_of(const td_node *n, const td_type *x)
{
    return (norm_shape){ x->dim[0], x->dim[1], x->dim[2] * x->dim[3],
                         ((const td_norm_attr *)n->attr)->eps };
}

/* --- forward ---------------------------------------------------------------------------------- */

static void statistics(const norm_shape *v, const double *x, int64_t c, double *mean, double *var)
{
    const double m = (double)(v->N * v->area);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < v->N; i++)
        for (int64_t j = 0; j < v->area; j++)
            sum += x[(i * v->C + c) * v->area + j];
    for (int64_t i = 0; i < v->N; i++)
        for (int64_t j = 0; j < v->area; j++) {
            const double d = x[(i * v->C + c) * v->area + j] - sum / m;
            squares += d * d;
        }
    *mean = sum / m;
    *var = squares / m;
}

/* y = gamma (x - mean) / sqrt(var + eps) + beta + z, channel c; z may be NULL */
static void normalise(const norm_shape *v, int64_t c, const double *x, double gamma, double beta,
                      double mean, double var, const double *z, double *y)
{
    const double scale = gamma / sqrt(var + v->eps);
    for (int64_t i = 0; i < v->N; i++) {
        const int64_t from = (i * v->C + c) * v->area;
        for (int64_t j = from; j < from + v->area; j++)
            y[j] = (x[j] - mean) * scale + beta + (z ? z[j] : 0);
    }
}

/* rounded to dtype d, so that ops with given statistics give the same bits */
static double round_to_storage(double x, td_dtype d)
{
    return d == TD_DT_F32 ? (double)(float)x : x;
}

static void batch_norm(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 0));
    const td_dtype kept = n->out[1]->type.dtype;
    const double *x = a[0], *gamma = a[1], *beta = a[2], *z = n->n_in > 3 ? a[3] : NULL;
    double *y = a[n->n_in], *mean = a[n->n_in + 1], *var = a[n->n_in + 2];
#pragma omp parallel for
    for (int64_t c = 0; c < v.C; c++) {
        statistics(&v, x, c, &mean[c], &var[c]);
        mean[c] = round_to_storage(mean[c], kept);
        var[c] = round_to_storage(var[c], kept);
        normalise(&v, c, x, gamma[c], beta[c], mean[c], var[c], z, y);
    }
}

/* clip y to 0 .. cap, and set the bits of `mask` where y was within */
static void clip(double *y, double cap, uint8_t *mask, int64_t n_bytes)
{
#pragma omp parallel for
    for (int64_t j = 0; j < n_bytes; j++) {
        unsigned bits = 0;
        for (int i = 0; i < 8; i++) {
            double *at = &y[8 * j + i];
            bits |= (unsigned)(*at > 0 && *at < cap) << i;
            *at = *at < 0 ? 0 : *at > cap ? cap : *at;
        }
        mask[j] = (uint8_t)bits;
    }
}

static double cap_of(const td_node *n)
{
    return ((const td_norm_attr *)n->attr)->relu6 ? 6 : INFINITY;
}

static void batch_norm_relu(const td_node *n, void *const *a)
{
    batch_norm(n, a);
    clip(a[n->n_in], cap_of(n), a[n->n_in + 3], n->out[3]->type.dim[0]);
}

static void batch_norm_infer(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 0));
    const double *x = a[0], *gamma = a[1], *beta = a[2], *mean = a[3], *var = a[4];
    const double *z = n->n_in > 5 ? a[5] : NULL;
    double *y = a[n->n_in];
#pragma omp parallel for
    for (int64_t c = 0; c < v.C; c++)
        normalise(&v, c, x, gamma[c], beta[c], mean[c], var[c], z, y);
}

static void batch_norm_relu_infer(const td_node *n, void *const *a)
{
    const int64_t count = td_type_count(&n->out[0]->type);
    const double cap = cap_of(n);
    double *y = a[n->n_in];
    batch_norm_infer(n, a);
    for (int64_t i = 0; i < count; i++)
        y[i] = y[i] < 0 ? 0 : y[i] > cap ? cap : y[i];
}

/* --- backward --------------------------------------------------------------------------------- */

typedef struct {
    const double *dy, *x, *gamma, *mean, *var;
    double *dx, *dgamma, *dbeta;
} grad_args;

/* `from_batch`: the statistics depend on x */
static void norm_grad_channel(const norm_shape *v, const grad_args *a, int64_t c, bool from_batch)
{
    const double m = (double)(v->N * v->area), rstd = 1 / sqrt(a->var[c] + v->eps);
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < v->N; i++)
        for (int64_t j = 0; j < v->area; j++) {
            const int64_t k = (i * v->C + c) * v->area + j;
            sum += a->dy[k];
            dot += a->dy[k] * (a->x[k] - a->mean[c]) * rstd;
        }
    a->dbeta[c] = sum;
    a->dgamma[c] = dot;
    const double mean_dy = from_batch ? sum / m : 0, mean_dot = from_batch ? dot / m : 0;
    for (int64_t i = 0; i < v->N; i++)
        for (int64_t j = 0; j < v->area; j++) {
            const int64_t k = (i * v->C + c) * v->area + j;
            const double xhat = (a->x[k] - a->mean[c]) * rstd;
            a->dx[k] = a->gamma[c] * rstd * (a->dy[k] - mean_dy - xhat * mean_dot);
        }
}

static void norm_grad(const norm_shape *v, const grad_args *a, bool from_batch)
{
#pragma omp parallel for
    for (int64_t c = 0; c < v->C; c++)
        norm_grad_channel(v, a, c, from_batch);
}

static void batch_norm_grad(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 1));
    norm_grad(&v, &(grad_args){ a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7] }, true);
}

static void batch_norm_infer_grad(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 1));
    norm_grad(&v, &(grad_args){ a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7] }, false);
}

/* out = dy (+ dy2) where the mask is set, otherwise 0 */
static void apply_mask(const double *dy, const double *dy2, const uint8_t *mask, int64_t count,
                       double *out)
{
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
        out[i] = mask[i / 8] >> (i % 8) & 1 ? dy[i] + (dy2 ? dy2[i] : 0) : 0;
}

static void batch_norm_relu_grad(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 2));
    void *const *out = a + n->n_in;
    double *masked = out[3]; /* dz, or the work area if dz is not a result */
    apply_mask(a[0], n->n_in > 6 ? a[6] : NULL, a[1], td_type_count(td_in_type(n, 0)), masked);
    norm_grad(&v, &(grad_args){ masked, a[2], a[3], a[4], a[5], out[0], out[1], out[2] }, true);
}

static int64_t masked_work(const td_node *n)
{
    return td_type_count(td_in_type(n, 0));
}

/* the mask is scale x + shift between 0 and the cap; work: the masked gradient */
static void batch_norm_scale_relu_grad(const td_node *n, void *const *a)
{
    const norm_shape v = shape_of(n, td_in_type(n, 1));
    const double *dy = a[0], *x = a[1], *scale = a[5], *shift = a[6], cap = cap_of(n);
    void *const *out = a + n->n_in;
    double *masked = out[3];
#pragma omp parallel for
    for (int64_t i = 0; i < v.N * v.C; i++)
        for (int64_t j = i * v.area; j < (i + 1) * v.area; j++) {
            const double y = scale[i % v.C] * x[j] + shift[i % v.C];
            masked[j] = y > 0 && y < cap ? dy[j] : 0;
        }
    norm_grad(&v, &(grad_args){ masked, x, a[2], a[3], a[4], out[0], out[1], out[2] }, true);
}

/* --- small ops -------------------------------------------------------------------------------- */

static void batch_norm_scale(const td_node *n, void *const *a)
{
    const double eps = ((const td_norm_attr *)n->attr)->eps, *gamma = a[0], *var = a[1];
    double *s = a[2];
    for (int64_t c = 0; c < td_in_type(n, 0)->dim[0]; c++)
        s[c] = gamma[c] / sqrt(var[c] + eps);
}

/* scale and shift follow from the stored statistics, as those of ops that are given them */
static void batch_norm_statistics(const td_node *n, int64_t n_channels, double *const *a)
{
    const td_norm_attr *at = n->attr;
    const td_dtype kept = n->out[0]->type.dtype;
    double *mean = a[4], *var = a[5], *scale = a[6], *shift = a[7];
    for (int64_t c = 0; c < n_channels; c++) {
        const double m = a[0][c] / (double)at->count;
        const double v = a[1][c] / (double)at->count - m * m;
        mean[c] = round_to_storage(m, kept);
        var[c] = round_to_storage(v < 0 ? 0 : v, kept);
        scale[c] = a[2][c] / sqrt(var[c] + at->eps);
        shift[c] = a[3][c] - mean[c] * scale[c];
    }
}

static void batch_norm_add_relu_given(const td_node *n, void *const *a)
{
    batch_norm_infer(n, a);
    clip(a[n->n_in], cap_of(n), a[n->n_in + 1], n->out[1]->type.dim[0]);
}

static void batch_norm_update(const td_node *n, int64_t count, double *const *a)
{
    const td_norm_attr *at = n->attr;
    const double m = at->momentum;
    const double unbiased = at->count > 1 ? (double)at->count / (double)(at->count - 1) : 1;
    if (n->n_in > 4 && a[4][0] == 0)
        return;
    for (int64_t c = 0; c < count; c++) {
        a[0][c] = (1 - m) * a[0][c] + m * a[2][c];
        a[1][c] = (1 - m) * a[1][c] + m * a[3][c] * unbiased;
    }
}

const td_ref_kernel td_ref_batch_norm = TD_REF(batch_norm, batch_norm);
const td_ref_kernel td_ref_batch_norm_relu = TD_REF(batch_norm_relu, batch_norm_relu);
const td_ref_kernel td_ref_batch_norm_add_relu = TD_REF(batch_norm_add_relu, batch_norm_relu);
const td_ref_kernel td_ref_batch_norm_grad = TD_REF(batch_norm_grad, batch_norm_grad);
const td_ref_kernel td_ref_batch_norm_relu_grad =
    TD_REF_WORK(batch_norm_relu_grad, batch_norm_relu_grad, masked_work);
const td_ref_kernel td_ref_batch_norm_add_relu_grad =
    TD_REF(batch_norm_add_relu_grad, batch_norm_relu_grad);
const td_ref_kernel td_ref_batch_norm_infer = TD_REF(batch_norm_infer, batch_norm_infer);
const td_ref_kernel td_ref_batch_norm_relu_infer =
    TD_REF(batch_norm_relu_infer, batch_norm_relu_infer);
const td_ref_kernel td_ref_batch_norm_add_relu_infer =
    TD_REF(batch_norm_add_relu_infer, batch_norm_relu_infer);
const td_ref_kernel td_ref_batch_norm_infer_grad =
    TD_REF(batch_norm_infer_grad, batch_norm_infer_grad);
const td_ref_kernel td_ref_batch_norm_scale = TD_REF(batch_norm_scale, batch_norm_scale);
const td_ref_kernel td_ref_batch_norm_update = TD_REF_EACH(batch_norm_update, batch_norm_update);
const td_ref_kernel td_ref_batch_norm_statistics =
    TD_REF_EACH(batch_norm_statistics, batch_norm_statistics);
const td_ref_kernel td_ref_batch_norm_add_relu_given =
    TD_REF(batch_norm_add_relu_given, batch_norm_add_relu_given);
const td_ref_kernel td_ref_batch_norm_scale_relu_grad =
    TD_REF_WORK(batch_norm_scale_relu_grad, batch_norm_scale_relu_grad, masked_work);
