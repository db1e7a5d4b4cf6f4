/*
 * native_panels_bf16_simd.c -- the loops of native_panels_bf16.h for AVX-512 with products of bf16
 */
#include "backend/native/linear/native_panels_bf16.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/native/linear/native_half_tile.h"

typedef struct {
    const uint16_t *x, *w;
    uint16_t *y;
    const float *bias;
    const uint16_t *rest;
} half_tile;

INLINE void fetch_results(int T, int vectors, const td_half_panels *v, const half_tile *t)
{
#pragma GCC unroll 6
    for (int p = 0; p < T; p++)
        for (int i = 0; i < vectors; i += 2) {
            __builtin_prefetch(t->y + p * v->y_row + i * LANES, 1);
            if (t->rest)
                __builtin_prefetch(t->rest + p * v->y_row + i * LANES);
        }
}

INLINE void finish(__m512 y, const uint16_t *rest, uint16_t *to)
{
    put(to, rest ? _mm512_add_ps(y, load(rest, 0xffff)) : y, 0xffff);
}

/* out of registers, because gelu needs them */
static TARGET void put_gelu(int T, int vectors, const td_half_panels *v, const half_tile *t,
                            const float *sum)
{
    for (int p = 0; p < T; p++)
        for (int i = 0; i < vectors; i++, sum += LANES) {
            const int64_t at = p * v->y_row + i * LANES;
            finish(gelu_of(_mm512_load_ps(sum)), t->rest ? t->rest + at : NULL, t->y + at);
        }
}

INLINE void end_sums(int T, int vectors, const td_half_panels *v, const half_tile *t,
                     const __m512 *sum)
{
    if (v->gelu) {
        _Alignas(64) float wait[TD_HALF_SUMS * LANES];
#pragma GCC unroll 24
        for (int i = 0; i < T * vectors; i++)
            _mm512_store_ps(wait + i * LANES, sum[i]);
        put_gelu(T, vectors, v, t, wait);
        return;
    }
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++) {
        const int64_t at = i / vectors * v->y_row + i % vectors * LANES;
        finish(sum[i], t->rest ? t->rest + at : NULL, t->y + at);
    }
}

/* T rows of `panels` panels */
INLINE void multiply(int T, int panels, const td_half_panels *v, const half_tile *t)
{
    const int vectors = panels * TD_HALF_VECTORS;
    __m512 sum[TD_HALF_SUMS];
    fetch_results(T, vectors, v, t);
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++)
        sum[i] = t->bias ? _mm512_loadu_ps(t->bias + i % vectors * LANES) : _mm512_setzero_ps();
    add_products(T, vectors, v->depth, t->x, v->x_row, t->w, sum);
    end_sums(T, vectors, v, t, sum);
}

typedef void tile_loops(const td_half_panels *v, const half_tile *t);

#define ROWS(T)                                                                                    \
    static TARGET void one_##T(const td_half_panels *v, const half_tile *t)                        \
    {                                                                                              \
        multiply(T, 1, v, t);                                                                      \
    }                                                                                              \
    static TARGET void two_##T(const td_half_panels *v, const half_tile *t)                        \
    {                                                                                              \
        multiply(T, 2, v, t);                                                                      \
    }

ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)

static tile_loops *const loops_of[TD_HALF_ROWS + 1][2] = {
    { NULL, NULL },   { one_1, two_1 }, { one_2, two_2 }, { one_3, two_3 },
    { one_4, two_4 }, { one_5, two_5 }, { one_6, two_6 },
};

/* all rows of one or two panels from k on */
static TARGET void run_panels(const td_half_panels *v, int64_t k, int panels)
{
    const int64_t tiles = (v->rows + TD_HALF_ROWS - 1) / TD_HALF_ROWS;
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t from = v->rows * i / tiles, to = v->rows * (i + 1) / tiles;
        const int64_t at = from * v->y_row + k * TD_PANEL;
        const half_tile t = { .x = v->x + from * v->x_row,
                              .w = v->w + k * TD_PANEL * v->depth,
                              .y = v->y + at,
                              .bias = v->bias ? v->bias + k * TD_PANEL : NULL,
                              .rest = v->rest ? v->rest + at : NULL };
        loops_of[to - from][panels - 1](v, &t);
    }
}

static TARGET void run(const td_half_panels *v)
{
    for (int64_t k = 0; k < v->panels; k += 2)
        run_panels(v, k, k + 1 < v->panels ? 2 : 1);
}

td_half_panels_loops *td_half_panels_loops_here(void)
{
    return td_isa_has(TD_ISA_AVX512_BF16) ? run : NULL;
}
#else
td_half_panels_loops *td_half_panels_loops_here(void)
{
    return NULL;
}
#endif
