/*
 * half.c -- converts 16-bit floats by integer arithmetic on their bit patterns
 *
 *            sign  exponent  fraction
 *   float32    1      8         23
 *   bf16       1      8          7      the upper half of a float32
 *   fp16       1      5         10      exponent bias 15, subnormals below 2^-14
 *
 * Arrays: bf16 uses the same integer arithmetic in loops that the compiler vectorizes, one copy for
 * each instruction set; fp16 has its own instructions (F16C, AVX-512), which round and treat NaN
 * like the functions here.  vcvtneps2bf16 is not used: it flushes subnormals to zero.
 */
#include "base/half.h"

#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* u / 2^shift to nearest, ties to even; 1 <= shift <= 31 */
static uint32_t shift_right_rounded(uint32_t u, int shift)
{
    uint32_t kept = u >> shift, lost = u & ((UINT32_C(1) << shift) - 1);
    uint32_t tie = UINT32_C(1) << (shift - 1);
    return kept + (lost > tie || (lost == tie && (kept & 1)));
}

uint16_t td_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x0040);
    return (uint16_t)((u >> 16 & 0x8000) | shift_right_rounded(u & 0x7fffffff, 16));
}

float td_bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    if ((x & 0x7fff) > 0x7f80)
        u |= 0x00400000;
    return float_of(u);
}

float td_f32_round_tf32(float x)
{
    enum { LOST = 23 - 10 };
    const uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return float_of((u | 0x00400000) >> LOST << LOST);
    return float_of((u & 0x80000000) | shift_right_rounded(magnitude, LOST) << LOST);
}

uint16_t td_f32_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;

    if (magnitude > 0x7f800000) /* NaN */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* 2^-14 and above: move the bias from 127 to 15, then round */
        return (uint16_t)(sign | shift_right_rounded(magnitude - (UINT32_C(112) << 23), 13));
    if (magnitude <= 0x33000000) /* 2^-25, a tie, and below round to zero */
        return (uint16_t)sign;

    uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    int shift = 126 - (int)(magnitude >> 23); /* the fraction in units of 2^-24: 14 .. 24 places */
    return (uint16_t)(sign | shift_right_rounded(fraction, shift));
}

float td_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;

    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x00400000 : 0));
    if (exponent > 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f; /* exact */
    return float_of(sign | bits_of(tiny));
}

/* --- arrays ----------------------------------------------------------------------------------- */

/* td_f32_to_bf16 without a branch */
static inline uint16_t round_to_bf16(uint32_t u)
{
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quieted = u >> 16 | 0x0040;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quieted : rounded);
}

static inline uint32_t widen_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    return (u & 0x7fffffff) > 0x7f800000 ? u | 0x00400000 : u;
}

#define BF16_LOOPS(isa, target)                                                                    \
    target static void f32_to_bf16_##isa(const float *restrict src, size_t n,                      \
                                         uint16_t *restrict dst)                                   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            dst[i] = round_to_bf16(bits_of(src[i]));                                               \
    }                                                                                              \
                                                                                                   \
    target static void bf16_to_f32_##isa(const uint16_t *restrict src, size_t n,                   \
                                         float *restrict dst)                                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            dst[i] = float_of(widen_bf16(src[i]));                                                 \
    }

#define SIMD(isa)                                                                                  \
    static const td_half_simd simd_##isa = { #isa, f32_to_bf16_##isa, bf16_to_f32_##isa,           \
                                             f32_to_f16_##isa, f16_to_f32_##isa };

static void f32_to_f16_plain(const float *src, size_t n, uint16_t *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = td_f32_to_f16(src[i]);
}

static void f16_to_f32_plain(const uint16_t *src, size_t n, float *dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = td_f16_to_f32(src[i]);
}

BF16_LOOPS(plain, )
SIMD(plain)

#if HAVE_X86
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")))
#define AVX2   __attribute__((target("avx2,f16c")))

AVX2 static void f32_to_f16_avx2(const float *src, size_t n, uint16_t *dst)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    f32_to_f16_plain(src + i, n - i, dst + i);
}

AVX2 static void f16_to_f32_avx2(const uint16_t *src, size_t n, float *dst)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    f16_to_f32_plain(src + i, n - i, dst + i);
}

AVX512 static void f32_to_f16_avx512(const float *src, size_t n, uint16_t *dst)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    f32_to_f16_avx2(src + i, n - i, dst + i);
}

AVX512 static void f16_to_f32_avx512(const uint16_t *src, size_t n, float *dst)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(
            dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
    f16_to_f32_avx2(src + i, n - i, dst + i);
}

BF16_LOOPS(avx2, AVX2)
SIMD(avx2)
BF16_LOOPS(avx512, AVX512)
SIMD(avx512)
#endif

const td_half_simd *td_half_simd_at(int i)
{
    const td_half_simd *have[4] = { NULL };
    int n = 0;
#if HAVE_X86
    if (td_isa_has(TD_ISA_AVX512))
        have[n++] = &simd_avx512;
    if (td_isa_has(TD_ISA_AVX2))
        have[n++] = &simd_avx2;
#endif
    have[n++] = &simd_plain;
    return i >= 0 && i < n ? have[i] : NULL;
}

void td_f32_to_bf16_n(const float *src, size_t n, uint16_t *dst)
{
    td_half_simd_at(0)->f32_to_bf16(src, n, dst);
}

void td_bf16_to_f32_n(const uint16_t *src, size_t n, float *dst)
{
    td_half_simd_at(0)->bf16_to_f32(src, n, dst);
}

void td_f32_to_f16_n(const float *src, size_t n, uint16_t *dst)
{
    td_half_simd_at(0)->f32_to_f16(src, n, dst);
}

void td_f16_to_f32_n(const uint16_t *src, size_t n, float *dst)
{
    td_half_simd_at(0)->f16_to_f32(src, n, dst);
}
