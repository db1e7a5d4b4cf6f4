/*
 * native_amx_filter_simd.c -- the inner loops of native_amx_filter.h
 */
#include "backend/native/amx/native_amx_filter.h"

#include <stddef.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include "backend/native/simd/native_bf16_round.h"
#include "backend/native/simd/native_tile.h"
#include "backend/native/simd/native_transpose_16.h"

#define TARGET __attribute__((target(HALVES)))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { TILE = 16, TILE_SIZE = TILE * TILE, BLOCK = 2 * TILE, BLOCK_SIZE = BLOCK * BLOCK };

/* 16 channels of y of two adjacent channels of x, as pairs */
INLINE __m512i pairs_of(const float *x)
{
    const __m512i even = td_round_bf16_16(_mm512_loadu_ps(x)),
                  odd = td_round_bf16_16(_mm512_loadu_ps(x + TILE));
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
}

/* 32 channels of y of one of x, as pairs of neighbours; next: the distance of the last 16 */
INLINE __m512i row_of(const float *x, int64_t next)
{
    const __m256i low = td_bf16_16(_mm512_loadu_ps(x));
    const __m256i high = td_bf16_16(_mm512_loadu_ps(x + next));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* a block of one tap; next_c, next_k: from one tile to the next */
static TARGET void put_forward(const float *from, int64_t next_c, int64_t next_k, uint16_t *to)
{
    for (int c = 0; c < BLOCK; c += 2, to += 2 * BLOCK) {
        const float *x = from + c / TILE * next_c + c % TILE * TILE;
        _mm512_storeu_si512(to, pairs_of(x));
        _mm512_storeu_si512(to + BLOCK, pairs_of(x + next_k));
    }
}

static TARGET void put_backward(const float *from, int64_t next_c, int64_t next_k, uint16_t *to)
{
    for (int half = 0; half < 2; half++) {
        __m512 row[TILE], column[TILE];
#pragma GCC unroll 16
        for (int c = 0; c < TILE; c++)
            row[c] = _mm512_castsi512_ps(row_of(from + half * next_c + c * TILE, next_k));
        td_transpose_16(row, column);
#pragma GCC unroll 16
        for (int k = 0; k < TILE; k++)
            _mm512_storeu_ps(to + k * 2 * BLOCK + half * BLOCK, column[k]);
    }
}

static TARGET void put_block(const td_amx_filter *f, int64_t k, int64_t c, const float *from,
                             uint16_t *to)
{
    const int64_t next_c = f->taps * TILE_SIZE, next_k = f->C / TILE * next_c;
    const int64_t K = f->K / BLOCK, C = f->C / BLOCK;
    for (int64_t tap = 0; tap < f->taps; tap++) {
        const float *x = from + 2 * k * next_k + 2 * c * next_c + tap * TILE_SIZE;
        if (f->is_grad_x)
            put_backward(x, next_c, next_k, to + ((c * f->taps + tap) * K + k) * BLOCK_SIZE);
        else
            put_forward(x, next_c, next_k, to + ((k * f->taps + tap) * C + c) * BLOCK_SIZE);
    }
}

td_amx_filter_loops *td_amx_filter_loops_here(void)
{
    return td_isa_has_tiles() ? put_block : NULL;
}
#else
td_amx_filter_loops *td_amx_filter_loops_here(void)
{
    return NULL;
}
#endif
