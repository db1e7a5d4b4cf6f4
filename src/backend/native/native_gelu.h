/*
 * backend/native/native_gelu.h -- gelu of 16 numbers with AVX-512
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_GELU_H
#define TD_BACKEND_NATIVE_NATIVE_GELU_H

#include <immintrin.h>

#include "backend/native/native_erf.h"

#define GELU_INLINE                                                                                \
    static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

GELU_INLINE __m512 td_polynomial(int n, const float *c, __m512 z)
{
    __m512 p = _mm512_set1_ps(c[n - 1]);
#pragma GCC unroll 6
    for (int i = n - 2; i >= 0; i--)
        p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(c[i]));
    return p;
}

/* x (1 + erf(x / sqrt 2)) / 2; erf is 1 from 4 on, also where the quotient is not a number */
GELU_INLINE __m512 td_gelu_16(__m512 x)
{
    static const float above[] = { ERF_P0, ERF_P1, ERF_P2, ERF_P3, ERF_P4, ERF_P5 };
    static const float below[] = { 1, ERF_Q1, ERF_Q2, ERF_Q3, ERF_Q4, ERF_Q5 };
    const __m512 one = _mm512_set1_ps(1), half = _mm512_mul_ps(_mm512_set1_ps(0.5f), x);
    const __m512 size = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0x1.6a09e6p-1f));
    const __m512 z = _mm512_mul_ps(size, size);
    const __m512 p = _mm512_mul_ps(size, td_polynomial(6, above, z));
    const __m512 ratio = _mm512_min_ps(one, _mm512_div_ps(p, td_polynomial(6, below, z)));
    const __mmask16 is_large = _mm512_cmp_ps_mask(size, _mm512_set1_ps(4), _CMP_GE_OQ);
    const __m512 erf = _mm512_mask_mov_ps(ratio, is_large, one);
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
    return _mm512_fmadd_ps(half, _mm512_or_ps(erf, sign), half);
}

#undef GELU_INLINE

#endif
