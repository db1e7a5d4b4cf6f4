/*
 * backend/native/native_block_product.h -- matrix products of inverted residual blocks, with AVX2
 *
 * A tile's sums are in registers: 12 vectors, of T pixels and V vectors of channels.  Each sum is
 * one chain in the order of the channels, whatever the tile and the depth.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_BLOCK_PRODUCT_H
#define TD_BACKEND_NATIVE_NATIVE_BLOCK_PRODUCT_H

#include "backend/native/native_block_act.h"

#if defined(__x86_64__)
enum { TD_BLOCK_SUMS = 12, TD_BLOCK_LANES = 8 };

/* sum[p, v] += over k < K of a[p, k] w[v, k], where w[v, k] is one vector */
INLINE void td_block_multiply(int T, int V, int64_t K, const float *a, int64_t a_row,
                              const float *w, int64_t w_block, __m256 *sum)
{
    for (int64_t k = 0; k < K; k++) {
        __m256 b[3];
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            b[v] = _mm256_loadu_ps(w + v * w_block + k * TD_BLOCK_LANES);
#pragma GCC unroll 12
        for (int p = 0; p < T; p++) {
            const __m256 x = _mm256_broadcast_ss(a + p * a_row + k);
#pragma GCC unroll 3
            for (int v = 0; v < V; v++)
                sum[p * V + v] = _mm256_fmadd_ps(x, b[v], sum[p * V + v]);
        }
    }
}

/* a part of the sums over the M channels of d */
typedef struct {
    int64_t n, depth;      /* pixels; channels of d */
    int64_t row;           /* floats from a pixel of d to the next */
    int64_t M, K;          /* all channels of d; those of y */
    const float *d;        /* [n, depth] */
    const float *w;        /* [K / 8, M, 8], from the first of these channels on */
    const float *b, *rest; /* added to the sums, or NULL; rest [n, K] */
    bool is_first;         /* y has no sums yet */
    float *y;              /* [n, K] */
} td_block_projection;

/* pixels from i on, channels from block kb on */
INLINE void td_block_project_tile(int T, int V, const td_block_projection *s, int64_t i, int64_t kb)
{
    const int64_t K = s->K, at = i * K + kb * TD_BLOCK_LANES;
    __m256 sum[TD_BLOCK_SUMS];
#pragma GCC unroll 12
    for (int k = 0; k < T * V; k++) {
        const int64_t own = at + k / V * K + k % V * TD_BLOCK_LANES;
        sum[k] = !s->is_first ? _mm256_loadu_ps(s->y + own)
                 : s->b       ? _mm256_loadu_ps(s->b + (kb + k % V) * TD_BLOCK_LANES)
                              : _mm256_setzero_ps();
        if (s->rest)
            sum[k] = _mm256_add_ps(sum[k], _mm256_loadu_ps(s->rest + own));
    }
    td_block_multiply(T, V, s->depth, s->d + i * s->row, s->row, s->w + kb * s->M * TD_BLOCK_LANES,
                      s->M * TD_BLOCK_LANES, sum);
#pragma GCC unroll 12
    for (int k = 0; k < T * V; k++)
        _mm256_storeu_ps(s->y + at + k / V * K + k % V * TD_BLOCK_LANES, sum[k]);
}

INLINE void td_block_project_pixels(int T, int V, const td_block_projection *s, int64_t kb)
{
    int64_t i = 0;
    for (; i + T <= s->n; i += T)
        td_block_project_tile(T, V, s, i, kb);
    for (; i < s->n; i++)
        td_block_project_tile(1, V, s, i, kb);
}

INLINE void td_block_project(const td_block_projection *s)
{
    const int64_t blocks = s->K / TD_BLOCK_LANES;
    int64_t kb = 0;
    if (blocks == 1) {
        td_block_project_pixels(12, 1, s, kb++);
    } else if (blocks % 2) {
        td_block_project_pixels(4, 3, s, kb);
        kb += 3;
    }
    for (; kb < blocks; kb += 2)
        td_block_project_pixels(6, 2, s, kb);
}
#endif

#endif
