/*
 * convolve.h -- a convolution or one of its gradients, in float32
 */
#ifndef TD_TESTS_CUDA_STAND_IN_CONVOLVE_H
#define TD_TESTS_CUDA_STAND_IN_CONVOLVE_H

#include "cudnn_descriptor.h"

namespace stand_in
{

struct sizes {
    int64_t n, groups;
    int64_t c, h, w;       /* channels of a group, size of an image */
    int64_t filters, r, s; /* filters of a group, rows and columns of a filter */
    int64_t p, q;          /* size of a result */
    int64_t before[2];     /* padding */
    int64_t stride[2], dilation[2];
};

/**
 * Adds to y, x or w, as `what` is FORWARD, DATA_GRADIENT or FILTER_GRADIENT.
 *
 *   x   [n, h, w, groups c]
 *   w   [groups filters, r, s, c]
 *   y   [n, p, q, groups filters]
 */
void convolve(kind what, const sizes &z, float *x, float *w, float *y);

} // namespace stand_in

#endif
