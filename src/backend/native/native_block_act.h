/*
 * backend/native/native_block_act.h -- activations of inverted residual blocks and of stems, on
 * vectors of AVX2
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_BLOCK_ACT_H
#define TD_BACKEND_NATIVE_NATIVE_BLOCK_ACT_H

#include "ops/ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* e^x as native_act.inc computes it, for x in [-87, 88] */
INLINE __m256 td_block_exp(__m256 x)
{
    const __m256 shift = _mm256_set1_ps(0x1.8p23f);
    const __m256 v = _mm256_min_ps(_mm256_set1_ps(88), _mm256_max_ps(_mm256_set1_ps(-87), x));
    const __m256 t = _mm256_fmadd_ps(v, _mm256_set1_ps(0x1.715476p0f), shift);
    const __m256 n = _mm256_sub_ps(t, shift);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), v);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1)));
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(t), 23); /* n to the exponent */
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

/* NaN stays: min and max return their second operand if one is NaN */
INLINE __m256 td_block_activate(__m256 x, int act)
{
    const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1);
    switch (act) {
    case TD_BLOCK_RELU:
        return _mm256_max_ps(zero, x);
    case TD_BLOCK_RELU6:
        return _mm256_min_ps(_mm256_set1_ps(6), _mm256_max_ps(zero, x));
    case TD_BLOCK_SILU:
        return _mm256_div_ps(x, _mm256_add_ps(one, td_block_exp(_mm256_sub_ps(zero, x))));
    case TD_BLOCK_HARDSWISH:
        return _mm256_mul_ps(
            x, _mm256_min_ps(one, _mm256_max_ps(zero, _mm256_fmadd_ps(x, _mm256_set1_ps(1.0f / 6),
                                                                      _mm256_set1_ps(0.5f)))));
    default:
        return x;
    }
}
#endif

#endif
