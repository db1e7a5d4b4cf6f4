/*
 * native_silu_simd.c -- silu and its gradient of bfloat16, for AVX-512 with its conversions
 *
 * The general loops (native_act.inc) widen to a buffer, compute an exponential good to float32's
 * last places, and round.  These compute as many digits as bfloat16 needs, in registers:
 * exp(-x) = 2^v is 2^floor(v) 2^f with 0 <= f < 1, by a polynomial within 8e-5 of 2^f, relatively
 * (minimax), and the reciprocal is the processor's estimate, good to 6e-5.
 */
#include "backend/native/native_silu.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

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

/* 1 / (1 + exp(-x)); 0 where exp(-x) overflows */
INLINE __m512 sigmoid(__m512 x)
{
    const __m512 v = _mm512_mul_ps(x, _mm512_set1_ps(-0x1.715476p0f));
    const __m512 f = _mm512_reduce_ps(v, _MM_FROUND_TO_NEG_INF);
    __m512 p = _mm512_set1_ps(0x1.3f96a4p-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.cefc4cp-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.64444cp-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.fff632p-1f));
    return _mm512_rcp14_ps(_mm512_add_ps(_mm512_set1_ps(1), _mm512_scalef_ps(p, v)));
}

static __mmask16 lanes_of(int64_t n)
{
    return (__mmask16)(n < LANES ? (1 << n) - 1 : 0xffff);
}

static TARGET void silu(int64_t n, const uint16_t *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which);
        put(y + i, _mm512_mul_ps(v, sigmoid(v)), which);
    }
}

/* dx = dy s (1 + x (1 - s)) */
static TARGET void silu_grad(int64_t n, const uint16_t *dy, const uint16_t *x, uint16_t *dx)
{
    const __m512 one = _mm512_set1_ps(1);
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which), s = sigmoid(v);
        const __m512 slope = _mm512_mul_ps(s, _mm512_fmadd_ps(v, _mm512_sub_ps(one, s), one));
        put(dx + i, _mm512_mul_ps(load(dy + i, which), slope), which);
    }
}

static const td_native_silu_loops loops = { silu, silu_grad };

const td_native_silu_loops *td_native_silu_bf16(void)
{
    return td_isa_has(TD_ISA_AVX512_BF16) ? &loops : NULL;
}
#else
const td_native_silu_loops *td_native_silu_bf16(void)
{
    return NULL;
}
#endif
