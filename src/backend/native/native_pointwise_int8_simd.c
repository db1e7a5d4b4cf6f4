/*
 * native_pointwise_int8_simd.c -- the inner loops of 1x1 convolutions of 8-bit integers, for
 * AVX-512 with VNNI
 *
 * A tile's sums are in registers: up to 6 pixels of 4 vectors of 16 channels.  One instruction
 * multiplies and adds four input channels; sums are exact.  Then y = sum scale + bias + residual,
 * in steps of y, which packing to 8 bits clips.
 */
#include <string.h>

#include "backend/native/native_pointwise_int8.h"
#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { VECTORS = TD_POINTWISE_CHANNELS / 16, DEPTH = 4, SUMS = TD_POINTWISE_PIXELS * VECTORS };

static inline int32_t four_at(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* where pixel i of y is read */
static inline const uint8_t *pixel_of(const td_pointwise *v, int64_t i)
{
    if (v->stride == 1)
        return v->x + i * v->C;
    const int64_t row = i / v->Q, n = row / v->P, p = row % v->P, q = i % v->Q;
    return v->x + ((n * v->H + p * v->stride) * v->W + q * v->stride) * v->C;
}

INLINE __m512 residual_at(td_pointwise_residual kind, const char *p)
{
    const __m128i r = _mm_loadu_si128((const void *)p);
    return _mm512_cvtepi32_ps(kind == TD_POINTWISE_SIGNED ? _mm512_cvtepi8_epi32(r)
                                                          : _mm512_cvtepu8_epi32(r));
}

/* 64 integers of 32 bits, clipped to 8 */
INLINE __m512i packed(bool is_signed, const __m512i *q)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i a = _mm512_packs_epi32(q[0], q[1]), b = _mm512_packs_epi32(q[2], q[3]);
    return _mm512_permutexvar_epi32(order, is_signed ? _mm512_packs_epi16(a, b)
                                                     : _mm512_packus_epi16(a, b));
}

/* sum[i] [64] of pixel `from` + i */
INLINE void multiply(int T, const td_pointwise *v, int64_t from, const int8_t *w,
                     int32_t sum[][TD_POINTWISE_CHANNELS])
{
    const uint8_t *x[TD_POINTWISE_PIXELS];
    __m512i s[SUMS];
#pragma GCC unroll 6
    for (int i = 0; i < T; i++)
        x[i] = pixel_of(v, from + i);
#pragma GCC unroll 24
    for (int i = 0; i < T * VECTORS; i++)
        s[i] = _mm512_setzero_si512();
    for (int64_t c = 0; c < v->C; c += DEPTH, w += DEPTH * TD_POINTWISE_CHANNELS) {
        __m512i b[VECTORS];
#pragma GCC unroll 4
        for (int k = 0; k < VECTORS; k++)
            b[k] = _mm512_loadu_si512(w + k * 64);
#pragma GCC unroll 6
        for (int i = 0; i < T; i++) {
            const __m512i a = _mm512_set1_epi32(four_at(x[i] + c));
#pragma GCC unroll 4
            for (int k = 0; k < VECTORS; k++)
                s[i * VECTORS + k] = _mm512_dpbusd_epi32(s[i * VECTORS + k], a, b[k]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < T * VECTORS; i++)
        _mm512_store_si512(&sum[i / VECTORS][i % VECTORS * 16], s[i]);
}

/* the results of T pixels from their sums; `at`: the place of the first in y */
INLINE void put(int T, const td_pointwise *v, td_pointwise_residual kind, bool is_signed,
                const int32_t sum[][TD_POINTWISE_CHANNELS], int64_t first, int64_t at)
{
    const char *residual = kind ? (const char *)v->residual + at : NULL;
    char *to = (char *)v->y + at;
    const int64_t K = v->K;
    const __m512 by = _mm512_set1_ps(v->residual_scale), most = _mm512_set1_ps(UINT8_MAX);
    __m512 scale[VECTORS], bias[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        scale[j] = _mm512_loadu_ps(v->scale + first + j * 16);
        bias[j] = _mm512_loadu_ps(v->bias + first + j * 16);
    }
    for (int i = 0; i < T; i++, to += K, residual += kind ? K : 0) {
        __m512i q[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            const __m512 s = _mm512_cvtepi32_ps(_mm512_load_si512(&sum[i][j * 16]));
            __m512 y = _mm512_fmadd_ps(s, scale[j], bias[j]);
            if (kind)
                y = _mm512_fmadd_ps(residual_at(kind, residual + j * 16), by, y);
            q[j] = _mm512_cvtps_epi32(_mm512_min_ps(most, y)); /* NaN becomes the smallest */
        }
        _mm512_storeu_si512(to, packed(is_signed, q));
    }
}

INLINE void tile(int T, const td_pointwise *v, int64_t from, int64_t k)
{
    _Alignas(64) int32_t sum[TD_POINTWISE_PIXELS][TD_POINTWISE_CHANNELS];
    const int64_t first = k * TD_POINTWISE_CHANNELS, at = from * v->K + first;
    multiply(T, v, from, v->w + first * v->C, sum);
    if (v->is_signed)
        put(T, v, v->residual_kind, true, sum, first, at);
    else if (v->residual_kind == TD_POINTWISE_NONE)
        put(T, v, TD_POINTWISE_NONE, false, sum, first, at);
    else if (v->residual_kind == TD_POINTWISE_UNSIGNED)
        put(T, v, TD_POINTWISE_UNSIGNED, false, sum, first, at);
    else
        put(T, v, TD_POINTWISE_SIGNED, false, sum, first, at);
}

static TARGET void run_tile(const td_pointwise *v, int64_t from, int64_t to, int64_t k)
{
    switch (to - from) {
    case 6:
        tile(6, v, from, k);
        break;
    case 5:
        tile(5, v, from, k);
        break;
    case 4:
        tile(4, v, from, k);
        break;
    case 3:
        tile(3, v, from, k);
        break;
    case 2:
        tile(2, v, from, k);
        break;
    default:
        tile(1, v, from, k);
    }
}

td_pointwise_loops *td_pointwise_loops_here(void)
{
    return td_isa_has_vnni() ? run_tile : NULL;
}
#else
td_pointwise_loops *td_pointwise_loops_here(void)
{
    return NULL;
}
#endif
