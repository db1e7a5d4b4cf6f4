/*
 * backend/native/simd/native_bf16_math.h -- functions of 16 numbers to as many digits as bfloat16
 * needs, for AVX-512 with its conversions
 *
 * 2^v is 2^floor(v) 2^f with 0 <= f < 1, by a polynomial within 8e-5 of 2^f, relatively (minimax),
 * and a reciprocal is the processor's estimate, good to 6e-5.
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_BF16_MATH_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_BF16_MATH_H

#include <immintrin.h>
#include <stdint.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { LANES = 16 };

INLINE __m512 load(const uint16_t *p, __mmask16 which)
{
    const __m256i x = _mm256_maskz_loadu_epi16(which, p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

INLINE void put(uint16_t *p, __m512 x, __mmask16 which)
{
    _mm256_mask_storeu_epi16(p, which, (__m256i)_mm512_cvtneps_pbh(x));
}

INLINE __m512 power_of_2(__m512 v)
{
    const __m512 f = _mm512_reduce_ps(v, _MM_FROUND_TO_NEG_INF);
    __m512 p = _mm512_set1_ps(0x1.3f96a4p-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.cefc4cp-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.64444cp-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.fff632p-1f));
    return _mm512_scalef_ps(p, v);
}

#define LOG2_E 0x1.715476p0f

/* 1 / (1 + exp(-x)); 0 where exp(-x) overflows */
INLINE __m512 sigmoid(__m512 x)
{
    const __m512 e = power_of_2(_mm512_mul_ps(x, _mm512_set1_ps(-LOG2_E)));
    return _mm512_rcp14_ps(_mm512_add_ps(_mm512_set1_ps(1), e));
}

INLINE __mmask16 lanes_of(int64_t n)
{
    return (__mmask16)(n < LANES ? (1 << n) - 1 : 0xffff);
}

/* The normal distribution below x, and e = exp(-x^2 / 2), which is its density times sqrt(2 pi). */
typedef struct {
    __m512 below, e;
} normal;

/*
 * Below -|x| it is e t P(t) with t = 1 / (1 + 0.35 |x| / sqrt 2), a form of Hastings (Abramowitz
 * and Stegun 7.1.26).  P is within 7e-5, relatively, for |x| up to 13.5, where e is below any
 * float32.
 */
INLINE normal normal_of(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1), size = _mm512_abs_ps(x);
    const __m512 t = _mm512_rcp14_ps(_mm512_fmadd_ps(size, _mm512_set1_ps(0.24748737f), one));
    const __m512 e = power_of_2(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f * LOG2_E)));
    __m512 p = _mm512_set1_ps(0.2605314046f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.1328389242f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.1963204592f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.0752018513f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.1007500383f));
    const __m512 tail = _mm512_mul_ps(e, _mm512_mul_ps(p, t));
    const __mmask16 is_negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return (normal){ _mm512_mask_sub_ps(tail, (__mmask16)~is_negative, one, tail), e };
}

/* x times the normal distribution below it */
INLINE __m512 gelu_of(__m512 x)
{
    return _mm512_mul_ps(x, normal_of(x).below);
}

#endif
