/*
 * native_panels_simd.c -- the loops of native_panels.h for AVX-512
 */
#include "backend/native/linear/native_panels.h"

#include <math.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/native/simd/native_erf.h"
#include "backend/native/simd/native_transpose_16.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define LANES  16

INLINE __m512 polynomial(int n, const float *c, __m512 z)
{
    __m512 p = _mm512_set1_ps(c[n - 1]);
#pragma GCC unroll 6
    for (int i = n - 2; i >= 0; i--)
        p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(c[i]));
    return p;
}

/* x (1 + erf(x / sqrt 2)) / 2; erf is 1 from 4 on, also where the quotient is not a number */
INLINE __m512 gelu(__m512 x)
{
    static const float above[] = { ERF_P0, ERF_P1, ERF_P2, ERF_P3, ERF_P4, ERF_P5 };
    static const float below[] = { 1, ERF_Q1, ERF_Q2, ERF_Q3, ERF_Q4, ERF_Q5 };
    const __m512 one = _mm512_set1_ps(1), half = _mm512_mul_ps(_mm512_set1_ps(0.5f), x);
    const __m512 size = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0x1.6a09e6p-1f));
    const __m512 z = _mm512_mul_ps(size, size);
    const __m512 p = _mm512_mul_ps(size, polynomial(6, above, z));
    const __m512 ratio = _mm512_min_ps(one, _mm512_div_ps(p, polynomial(6, below, z)));
    const __mmask16 is_large = _mm512_cmp_ps_mask(size, _mm512_set1_ps(4), _CMP_GE_OQ);
    const __m512 erf = _mm512_mask_mov_ps(ratio, is_large, one);
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
    return _mm512_fmadd_ps(half, _mm512_or_ps(erf, sign), half);
}

typedef struct {
    const float *x, *w;
    float *y;
    const float *bias;
    const float *before, *after; /* the rest, added before or after the products; NULL: not here */
    const float *next;           /* filters to fetch: so many lines for every 16 channels */
    int64_t lines;
} panel_tile;

INLINE void fetch_results(int T, const td_panels *v, const panel_tile *t)
{
#pragma GCC unroll 14
    for (int p = 0; p < T; p++)
#pragma GCC unroll 2
        for (int i = 0; i < TD_PANEL; i += LANES) {
            __builtin_prefetch(t->y + p * v->y_row + i, 1);
            if (t->after)
                __builtin_prefetch(t->after + p * v->y_row + i);
        }
}

INLINE void begin_sums(int T, const td_panels *v, const panel_tile *t, __m512 *sum)
{
    const __m512 b0 = t->bias ? _mm512_loadu_ps(t->bias) : _mm512_setzero_ps();
    const __m512 b1 = t->bias ? _mm512_loadu_ps(t->bias + LANES) : _mm512_setzero_ps();
    if (v->is_first) {
#pragma GCC unroll 14
        for (int p = 0; p < T; p++) {
            sum[2 * p] = b0;
            sum[2 * p + 1] = b1;
        }
        if (!t->before)
            return;
#pragma GCC unroll 28
        for (int i = 0; i < 2 * T; i++)
            sum[i] = _mm512_add_ps(sum[i],
                                   _mm512_loadu_ps(t->before + i / 2 * v->y_row + i % 2 * LANES));
        return;
    }
#pragma GCC unroll 14
    for (int p = 0; p < T; p++) {
        sum[2 * p] = _mm512_loadu_ps(t->y + p * v->y_row);
        sum[2 * p + 1] = _mm512_loadu_ps(t->y + p * v->y_row + LANES);
    }
}

/* max keeps NaN: it returns its second operand if one is NaN */
INLINE void end_sums(int T, const td_panels *v, const panel_tile *t, const __m512 *sum)
{
    const __m512 low = _mm512_set1_ps(v->relu && v->is_last ? 0 : -INFINITY);
#pragma GCC unroll 28
    for (int i = 0; i < 2 * T; i++) {
        const int64_t at = i / 2 * v->y_row + i % 2 * LANES;
        const __m512 y = t->after ? _mm512_add_ps(sum[i], _mm512_loadu_ps(t->after + at)) : sum[i];
        _mm512_storeu_ps(t->y + at, _mm512_max_ps(low, y));
    }
}

/* T rows of a panel; from a row and from a channel to the next: `row` and `step` floats */
INLINE void multiply(int T, int64_t row, int64_t step, const td_panels *v, const panel_tile *t)
{
    const float *x = t->x, *w = t->w, *next = t->next;
    __m512 sum[2 * TD_PANEL_ROWS];
    fetch_results(T, v, t);
    begin_sums(T, v, t, sum);
    for (const float *end = x + v->depth * step; x < end;) {
        for (int64_t i = 0; i < t->lines; i++, next += LANES)
            _mm_prefetch(next, _MM_HINT_T1);
        for (const float *stop = x + TD_PANEL_BLOCK * step; x < stop; x += step, w += TD_PANEL) {
            const __m512 b0 = _mm512_loadu_ps(w), b1 = _mm512_loadu_ps(w + LANES);
#pragma GCC unroll 14
            for (int p = 0; p < T; p++) {
                const __m512 a = _mm512_set1_ps(x[p * row]);
                sum[2 * p] = _mm512_fmadd_ps(a, b0, sum[2 * p]);
                sum[2 * p + 1] = _mm512_fmadd_ps(a, b1, sum[2 * p + 1]);
            }
        }
    }
    end_sums(T, v, t, sum);
}

typedef void tile_loops(const td_panels *v, const panel_tile *t);

#define ROWS(T)                                                                                    \
    static TARGET void rows_##T(const td_panels *v, const panel_tile *t)                           \
    {                                                                                              \
        multiply(T, v->x_row, 1, v, t);                                                            \
    }                                                                                              \
    static TARGET void tiled_##T(const td_panels *v, const panel_tile *t)                          \
    {                                                                                              \
        multiply(T, 1, TD_PANEL_ROWS, v, t);                                                       \
    }

ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
ROWS(7)
ROWS(8)
ROWS(9)
ROWS(10)
ROWS(11)
ROWS(12)
ROWS(13)
ROWS(14)

static tile_loops *const loops_of[TD_PANEL_ROWS + 1] = {
    NULL,   rows_1, rows_2,  rows_3,  rows_4,  rows_5,  rows_6,  rows_7,
    rows_8, rows_9, rows_10, rows_11, rows_12, rows_13, rows_14,
};

static tile_loops *const tiled_loops_of[TD_PANEL_ROWS + 1] = {
    NULL,    tiled_1, tiled_2,  tiled_3,  tiled_4,  tiled_5,  tiled_6,  tiled_7,
    tiled_8, tiled_9, tiled_10, tiled_11, tiled_12, tiled_13, tiled_14,
};

/* applies gelu to a panel's results, which are still in the cache */
static TARGET void finish(const td_panels *v, int64_t rows, int64_t at)
{
    for (int64_t p = 0; p < rows; p++, at += v->y_row)
        for (int i = 0; i < TD_PANEL; i += LANES)
            _mm512_storeu_ps(v->y + at + i, gelu(_mm512_loadu_ps(v->y + at + i)));
}

/* tile i of `tiles`, panel k */
static TARGET void run_tile(const td_panels *v, int64_t tiles, int64_t i, int64_t k)
{
    const int64_t from = v->rows * i / tiles, to = v->rows * (i + 1) / tiles;
    const int64_t at = from * v->y_row + k * TD_PANEL;
    panel_tile t = { .x = v->x + (v->is_tiled ? i * td_panel_tile_size(v->depth) : from * v->x_row),
                     .w = v->w + k * v->w_panel,
                     .y = v->y + at,
                     .bias = v->bias ? v->bias + k * TD_PANEL : NULL,
                     .before = v->rest && v->is_first && !v->is_last ? v->rest + at : NULL,
                     .after = v->rest && v->is_first && v->is_last ? v->rest + at : NULL };
    if (v->by_rows && i + 1 < tiles) { /* each panel a part of the next rows */
        t.lines = (to - from + v->panels - 1) / v->panels;
        t.next = t.x + (to - from) * v->x_row + k * t.lines * v->depth;
    } else if (!v->by_rows && k + 1 < v->panels) { /* each tile a part of the next panel */
        const int64_t lines = (TD_PANEL + tiles - 1) / tiles;
        const int64_t ahead = i * lines * LANES * (v->depth / TD_PANEL_BLOCK);
        t.next = t.w + v->w_panel + ahead;
        t.lines = ahead < v->depth * TD_PANEL ? lines : 0;
    }
    (v->is_tiled ? tiled_loops_of : loops_of)[to - from](v, &t);
    if (v->is_last && v->gelu)
        finish(v, to - from, at);
}

static TARGET void run(const td_panels *v)
{
    const int64_t tiles = td_panel_tiles(v->rows);
    if (v->by_rows) {
        for (int64_t i = 0; i < tiles; i++)
            for (int64_t k = 0; k < v->panels; k++)
                run_tile(v, tiles, i, k);
        return;
    }
    for (int64_t k = 0; k < v->panels; k++)
        for (int64_t i = 0; i < tiles; i++)
            run_tile(v, tiles, i, k);
}

/* --- copies ----------------------------------------------------------------------------------- */

enum { ROWS_AHEAD = 4, PANELS_AT_ONCE = 8 };

static TARGET void copy(int64_t rows, int64_t n, const float *from, int64_t from_row, float *to,
                        int64_t to_row)
{
    for (int64_t i = 0; i < rows; i++, from += from_row, to += to_row)
        for (int64_t c = 0; c < n; c += LANES) {
            _mm_prefetch(from + 2 * from_row + c, _MM_HINT_T0);
            _mm512_storeu_ps(to + c, _mm512_loadu_ps(from + c));
        }
}

static TARGET void clear(int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += LANES)
        _mm512_storeu_ps(to + i, _mm512_setzero_ps());
}

/* a row of some panels */
INLINE void pack_row(int64_t panels, const float *from, int64_t ahead, float *to, int64_t step)
{
    for (int64_t p = 0; p < panels; p++, from += TD_PANEL, to += step)
#pragma GCC unroll 2
        for (int i = 0; i < TD_PANEL; i += LANES) {
            _mm_prefetch(from + ahead + i, _MM_HINT_T0);
            _mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));
        }
}

static TARGET void pack_panels(int64_t panels, int64_t channels, int64_t depth, const float *from,
                               int64_t from_row, float *to)
{
    const int64_t step = depth * TD_PANEL;
    for (int64_t p = 0; p < panels; p += PANELS_AT_ONCE) {
        const int64_t n = panels - p < PANELS_AT_ONCE ? panels - p : PANELS_AT_ONCE;
        for (int64_t c = 0; c < channels; c++)
            pack_row(n, from + c * from_row + p * TD_PANEL, ROWS_AHEAD * from_row,
                     to + p * step + c * TD_PANEL, step);
        for (int64_t i = p; i < p + n; i++)
            clear((depth - channels) * TD_PANEL, to + i * step + channels * TD_PANEL);
    }
}

/* 16 channels of 16 outputs; those after the next four blocks are fetched */
INLINE void pack_block(const float *from, int64_t from_row, float *to)
{
    __m512 row[16], column[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        _mm_prefetch(from + i * from_row + 4 * LANES, _MM_HINT_T0);
        row[i] = _mm512_loadu_ps(from + i * from_row);
    }
    td_transpose_16(row, column);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_storeu_ps(to + i * TD_PANEL, column[i]);
}

static TARGET void pack_transposed(int64_t panels, int64_t depth, const float *from, float *to)
{
    for (int64_t p = 0; p < panels; p++, from += TD_PANEL * depth, to += TD_PANEL * depth)
        for (int k = 0; k < TD_PANEL; k += LANES)
            for (int64_t c = 0; c < depth; c += LANES)
                pack_block(from + k * depth + c, depth, to + c * TD_PANEL + k);
}

/* A vector is stored for each tile: its last lanes are replaced by the next channel's. */
static TARGET void pack_tiles(int64_t rows, int64_t channels, int64_t depth, const float *from,
                              int64_t from_row, float *to)
{
    const int64_t tiles = td_panel_tiles(rows), size = td_panel_tile_size(depth);
    const int64_t last = rows * (tiles - 1) / tiles;
    const __mmask16 rest = (__mmask16)((1 << (rows - last)) - 1);
    int64_t start[TD_PANEL_TILES_MAX];
    for (int64_t t = 0; t < tiles; t++)
        start[t] = rows * t / tiles;
    for (int64_t c = 0; c < channels; c++, from += from_row) {
        float *at = to + c * TD_PANEL_ROWS;
        for (int64_t i = 0; i < rows; i += LANES)
            _mm_prefetch(from + ROWS_AHEAD * from_row + i, _MM_HINT_T0);
        for (int64_t t = 0; t < tiles - 1; t++, at += size)
            _mm512_storeu_ps(at, _mm512_maskz_loadu_ps(0x3fff, from + start[t]));
        _mm512_storeu_ps(at, _mm512_maskz_loadu_ps(rest, from + last));
    }
    for (int64_t t = 0; t < tiles; t++)
        clear((depth - channels) * TD_PANEL_ROWS, to + t * size + channels * TD_PANEL_ROWS);
}

static const td_panels_loops loops = { run, copy, pack_panels, pack_transposed, pack_tiles };

const td_panels_loops *td_panels_loops_here(void)
{
    return td_isa_has(TD_ISA_AVX512) ? &loops : NULL;
}
#else
const td_panels_loops *td_panels_loops_here(void)
{
    return NULL;
}
#endif
