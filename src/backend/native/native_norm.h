/*
 * backend/native/native_norm.h -- the operands and results of batch normalisations
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_NORM_H
#define TD_BACKEND_NATIVE_NATIVE_NORM_H

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

#endif
