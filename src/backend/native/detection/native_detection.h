/*
 * native_detection.h -- inner loops of detectors' losses: millions of logits, a few operations each
 *
 * Written once with vector types and compiled for AVX-512, AVX2 and the baseline instruction set.
 * All work on sixteen numbers at a time and add in the same order, so all give the same bits.
 */
#ifndef TD_BACKEND_NATIVE_DETECTION_NATIVE_DETECTION_H
#define TD_BACKEND_NATIVE_DETECTION_NATIVE_DETECTION_H

#include "base/text.h"

#define TD_NATIVE_STEP 16 /* n of focal and focal_grad is a multiple of this */

/* focal and focal_grad compute, for each number with p = sigmoid(x), the unweighted loss of a
   negative column. */
typedef struct {
    const char *isa;

    /* sum of p^2 softplus(x) */
    double (*focal)(int64_t n, const float *x);

    /* dx = by p^2 (p + 2 (1 - p) softplus(x)); dx may be x */
    void (*focal_grad)(int64_t n, const float *x, float by, float *dx);

    /* largest[i] of row i of x [rows, columns], and the logarithm of the sum of exp(x - largest) */
    void (*log_sums)(int64_t rows, int64_t columns, const float *x, float *largest, float *log_sum);

    /* dx = by exp(x - largest - log_sum) */
    void (*softmax)(int64_t columns, const float *x, float largest, float log_sum, float by,
                    float *dx);

    /* y = exp(x - largest) / the sum of these; y may be x */
    void (*softmax_row)(int64_t columns, const float *x, float *y);
} td_native_detection_simd;

/** Number i of the loops that this machine can run, the best first; NULL past the end. */
const td_native_detection_simd *td_native_detection_simd_at(int i);

#endif
