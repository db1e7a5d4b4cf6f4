/*
 * native_rgb_simd.c -- the inner loop of native_rgb.h, for AVX-512
 */
#include "backend/native/elementwise/native_rgb.h"

#include <stddef.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include "backend/native/simd/native_bf16_round.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

enum { LANES = 16, CHANNELS = 3, LINE = 32 /* words of a register */ };

/* Word i of 48 is channel i % 3 of pixel i / 3: of red and green in one register, or of blue. */
static TARGET __m512i order_from(int first)
{
    uint16_t word[LINE];
    for (int i = 0; i < LINE; i++)
        word[i] = (uint16_t)((first + i) % CHANNELS * LANES + (first + i) / CHANNELS % LANES);
    return _mm512_loadu_si512(word);
}

static inline __attribute__((always_inline)) TARGET void put_16(const float *const plane[3],
                                                                int64_t at, __mmask16 which,
                                                                const __m512i order[2],
                                                                __m512i out[2])
{
    const __m256i red = td_bf16_16(_mm512_maskz_loadu_ps(which, plane[0] + at));
    const __m256i green = td_bf16_16(_mm512_maskz_loadu_ps(which, plane[1] + at));
    const __m256i blue = td_bf16_16(_mm512_maskz_loadu_ps(which, plane[2] + at));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(red), green, 1);
    for (int k = 0; k < 2; k++)
        out[k] = _mm512_permutex2var_epi16(both, order[k], _mm512_castsi256_si512(blue));
}

static TARGET void interleave(int64_t n, const float *const plane[3], uint16_t *to)
{
    const __m512i order[2] = { order_from(0), order_from(LINE) };
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t pixels = n - i < LANES ? n - i : LANES;
        const uint64_t words = (UINT64_C(1) << pixels * CHANNELS) - 1;
        __m512i out[2];
        put_16(plane, i, (__mmask16)((1U << pixels) - 1), order, out);
        _mm512_mask_storeu_epi16(to + i * CHANNELS, (__mmask32)words, out[0]);
        _mm512_mask_storeu_epi16(to + i * CHANNELS + LINE, (__mmask32)(words >> LINE), out[1]);
    }
}

td_rgb_loop *td_rgb_loop_here(void)
{
    return td_isa_has(TD_ISA_AVX512) ? interleave : NULL;
}
#else
td_rgb_loop *td_rgb_loop_here(void)
{
    return NULL;
}
#endif
