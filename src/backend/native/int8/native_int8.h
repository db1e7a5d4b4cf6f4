/*
 * native_int8.h -- inner loops of quantize, dequantize and shift_int8
 *
 * Written once and compiled for AVX-512, AVX2 and the baseline instruction set; all give the same
 * bits.
 */
#ifndef TD_BACKEND_NATIVE_INT8_NATIVE_INT8_H
#define TD_BACKEND_NATIVE_INT8_NATIVE_INT8_H

#include <stdint.h>

typedef struct {
    const char *isa;

    /* y = x / scale to the nearest integer of 0 .. 255 or -128 .. 127, ties to even; NaN gives 0 */
    void (*to_u8)(int64_t n, const float *x, float scale, uint8_t *y);
    void (*to_s8)(int64_t n, const float *x, float scale, int8_t *y);

    void (*from_u8)(int64_t n, const uint8_t *x, float scale, float *y); /* y = x scale */
    void (*from_s8)(int64_t n, const int8_t *x, float scale, float *y);

    void (*shift)(int64_t n, const int8_t *x, uint8_t *y); /* y = x + 128 */

    float (*largest)(int64_t n, const float *x); /* max |x|, NaN left out */
} td_native_int8_simd;

/** Number i of the loops that this machine can run, the best first; NULL past the end. */
const td_native_int8_simd *td_native_int8_simd_at(int i);

#endif
