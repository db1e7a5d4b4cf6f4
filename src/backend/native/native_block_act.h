/*
 * backend/native/native_block_act.h -- activations of inverted residual blocks and of stems, on
 * vectors of AVX2
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_BLOCK_ACT_H
#define TD_BACKEND_NATIVE_NATIVE_BLOCK_ACT_H

#include <math.h>

#include "ops/ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/*
 * 2^(-x log2 e) = 2^n 2^f with a whole n and |f| <= 1/2, for x in [-87, 87], where both factors are
 * normal.  Adding 1.5 2^23 rounds to n, which is then in the lowest bits.  The polynomial is within
 * 8e-8 of 2^f, relatively (minimax); with the roundings of its terms the result is good to 3e-7.
 */
INLINE __m256 td_block_exp_minus(__m256 x)
{
    const __m256 shift = _mm256_set1_ps(0x1.8p23f), scale = _mm256_set1_ps(-0x1.715476p0f);
    const __m256 v = _mm256_min_ps(_mm256_set1_ps(87), _mm256_max_ps(_mm256_set1_ps(-87), x));
    const __m256 t = _mm256_fmadd_ps(v, scale, shift);
    const __m256 f = _mm256_fmsub_ps(v, scale, _mm256_sub_ps(t, shift));
    __m256 p = _mm256_set1_ps(0x1.5c08e6p-10f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.3d0c52p-7f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.c6b6e4p-5f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.ebf918p-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.62e428p-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.000002p0f));
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(t), 23); /* n to the exponent */
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

/* x / (1 + exp(-x)), where exp(-x) overflows below -88.7: -0 there, and NaN of -inf */
INLINE __m256 td_block_silu(__m256 x)
{
    const __m256 is_over = _mm256_cmp_ps(x, _mm256_set1_ps(-0x1.62e42ep6f), _CMP_LT_OQ);
    const __m256 one =
        _mm256_or_ps(_mm256_set1_ps(1), _mm256_and_ps(is_over, _mm256_set1_ps(INFINITY)));
    return _mm256_div_ps(x, _mm256_add_ps(one, td_block_exp_minus(x)));
}

INLINE __m256 td_block_hardswish(__m256 x)
{
    const __m256 sixth = _mm256_set1_ps(1.0f / 6);
    const __m256 gate =
        _mm256_max_ps(_mm256_setzero_ps(), _mm256_fmadd_ps(x, sixth, _mm256_set1_ps(0.5f)));
    return _mm256_mul_ps(x, _mm256_min_ps(_mm256_set1_ps(1), gate));
}

/*
 * Sums are stored within limits, which is all that relu and relu6 need.  The other activations then
 * go over what was stored, in loops that are short enough to overlap; in the tile's own code they
 * would need the registers of its sums.
 */
typedef struct {
    __m256 low, high;
} td_block_limits;

INLINE td_block_limits td_block_limits_of(int act)
{
    const bool is_relu = act == TD_BLOCK_RELU || act == TD_BLOCK_RELU6;
    return (td_block_limits){ _mm256_set1_ps(is_relu ? 0 : -INFINITY),
                              _mm256_set1_ps(act == TD_BLOCK_RELU6 ? 6 : INFINITY) };
}

/* NaN stays: min and max return their second operand if one is NaN */
INLINE __m256 td_block_clip(const td_block_limits *l, __m256 x)
{
    return _mm256_min_ps(l->high, _mm256_max_ps(l->low, x));
}

INLINE bool td_block_has_curve(int act)
{
    return act == TD_BLOCK_SILU || act == TD_BLOCK_HARDSWISH;
}

INLINE void td_block_curve(int act, float *p)
{
    const __m256 x = _mm256_loadu_ps(p);
    _mm256_storeu_ps(p, act == TD_BLOCK_SILU ? td_block_silu(x) : td_block_hardswish(x));
}
#endif

#endif
