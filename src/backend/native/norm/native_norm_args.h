/*
 * backend/native/norm/native_norm_args.h -- operands and results of batch normalisations, and what
 * follows from a channel's sums
 */
#ifndef TD_BACKEND_NATIVE_NORM_NATIVE_NORM_ARGS_H
#define TD_BACKEND_NATIVE_NORM_NATIVE_NORM_ARGS_H

#include "ops/ops.h"

/* What the node does not have is NULL. */
typedef struct {
    double eps;
    const void *x, *z, *dy, *dy2; /* dy2: added to dy; dz is the masked sum */
    const float *gamma, *beta, *mean_in, *var_in;
    const uint8_t *mask_in;
    void *y, *dx, *dz;
    float *mean, *var, *dgamma, *dbeta;
    float cap; /* upper bound; 0: no relu, INFINITY: relu */
    uint8_t *mask;
} td_native_norm_args;

/** Of batch_norm, batch_norm_relu and batch_norm_add_relu; `args` of the kernel. */
td_native_norm_args td_native_norm_forward(const td_node *n, void *const *args);

/** Of the same with _infer. */
td_native_norm_args td_native_norm_infer(const td_node *n, void *const *args);

/** Of their gradients. */
td_native_norm_args td_native_norm_backward(const td_node *n, void *const *args);

/* of a channel: forward y = (x - mean) scale + shift, backward as td_native_coefs */
typedef struct {
    float mean, scale, shift, slope;
} td_native_norm_channel;

/** Coefficients of channel k from given statistics. */
td_native_norm_channel td_native_norm_given(const td_native_norm_args *a, int64_t k, float mean,
                                            float var);

/** Stores the statistics of channel k; its coefficients, which are those of inference with them.
    m2: the sum of squared deviations of `total` numbers. */
td_native_norm_channel td_native_norm_end_forward(const td_native_norm_args *a, int64_t k,
                                                  double mean, double m2, double total);

/** Stores dgamma and dbeta of channel k; its coefficients.  sum: of the gradients g of `total`
    numbers, dot: of g (x - mean). */
td_native_norm_channel td_native_norm_end_backward(const td_native_norm_args *a, int64_t k,
                                                   double sum, double dot, double total);

/** Joins the statistics of `now` numbers to those of `before` (Chan et al. 1983). */
static inline void td_native_norm_join(double *mean, double *m2, double before, double other_mean,
                                       double other_m2, double now)
{
    const double share = now / (before + now), gap = other_mean - *mean;
    *mean += gap * share;
    *m2 += other_m2 + gap * gap * before * share;
}

#endif
