/*
 * backend/native/linear/native_half_tile.h -- the products of a tile in bfloat16, for AVX-512: up
 * to TD_HALF_ROWS rows by 2 or 4 vectors of outputs, whose sums are in registers
 *
 *     sum [T][outputs] += x [T, depth] w      w [outputs / 32][depth / 2][32][2]
 */
#ifndef TD_BACKEND_NATIVE_LINEAR_NATIVE_HALF_TILE_H
#define TD_BACKEND_NATIVE_LINEAR_NATIVE_HALF_TILE_H

#include <string.h>

#include "backend/native/linear/native_panels.h"
#include "backend/native/linear/native_panels_bf16.h"
#include "backend/native/simd/native_bf16_math.h"

enum {
    TD_HALF_VECTORS = TD_PANEL / LANES, /* in a panel */
    TD_HALF_SUMS = 2 * TD_HALF_VECTORS * TD_HALF_ROWS,
    TD_HALF_AHEAD = 16 * 2 * TD_PANEL, /* filters are fetched so many elements before their use */
};

INLINE __m512i pair_of(const uint16_t *x)
{
    int bits;
    memcpy(&bits, x, sizeof bits);
    return _mm512_set1_epi32(bits);
}

/* `vectors` of one or two panels; rows are `x_row` elements apart, `depth` is even */
INLINE void add_products(int T, int vectors, int64_t depth, const uint16_t *x, int64_t x_row,
                         const uint16_t *w, __m512 *sum)
{
    const int64_t panel = depth * TD_PANEL;
    for (const uint16_t *end = x + depth; x < end; x += 2, w += 2 * TD_PANEL) {
        __m512i b[2 * TD_HALF_VECTORS];
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            const uint16_t *at = w + i / TD_HALF_VECTORS * panel + i % TD_HALF_VECTORS * 2 * LANES;
            _mm_prefetch(at + TD_HALF_AHEAD, _MM_HINT_T0);
            b[i] = _mm512_loadu_si512(at);
        }
#pragma GCC unroll 6
        for (int p = 0; p < T; p++) {
            const __m512i a = pair_of(x + p * x_row);
#pragma GCC unroll 4
            for (int i = 0; i < vectors; i++)
                sum[p * vectors + i] =
                    _mm512_dpbf16_ps(sum[p * vectors + i], (__m512bh)a, (__m512bh)b[i]);
        }
    }
}

#endif
