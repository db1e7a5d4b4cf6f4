/*
 * native_pointwise_int8_simd.c -- the inner loops of 1x1 convolutions of 8-bit integers, for
 * AVX-512 with VNNI
 *
 * A tile's sums are in registers: up to 6 pixels of 4 vectors of 16 channels.  One instruction
 * multiplies and adds four input channels; sums are exact.  Then y = sum scale + bias + residual,
 * in steps of y, which packing to 8 bits clips.
 */
#include "backend/native/int8/native_pointwise_int8.h"
#include "base/isa.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#include "backend/native/int8/native_int8_tile.inc"

enum { SUMS = TD_POINTWISE_PIXELS * VECTORS };

/* where pixel i of y is read */
static inline const uint8_t *pixel_of(const td_pointwise *v, int64_t i)
{
    if (v->stride == 1)
        return v->x + i * v->C;
    const int64_t row = i / v->Q, n = row / v->P, p = row % v->P, q = i % v->Q;
    return v->x + ((n * v->H + p * v->stride) * v->W + q * v->stride) * v->C;
}

/* s: for each of T pixels, sums of VECTORS vectors; `ahead` may be NULL */
INLINE void multiply(int T, const td_pointwise *v, const td_pointwise_tile *j, const int8_t *ahead,
                     __m512i *s)
{
    const int8_t *w = v->w + j->k * TD_INT8_CHANNELS * v->C;
    const uint8_t *x[TD_POINTWISE_PIXELS];
#pragma GCC unroll 6
    for (int i = 0; i < T; i++)
        x[i] = pixel_of(v, j->from + i);
#pragma GCC unroll 24
    for (int i = 0; i < T * VECTORS; i++)
        s[i] = _mm512_setzero_si512();
    for (int64_t c = 0; c < v->C; c += DEPTH, w += DEPTH * TD_INT8_CHANNELS) {
        __m512i b[VECTORS];
        if (ahead)
            _mm_prefetch((const char *)ahead + c * (64 / DEPTH), _MM_HINT_T1);
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
        IN_REGISTER(s[i]);
}

/* the results of T pixels from their sums s */
INLINE void put(int T, const td_pointwise *v, td_int8_residual kind, bool is_signed,
                const td_pointwise_tile *j, const __m512i *s)
{
    const int64_t first = j->k * TD_INT8_CHANNELS, at = j->from * v->K + first;
    target t = { .residual = kind ? (const char *)v->residual + at : NULL,
                 .to = (char *)v->y + at,
                 .K = v->K,
                 .bias = v->bias + first,
                 .by = _mm512_set1_ps(v->residual_scale) };
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++)
        t.scale[i] = _mm512_loadu_ps(v->scale + first + i * 16);
#define PUT(i) put_pixel(&t, i, kind, is_signed, T == TD_POINTWISE_PIXELS, s + (i)*VECTORS)
    FOR_PIXELS(T, PUT);
#undef PUT
}

/* float32 results of a pixel from its sums */
INLINE void put_floats(const td_pointwise *v, const td_pointwise_tile *j, int i, const __m512i *s)
{
    const int64_t first = j->k * TD_INT8_CHANNELS, at = (j->from + i) * v->K + first;
#pragma GCC unroll 4
    for (int k = 0; k < VECTORS * 16; k += 16) {
        __m512 y =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[k / 16]), _mm512_loadu_ps(v->scale + first + k),
                            _mm512_loadu_ps(v->bias + first + k));
        if (v->residual)
            y = _mm512_add_ps(y, _mm512_loadu_ps((const float *)v->residual + at + k));
        if (v->relu)
            y = _mm512_max_ps(_mm512_setzero_ps(), y); /* NaN stays */
        _mm512_storeu_ps((float *)v->y + at + k, y);
    }
}

/* float32 results of T pixels */
INLINE void put_wide(int T, const td_pointwise *v, const td_pointwise_tile *j, const __m512i *s)
{
#define PUT(i) put_floats(v, j, i, s + (i)*VECTORS)
    FOR_PIXELS(T, PUT);
#undef PUT
}

/* is_signed: y is; ahead: of j, where there is another loop for it.  TD_INT8_FLOAT: y is
   float32. */
INLINE void tile(int T, const td_pointwise *v, td_int8_residual kind, bool is_signed,
                 const td_pointwise_tile *j, const int8_t *ahead)
{
    __m512i s[SUMS];
    multiply(T, v, j, ahead, s);
    if (kind == TD_INT8_FLOAT)
        put_wide(T, v, j, s);
    else
        put(T, v, kind, is_signed, j, s);
}

#define TILES(name, kind, is_signed)                                                               \
    static TARGET void name(const td_pointwise *v, const td_pointwise_tile *j)                     \
    {                                                                                              \
        switch (j->to - j->from) {                                                                 \
        case 6:                                                                                    \
            if (j->ahead)                                                                          \
                tile(6, v, kind, is_signed, j, j->ahead);                                          \
            else                                                                                   \
                tile(6, v, kind, is_signed, j, NULL);                                              \
            break;                                                                                 \
        case 5:                                                                                    \
            tile(5, v, kind, is_signed, j, NULL);                                                  \
            break;                                                                                 \
        case 4:                                                                                    \
            tile(4, v, kind, is_signed, j, NULL);                                                  \
            break;                                                                                 \
        case 3:                                                                                    \
            tile(3, v, kind, is_signed, j, NULL);                                                  \
            break;                                                                                 \
        case 2:                                                                                    \
            tile(2, v, kind, is_signed, j, NULL);                                                  \
            break;                                                                                 \
        default:                                                                                   \
            tile(1, v, kind, is_signed, j, NULL);                                                  \
        }                                                                                          \
    }

TILES(tiles_none, TD_INT8_NO_RESIDUAL, false)
TILES(tiles_u8, TD_INT8_UNSIGNED, false)
TILES(tiles_s8, TD_INT8_SIGNED, false)
TILES(tiles_signed, v->residual_kind, true)
TILES(tiles_float, TD_INT8_FLOAT, false)

static TARGET void run_tile(const td_pointwise *v, const td_pointwise_tile *j)
{
    if (v->is_float)
        tiles_float(v, j);
    else if (v->is_signed)
        tiles_signed(v, j);
    else if (v->residual_kind == TD_INT8_NO_RESIDUAL)
        tiles_none(v, j);
    else if (v->residual_kind == TD_INT8_UNSIGNED)
        tiles_u8(v, j);
    else
        tiles_s8(v, j);
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
