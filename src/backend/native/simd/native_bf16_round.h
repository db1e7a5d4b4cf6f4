/*
 * backend/native/simd/native_bf16_round.h -- 16 numbers rounded to bfloat16 with AVX-512: to
 * nearest even, with subnormal numbers, which vcvtneps2bf16 takes for zeros
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_BF16_ROUND_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_BF16_ROUND_H

#include <immintrin.h>

/** The upper half of each lane is the result; a NaN becomes a quiet one. */
static inline __attribute__((always_inline, target("avx512f"))) __m512i td_round_bf16_16(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __mmask16 is_odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    __m512i r = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    r = _mm512_mask_add_epi32(r, is_odd, r, _mm512_set1_epi32(1));
    return _mm512_mask_or_epi32(r, is_nan, u, _mm512_set1_epi32(0x00400000));
}

/** The same as 16 words. */
static inline __attribute__((always_inline, target("avx512f"))) __m256i td_bf16_16(__m512 x)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(td_round_bf16_16(x), 16));
}

#endif
