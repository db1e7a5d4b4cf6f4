/*
 * native_rows.h -- inner loops over rows of float32: layer normalisation, softmax, sums
 *
 * Written once with vector types and compiled for AVX-512, AVX2 and the baseline instruction set.
 * All add in the same order, so all give the same bits.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_ROWS_H
#define TD_BACKEND_NATIVE_NATIVE_ROWS_H

#include <stdint.h>

#define TD_NATIVE_ROW_STEP 16

/* `n` elements of a row; results are other memory than operands. */
typedef struct {
    const char *isa;

    /* y = gamma (x - mean) scale + beta, with the row's mean, and scale = 1 / sqrt(var + eps) */
    void (*norm)(int64_t n, const float *x, const float *gamma, const float *beta, float eps,
                 float *y, float *mean, float *scale);

    /* dx; the row's terms are added to dgamma and dbeta */
    void (*norm_grad)(int64_t n, const float *dy, const float *x, const float *gamma, float mean,
                      float scale, float *dx, float *dgamma, float *dbeta);

    void (*softmax_grad)(int64_t n, const float *dy, const float *y, float *dx);

    float (*sum)(int64_t n, const float *x);
    float (*dot)(int64_t n, const float *x, const float *y);
    void (*add_to)(int64_t n, const float *x, float *sum); /* sum += x */
} td_native_rows;

/** The loops for this machine. */
const td_native_rows *td_native_rows_here(void);

#endif
