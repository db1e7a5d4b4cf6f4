/*
 * native_conv_grad_w_simd.c -- the inner loops of native_conv_grad_w.h for AVX-512 with bf16
 */
#include "backend/native/conv/native_conv_grad_w.h"

#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { VECTOR = 64, TILE = TD_GRAD_W_TILE, BLOCKS_MAX = 2 };

/* lane j of image a, lane j of image b */
#define TWO(j)  (j), (j) + 16
#define FOUR(j) TWO(j), TWO((j) + 1), TWO((j) + 2), TWO((j) + 3)
static const _Alignas(VECTOR) uint16_t in_turn[32] = { FOUR(0), FOUR(4), FOUR(8), FOUR(12) };

static TARGET void interleave(const uint16_t *a, const uint16_t *b, int64_t n, int64_t step,
                              char *to)
{
    const __m512i order = _mm512_load_si512(in_turn);
    __m256i second = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i++) {
        const __m256i first = _mm256_loadu_si256((const __m256i *)(a + i * step));
        if (b)
            second = _mm256_loadu_si256((const __m256i *)(b + i * step));
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
        _mm512_storeu_si512(to + i * VECTOR, _mm512_permutexvar_epi16(order, both));
    }
}

/* one pair of pixels: every channel of x by every lane of dy */
INLINE void multiply_pair(int blocks, const char *dy, int64_t dy_step, const char *x,
                          __m512 sum[BLOCKS_MAX][TILE])
{
    __m512i g[BLOCKS_MAX];
#pragma GCC unroll 2
    for (int k = 0; k < blocks; k++)
        g[k] = _mm512_loadu_si512(dy + k * dy_step);
#pragma GCC unroll 8
    for (int c = 0; c < TILE; c++) {
        int32_t pair;
        memcpy(&pair, x + 4 * c, sizeof pair);
        const __m512i a = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
        for (int k = 0; k < blocks; k++)
            sum[k][c] = _mm512_dpbf16_ps(sum[k][c], (__m512bh)g[k], (__m512bh)a);
    }
}

/* one row of pairs */
INLINE void multiply_row(const td_grad_w_product *p, const td_grad_w_operands *o, int blocks,
                         int64_t image, int64_t row, __m512 sum[BLOCKS_MAX][TILE])
{
    const int64_t n = p->n, x_pixel = p->x_pixel, ahead_pixel = o->ahead_pixel;
    const char *dy = o->dy + image * p->dy_image + row * p->dy_row;
    const char *x = o->x + image * p->x_image + row * p->x_row;
    if (!o->ahead[0]) {
#pragma GCC unroll 1
        for (int64_t i = 0; i < n; i++)
            multiply_pair(blocks, dy + i * VECTOR, p->dy_block, x + i * x_pixel, sum);
        return;
    }
    const int64_t at = image * o->ahead_image + row * o->ahead_row;
    const char *a = o->ahead[0] + at, *b = o->ahead[1] + at;
#pragma GCC unroll 1
    for (int64_t i = 0; i < n; i++) {
        _mm_prefetch(a + i * ahead_pixel, _MM_HINT_T1);
        _mm_prefetch(b + i * ahead_pixel, _MM_HINT_T1);
        multiply_pair(blocks, dy + i * VECTOR, p->dy_block, x + i * x_pixel, sum);
    }
}

INLINE void multiply_blocks(const td_grad_w_product *p, const td_grad_w_operands *o, int blocks)
{
    __m512 sum[BLOCKS_MAX][TILE];
#pragma GCC unroll 2
    for (int k = 0; k < blocks; k++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE; c++)
            sum[k][c] = o->is_first
                            ? _mm512_setzero_ps()
                            : _mm512_loadu_ps(o->sums + k * p->sum_block + c * TD_GRAD_W_LANES);
    for (int64_t image = 0; image < p->images; image++)
        for (int64_t row = 0; row < p->rows; row++)
            multiply_row(p, o, blocks, image, row, sum);
#pragma GCC unroll 2
    for (int k = 0; k < blocks; k++)
#pragma GCC unroll 8
        for (int c = 0; c < TILE; c++)
            _mm512_storeu_ps(o->sums + k * p->sum_block + c * TD_GRAD_W_LANES, sum[k][c]);
}

static TARGET void multiply(const td_grad_w_product *p, const td_grad_w_operands *o, int blocks)
{
    if (blocks == BLOCKS_MAX)
        multiply_blocks(p, o, BLOCKS_MAX);
    else
        multiply_blocks(p, o, 1);
}

static const td_grad_w_loops loops = { "avx512_bf16", interleave, multiply };

const td_grad_w_loops *td_grad_w_loops_get(void)
{
    /* where an instruction multiplies matrices, oneDNN's kernels are faster */
    return td_isa_best() == TD_ISA_AVX512_BF16 ? &loops : NULL;
}
#else
const td_grad_w_loops *td_grad_w_loops_get(void)
{
    return NULL;
}
#endif
