/*
 * native_stem_simd.c -- the inner loops of the first convolution, for AVX2
 *
 * The nine (or so) rows of a window's channels are copied into a buffer with zeros for the padding.
 * A tile's sums are in registers: 6 pixels of 2 vectors of channels.
 */
#include "backend/native/native_stem.h"

#include <string.h>

#include "backend/native/native.h"
#include "backend/native/native_block_act.h"

#if defined(__x86_64__)

enum { SIDE = 3, STRIDE = 2, TILE = 6, VECTORS = 2, LANES = TD_STEM_LANES };

typedef struct {
    const td_stem *v;
    const float *rows; /* [C, SIDE, columns] */
    const float *w, *bias;
    float *y; /* [Q, K] */
} row;

/* T pixels from q on, V vectors of channels from block kb on */
INLINE void tile(int T, int V, const row *r, int64_t q, int64_t kb)
{
    const td_stem *v = r->v;
    const int64_t taps = v->C * SIDE * SIDE, block = taps * LANES;
    const float *x = r->rows + q * STRIDE, *w = r->w + kb * block;
    const td_block_limits limits = td_block_limits_of(v->act);
    __m256 sum[TILE * VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < T * V; i++)
        sum[i] = _mm256_loadu_ps(r->bias + (kb + i % V) * LANES);
    for (int64_t t = 0; t < taps; t += SIDE, x += v->columns)
#pragma GCC unroll 3
        for (int s = 0; s < SIDE; s++, w += LANES)
#pragma GCC unroll 6
            for (int i = 0; i < T; i++) {
                const __m256 pixel = _mm256_broadcast_ss(x + i * STRIDE + s);
#pragma GCC unroll 2
                for (int k = 0; k < V; k++)
                    sum[i * V + k] =
                        _mm256_fmadd_ps(pixel, _mm256_loadu_ps(w + k * block), sum[i * V + k]);
            }
    float *y = r->y + q * v->K + kb * LANES;
#pragma GCC unroll 12
    for (int i = 0; i < T * V; i++)
        _mm256_storeu_ps(y + i / V * v->K + i % V * LANES, td_block_clip(&limits, sum[i]));
}

/* the last tile overlaps the one before it */
INLINE void blocks(int V, const row *r, int64_t kb)
{
    const int64_t Q = r->v->Q;
    if (Q >= TILE)
        for (int64_t q = 0; q < Q; q += TILE)
            tile(TILE, V, r, q + TILE <= Q ? q : Q - TILE, kb);
    else
        for (int64_t q = 0; q < Q; q++)
            tile(1, V, r, q, kb);
}

static TARGET void all_blocks(const row *r)
{
    const int64_t n = r->v->K / LANES;
    for (int64_t kb = 0; kb < n; kb += VECTORS)
        if (kb + VECTORS <= n)
            blocks(VECTORS, r, kb);
        else
            blocks(1, r, kb);
    if (td_block_has_curve(r->v->act))
        for (int64_t i = 0; i < r->v->Q * r->v->K; i += LANES)
            td_block_curve(r->v->act, r->y + i);
}

static void copy_rows(const td_stem *v, int64_t n, int64_t p, const float *x, float *to)
{
    memset(to, 0, (size_t)(v->C * SIDE * v->columns) * sizeof *to);
    for (int64_t c = 0; c < v->C; c++)
        for (int64_t r = 0; r < SIDE; r++, to += v->columns) {
            const int64_t h = p * STRIDE + r - v->pad;
            if (h >= 0 && h < v->H)
                memcpy(to + v->pad, x + ((n * v->C + c) * v->H + h) * v->W,
                       (size_t)v->W * sizeof *to);
        }
}

static void run(const td_stem *v, int64_t n, int64_t p, const float *x, const float *w,
                const float *bias, float *y)
{
    float rows[TD_STEM_CHANNELS_MAX * SIDE * TD_STEM_COLUMNS_MAX];
    copy_rows(v, n, p, x, rows);
    all_blocks(&(row){ v, rows, w, bias, y + (n * v->P + p) * v->Q * v->K });
}

td_stem_loops *td_stem_loops_here(void)
{
    if (!td_native_has_avx2())
        return NULL;
    return run;
}
#else
td_stem_loops *td_stem_loops_here(void)
{
    return NULL;
}
#endif
