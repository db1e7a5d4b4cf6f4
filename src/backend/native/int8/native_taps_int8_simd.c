/*
 * native_taps_int8_simd.c -- the inner loops of 3x3 convolutions of 8-bit integers, for AVX-512
 * with VNNI
 *
 * A tile's sums are in registers: 7 pixels of a row, 4 vectors of 16 channels.  Pixels outside of
 * the image are left out.  Three of the filter's vectors are in registers, too; the fourth is read
 * by each instruction, since there are 32 registers.
 */
#include "backend/native/int8/native_taps_int8.h"

#include "base/isa.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#include "backend/native/int8/native_int8_tile.inc"

enum { T = TD_TAPS_PIXELS, SUMS = T * VECTORS, HELD = VECTORS - 1 };

/* the filter of one tap, and what is fetched meanwhile */
typedef struct {
    const int8_t *w;
    const int8_t *ahead;
    int64_t step; /* 64, or 0: nothing */
} tap;

static inline tap next_tap(tap t, int64_t C)
{
    return (tap){ t.w + C * TD_INT8_CHANNELS, t.ahead + C / DEPTH * t.step, t.step };
}

/* adds pixels [from, to) of a tap; pixel 0 is at x */
INLINE void add_tap(int from, int to, const td_taps *v, const uint8_t *x, tap t, __m512i *s)
{
    const int64_t C = v->C, step = v->stride * C;
    const int8_t *w = t.w, *ahead = t.ahead;
    for (int64_t c = 0; c < C; c += DEPTH, w += DEPTH * TD_INT8_CHANNELS, ahead += t.step) {
        __m512i b[HELD];
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
#pragma GCC unroll 4
        for (int k = 0; k < HELD; k++)
            b[k] = _mm512_loadu_si512(w + k * 64);
#pragma GCC unroll 7
        for (int i = from; i < to; i++) {
            const __m512i a = _mm512_set1_epi32(four_at(x + i * step + c));
#pragma GCC unroll 4
            for (int k = 0; k < HELD; k++)
                s[i * VECTORS + k] = _mm512_dpbusd_epi32(s[i * VECTORS + k], a, b[k]);
            __asm__("vpdpbusd %2, %1, %0"
                    : "+v"(s[i * VECTORS + HELD])
                    : "v"(a), "m"(*(const __m512i_u *)(w + HELD * 64)));
        }
    }
#pragma GCC unroll 28
    for (int i = 0; i < SUMS; i++)
        IN_REGISTER(s[i]);
}

/* the sums of the 7 pixels of row p of image n from q on */
INLINE void multiply(const td_taps *v, int64_t n, int64_t p, int64_t q, tap t, __m512i *s)
{
    const bool is_first = q == 0, is_last = (q + T - 1) * v->stride + 1 >= v->W;
    const int64_t C = v->C;
#pragma GCC unroll 28
    for (int i = 0; i < SUMS; i++)
        s[i] = _mm512_setzero_si512();
    for (int64_t h = p * v->stride - 1; h < p * v->stride + 2; h++) {
        if (h < 0 || h >= v->H) {
            t = next_tap(next_tap(next_tap(t, C), C), C);
            continue;
        }
        const uint8_t *x = v->x + ((n * v->H + h) * v->W + q * v->stride) * C;
        if (is_first)
            add_tap(1, T, v, x - C, t, s);
        else
            add_tap(0, T, v, x - C, t, s);
        t = next_tap(t, C);
        add_tap(0, T, v, x, t, s);
        t = next_tap(t, C);
        if (is_last)
            add_tap(0, T - 1, v, x + C, t, s);
        else
            add_tap(0, T, v, x + C, t, s);
        t = next_tap(t, C);
    }
}

INLINE void put(const td_taps *v, bool is_signed, const __m512i *s, int64_t first, int64_t at)
{
    target t = { .to = (char *)v->y + at, .K = v->K, .bias = v->bias + first };
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++)
        t.scale[j] = _mm512_loadu_ps(v->scale + first + j * 16);
#define PUT(i) put_pixel(&t, i, TD_INT8_NO_RESIDUAL, is_signed, false, s + (i)*VECTORS)
    FOR_PIXELS(T, PUT);
#undef PUT
}

static TARGET void run_tile(const td_taps *v, int64_t i, int64_t k, const int8_t *ahead)
{
    const int64_t each = v->Q / T, row = i / each, q = i % each * T;
    const int64_t first = k * TD_INT8_CHANNELS, at = (row * v->Q + q) * v->K + first;
    const int8_t *w = v->w + first * v->C * 9;
    const tap t = { w, ahead ? ahead : w, ahead ? 64 : 0 };
    __m512i s[SUMS];
    multiply(v, row / v->P, row % v->P, q, t, s);
    if (v->is_signed)
        put(v, true, s, first, at);
    else
        put(v, false, s, first, at);
}

td_taps_loops *td_taps_loops_here(void)
{
    return td_isa_has_vnni() ? run_tile : NULL;
}
#else
td_taps_loops *td_taps_loops_here(void)
{
    return NULL;
}
#endif
