/*
 * native_rows.h -- inner loops over rows of float32: normalisation, softmax, sums
 *
 * Written once with vector types and compiled for AVX-512, AVX2 and the baseline instruction set.
 * All add in the same order, so all give the same bits.
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_ROWS_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_ROWS_H

#include <stdint.h>

#define TD_NATIVE_ROW_STEP 16

/* Batch normalisation: coefficients of `n` elements in turn. */
typedef struct {
    const float *mean, *scale; /* scale: gamma / sqrt(var + eps) */
    const float *shift;        /* forward: beta; backward: mean of dy */
    const float *slope;        /* backward: factor of (x - mean) */
} td_native_norm_row;

/* `n` elements of a row; results are other memory than operands unless a loop says otherwise. */
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

    /* x = value, up to the next whole step: as many as TD_NATIVE_ROW_STEP - 1 more elements */
    void (*repeat)(int64_t n, float value, float *x);

    /* the mean, and the sum of squared deviations from it */
    void (*stats)(int64_t n, const float *x, double *mean, double *m2);

    /* element by element: sum += x - pivot, squares += (x - pivot)^2 */
    void (*add_centred)(int64_t n, const float *x, const float *pivot, float *sum, float *squares);

    /* sum += g, dot += g (x - mean); add_products: element by element */
    void (*products)(int64_t n, const float *g, const float *x, float mean, double *sum,
                     double *dot);
    void (*add_products)(int64_t n, const float *g, const float *x, const float *mean, float *sum,
                         float *dot);

    /* g = dy (+ dy2 unless NULL) where the bit of `mask` is set, otherwise 0; n a multiple of 8; g
       may be dy or dy2 */
    void (*masked)(int64_t n, const float *dy, const float *dy2, const uint8_t *mask, float *g);

    /* y = (x - mean) scale + shift (+ z unless NULL), clipped to 0 .. cap unless cap is 0
       (INFINITY: relu); y may be x or z.  `mask`, unless NULL, gets a bit for each element: was it
       within the range?  n is a multiple of 8 then. */
    void (*batch_norm)(int64_t n, const td_native_norm_row *c, const float *x, const float *z,
                       float *y, float cap, uint8_t *mask);

    /* dx = scale (g - shift - slope (x - mean)); dx may be g or x */
    void (*batch_norm_grad)(int64_t n, const td_native_norm_row *c, const float *g, const float *x,
                            float *dx);
} td_native_rows;

/** Number i of the loops that this machine can run, the best first; NULL past the end. */
const td_native_rows *td_native_rows_at(int i);

/** The best loops for this machine. */
const td_native_rows *td_native_rows_here(void);

#endif
