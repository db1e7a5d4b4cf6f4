/*
 * native_attention_bf16_simd.c -- native_attention_bf16.h for AVX-512 with products of bf16
 */
#include "backend/native/linear/native_attention_bf16.h"

#include <math.h>

#include "backend/native/linear/native_panels.h"
#include "backend/native/linear/native_panels_bf16.h"
#include "base/isa.h"

static int64_t padded(int64_t T)
{
    return (T + TD_PANEL - 1) / TD_PANEL * TD_PANEL;
}

/* packed keys and values, scores and shares */
size_t td_half_head_scratch(int64_t T, int64_t D)
{
    const int64_t keys = padded(T);
    return (size_t)(2 * keys * D * (int64_t)sizeof(uint16_t) +
                    TD_HALF_ROWS * keys * (int64_t)(sizeof(float) + sizeof(uint16_t)));
}

#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/native/linear/native_half_tile.h"
#include "backend/native/simd/native_transpose_16.h"

typedef struct {
    uint16_t *keys;   /* [padded T / 32][D / 2][32][2] */
    uint16_t *values; /* [D / 32][padded T / 2][32][2] */
    float *scores;    /* [6][padded T] */
    uint16_t *shares; /* [6][padded T] */
} head_parts;

static head_parts parts_of(const td_half_head *h)
{
    const int64_t n = padded(h->T);
    uint16_t *at = h->scratch;
    head_parts p = { .keys = at, .values = at + n * h->D };
    p.scores = (float *)(void *)(at + 2 * n * h->D);
    p.shares = (uint16_t *)(p.scores + TD_HALF_ROWS * n);
    return p;
}

/* 32 bf16 of row i; 0 past the last row */
INLINE __m512i row_of(const td_half_head *h, const uint16_t *x, int64_t i)
{
    return i < h->T ? _mm512_loadu_si512(x + i * h->x_row) : _mm512_setzero_si512();
}

/* 16 keys from `first` on, 32 channels: 16 rows of 16 pairs */
INLINE void pack_keys_block(const td_half_head *h, int64_t first, int64_t channel, uint16_t *to)
{
    __m512 row[LANES], column[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        row[i] = _mm512_castsi512_ps(row_of(h, h->k + channel, first + i));
    td_transpose_16(row, column);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        _mm512_storeu_ps(to + i * 2 * TD_PANEL, column[i]);
}

static TARGET void pack_keys(const td_half_head *h, uint16_t *to)
{
    for (int64_t k = 0; k < padded(h->T); k += LANES)
        for (int64_t c = 0; c < h->D; c += 2 * LANES)
            pack_keys_block(h, k, c,
                            to + k / TD_PANEL * TD_PANEL * h->D + c * TD_PANEL + k % TD_PANEL * 2);
}

/* pairs of rows of 32 channels */
static TARGET void pack_values(const td_half_head *h, uint16_t *to)
{
    static const uint16_t order[2][32] = {
        { 0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
          8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47 },
        { 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
          24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63 },
    };
    const __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    for (int64_t c = 0; c < h->D; c += TD_PANEL)
        for (int64_t k = 0; k < padded(h->T); k += 2, to += 2 * TD_PANEL) {
            const __m512i a = row_of(h, h->v + c, k), b = row_of(h, h->v + c, k + 1);
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
            _mm512_storeu_si512(to + TD_PANEL, _mm512_permutex2var_epi16(a, high, b));
        }
}

/* scores in powers of 2 of T rows with the keys of some panels */
INLINE void score(int T, int vectors, const td_half_head *h, const uint16_t *q,
                  const uint16_t *keys, float *to)
{
    const __m512 scale = _mm512_set1_ps(h->scale * LOG2_E);
    __m512 sum[TD_HALF_SUMS];
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++)
        sum[i] = _mm512_setzero_ps();
    add_products(T, vectors, h->D, q, h->x_row, keys, sum);
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++)
        _mm512_storeu_ps(to + i / vectors * padded(h->T) + i % vectors * LANES,
                         _mm512_mul_ps(sum[i], scale));
}

/* softmax of a row's first T numbers, which are powers of 2; 0 after them */
INLINE void share_row(int64_t T, float *x, uint16_t *y)
{
    __m512 most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < T; i += LANES)
        most = _mm512_mask_max_ps(most, lanes_of(T - i), _mm512_loadu_ps(x + i), most);
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t i = 0; i < T; i += LANES) {
        const __m512 e = power_of_2(_mm512_sub_ps(_mm512_loadu_ps(x + i), largest));
        const __m512 kept = _mm512_maskz_mov_ps(lanes_of(T - i), e);
        _mm512_storeu_ps(x + i, kept);
        sum = _mm512_add_ps(sum, kept);
    }
    const __m512 by = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sum));
    for (int64_t i = 0; i < padded(T); i += LANES)
        put(y + i, i < T ? _mm512_mul_ps(_mm512_loadu_ps(x + i), by) : _mm512_setzero_ps(), 0xffff);
}

/* the shares of the values of some panels */
INLINE void mix(int T, int vectors, const td_half_head *h, const uint16_t *shares,
                const uint16_t *values, uint16_t *y)
{
    __m512 sum[TD_HALF_SUMS];
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++)
        sum[i] = _mm512_setzero_ps();
    add_products(T, vectors, padded(h->T), shares, padded(h->T), values, sum);
#pragma GCC unroll 24
    for (int i = 0; i < T * vectors; i++)
        put(y + i / vectors * h->y_row + i % vectors * LANES, sum[i], 0xffff);
}

/* rows from `from` on */
INLINE void attend(int T, const td_half_head *h, const head_parts *p, int64_t from)
{
    const int64_t n = padded(h->T);
    const uint16_t *q = h->q + from * h->x_row;
    int64_t k = 0, c = 0;
    for (; k + 2 * TD_PANEL <= n; k += 2 * TD_PANEL)
        score(T, 2 * TD_HALF_VECTORS, h, q, p->keys + k * h->D, p->scores + k);
    if (k < n)
        score(T, TD_HALF_VECTORS, h, q, p->keys + k * h->D, p->scores + k);
    for (int i = 0; i < T; i++)
        share_row(h->T, p->scores + i * n, p->shares + i * n);
    uint16_t *y = h->y + from * h->y_row;
    for (; c + 2 * TD_PANEL <= h->D; c += 2 * TD_PANEL)
        mix(T, 2 * TD_HALF_VECTORS, h, p->shares, p->values + c * n, y + c);
    if (c < h->D)
        mix(T, TD_HALF_VECTORS, h, p->shares, p->values + c * n, y + c);
}

static TARGET void attend_all(const td_half_head *h, const head_parts *p, int64_t from)
{
    attend(TD_HALF_ROWS, h, p, from);
}

static TARGET void attend_one(const td_half_head *h, const head_parts *p, int64_t from)
{
    attend(1, h, p, from);
}

static TARGET void run(const td_half_head *h)
{
    const head_parts p = parts_of(h);
    int64_t i = 0;
    pack_keys(h, p.keys);
    pack_values(h, p.values);
    for (; i + TD_HALF_ROWS <= h->T; i += TD_HALF_ROWS)
        attend_all(h, &p, i);
    for (; i < h->T; i++)
        attend_one(h, &p, i);
}

td_half_head_loops *td_half_head_loops_here(void)
{
    return td_isa_has(TD_ISA_AVX512_BF16) ? run : NULL;
}
#else
td_half_head_loops *td_half_head_loops_here(void)
{
    return NULL;
}
#endif
