/*
 * native_pointwise_blocked_simd.c -- the loops of native_pointwise_blocked.h for AVX-512
 */
#include "backend/native/native_pointwise_blocked.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { LANES = TD_POINT_LANES, PIXELS = TD_POINT_PIXELS, VECTORS = 2 };

/* --- products --------------------------------------------------------------------------------- */

/* A tile; for every block of channels `x_lines` of the next pixels are fetched and `w_lines` of
   the next filters, which are two blocks of `half` lines. */
typedef struct {
    const float *x, *w;
    float *y;
    const float *next_x, *next_w;
    int64_t x_lines, w_lines;
} point_tile;

INLINE void store_tile(int T, const td_point_product *v, float *y, const __m512 *sum)
{
    if (v->is_streamed) {
#pragma GCC unroll 28
        for (int i = 0; i < VECTORS * T; i++)
            _mm512_stream_ps(y + i / VECTORS * LANES + i % VECTORS * v->y_block, sum[i]);
        return;
    }
#pragma GCC unroll 28
    for (int i = 0; i < VECTORS * T; i++)
        _mm512_storeu_ps(y + i / VECTORS * LANES + i % VECTORS * v->y_block, sum[i]);
}

INLINE void fetch_lines(const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        _mm_prefetch(from + i * LANES, _MM_HINT_T1);
}

/* T pixels of a panel */
INLINE void multiply_tile(int T, const td_point_product *v, const point_tile *t)
{
    const float *x = t->x, *w = t->w;
    __m512 sum[VECTORS * PIXELS];
#pragma GCC unroll 28
    for (int i = 0; i < VECTORS * T; i++) {
        sum[i] = _mm512_setzero_ps();
        if (!v->is_streamed)
            __builtin_prefetch(t->y + i / VECTORS * LANES + i % VECTORS * v->y_block, 1);
    }
    for (int64_t b = 0; b < v->depth; b++, x += v->x_block) {
        fetch_lines(t->next_x + b * v->next_block, t->x_lines);
        fetch_lines(t->next_w + b * LANES * LANES, t->w_lines);
        fetch_lines(t->next_w + b * LANES * LANES + v->w_block, t->w_lines);
        for (const float *at = x, *end = x + LANES; at < end; at++, w += LANES) {
            const __m512 b0 = _mm512_loadu_ps(w), b1 = _mm512_loadu_ps(w + v->w_block);
#pragma GCC unroll 14
            for (int p = 0; p < T; p++) {
                const __m512 a = _mm512_set1_ps(at[p * LANES]);
                sum[VECTORS * p] = _mm512_fmadd_ps(a, b0, sum[VECTORS * p]);
                sum[VECTORS * p + 1] = _mm512_fmadd_ps(a, b1, sum[VECTORS * p + 1]);
            }
        }
    }
    store_tile(T, v, t->y, sum);
}

typedef void tile_loops(const td_point_product *v, const point_tile *t);

#define TILE(T)                                                                                    \
    static TARGET void tile_##T(const td_point_product *v, const point_tile *t)                    \
    {                                                                                              \
        multiply_tile(T, v, t);                                                                    \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)

static tile_loops *const loops_of[PIXELS + 1] = {
    NULL,   tile_1, tile_2,  tile_3,  tile_4,  tile_5,  tile_6,  tile_7,
    tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14,
};

/* tile i of `tiles`: each fetches a part of the next filters */
static TARGET void run_tile(const td_point_product *v, int64_t tiles, int64_t i)
{
    const int64_t from = v->pixels * i / tiles, n = v->pixels * (i + 1) / tiles - from;
    const int64_t line = n * v->part / v->parts, w_line = LANES * i / tiles;
    point_tile t = { .x = v->x + from * LANES,
                     .w = v->w,
                     .y = v->y + from * LANES,
                     .next_x = v->x,
                     .next_w = v->w };
    if (v->next_x) {
        t.next_x = v->next_x + (from + line) * LANES;
        t.x_lines = n * (v->part + 1) / v->parts - line;
    }
    if (v->next_w) {
        t.next_w = v->next_w + w_line * LANES;
        t.w_lines = LANES * (i + 1) / tiles - w_line;
    }
    loops_of[n](v, &t);
}

static TARGET void multiply(const td_point_product *v)
{
    const int64_t tiles = (v->pixels + PIXELS - 1) / PIXELS;
    for (int64_t i = 0; i < tiles; i++)
        run_tile(v, tiles, i);
    if (v->is_streamed)
        _mm_sfence();
}

/* --- sums over pixels ------------------------------------------------------------------------- */

INLINE void add_run(int64_t n, bool fetches, const float *x, const float *dy, const float *next,
                    __m512 sum[LANES])
{
#pragma GCC unroll 1
    for (int64_t p = 0; p < n; p++, x += LANES, dy += LANES) {
        const __m512 g = _mm512_loadu_ps(dy);
        if (fetches)
            _mm_prefetch(next + p * LANES, _MM_HINT_T1);
#pragma GCC unroll 16
        for (int c = 0; c < LANES; c++)
            sum[c] = _mm512_fmadd_ps(_mm512_set1_ps(x[c]), g, sum[c]);
    }
}

static TARGET void sum(const td_point_sum *v)
{
    __m512 sums[LANES];
#pragma GCC unroll 16
    for (int c = 0; c < LANES; c++)
        sums[c] = v->is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(v->dw + c * LANES);
    for (int64_t i = 0; i < v->images; i++) {
        const float *x = v->x + i * v->x_image, *dy = v->dy + i * v->dy_image;
        if (v->next)
            add_run(v->pixels, true, x, dy, v->next + i * v->next_image, sums);
        else
            add_run(v->pixels, false, x, dy, NULL, sums);
    }
#pragma GCC unroll 16
    for (int c = 0; c < LANES; c++)
        _mm512_storeu_ps(v->dw + c * LANES, sums[c]);
}

/* --- strides ---------------------------------------------------------------------------------- */

static TARGET void gather(const float *from, int64_t stride, int64_t n, float *to)
{
    for (int64_t q = 0; q < n; q++)
        _mm512_storeu_ps(to + q * LANES, _mm512_loadu_ps(from + q * stride * LANES));
}

static const td_point_loops loops = { multiply, sum, gather };

const td_point_loops *td_point_loops_here(void)
{
    return td_isa_has(TD_ISA_AVX512) ? &loops : NULL;
}
#else
const td_point_loops *td_point_loops_here(void)
{
    return NULL;
}
#endif
