/*
 * base/half.h -- bf16 and fp16 as 16-bit patterns, converted with correct rounding
 *
 * Rounds to nearest, ties to even; keeps subnormals, infinities and signed zeros.  NaN, both ways:
 * the sign and the payload's upper bits that fit are kept and the quiet bit is set, so that a
 * signalling NaN becomes a quiet one and no NaN becomes an infinity.
 */
#ifndef TD_BASE_HALF_H
#define TD_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>

uint16_t td_f32_to_bf16(float x);
float td_bf16_to_f32(uint16_t x);
uint16_t td_f32_to_f16(float x);
float td_f16_to_f32(uint16_t x);

/** The nearest number with 10 bits of fraction instead of 23 (TF32), ties to even; NaN as above. */
float td_f32_round_tf32(float x);

/**
 * Convert `n` elements, bit-equal to the functions above, with the widest instructions of this
 * processor.  Only the types' alignment is required; src and dst must not overlap.
 */
void td_f32_to_bf16_n(const float *src, size_t n, uint16_t *dst);
void td_bf16_to_f32_n(const uint16_t *src, size_t n, float *dst);
void td_f32_to_f16_n(const float *src, size_t n, uint16_t *dst);
void td_f16_to_f32_n(const uint16_t *src, size_t n, float *dst);

/** The four array functions for one instruction set. */
typedef struct {
    const char *name; /* "avx512", "avx2", "plain" */
    void (*f32_to_bf16)(const float *src, size_t n, uint16_t *dst);
    void (*bf16_to_f32)(const uint16_t *src, size_t n, float *dst);
    void (*f32_to_f16)(const float *src, size_t n, uint16_t *dst);
    void (*f16_to_f32)(const uint16_t *src, size_t n, float *dst);
} td_half_simd;

/** The instruction sets this machine can run, best first; NULL past the end.  For tests. */
const td_half_simd *td_half_simd_at(int i);

#endif
