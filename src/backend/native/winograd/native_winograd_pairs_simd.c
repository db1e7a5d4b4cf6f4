/*
 * native_winograd_pairs_simd.c -- the inner loops of native_winograd.h for F(2 x 2, 3 x 3), AVX-512
 * with bf16
 *
 * Two neighbouring tiles are transformed together: of their 6 columns of inputs 2 are in both, and
 * their results for one point fill a cache line of v.  Products add pairs of channels, vdpbf16ps.
 *
 * The points are 0, 1, -1 and infinity (ops/conv_winograd.c).
 */
#include "backend/native/winograd/native_winograd.h"

#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum {
    TILE = TD_WINO_SMALL_TILE,
    SIDE = TD_WINO_SMALL_SIDE,
    POINTS = TD_WINO_SMALL_POINTS,
    LANES = TD_WINO_LANES,
    PAIR = 2,                 /* tiles */
    COLS = SIDE + TILE,       /* columns of inputs of two tiles */
    LINE = 2 * TD_WINO_LANES, /* elements of a cache line */
    TILES_MAX = 14,           /* 28 sums in 32 registers */
    BLOCKS_MAX = 2,
};

INLINE __m512 widened(const uint16_t *p)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

INLINE void store_rounded(uint16_t *p, __m512 a)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(a));
}

/* a, then b */
INLINE void store_both_rounded(uint16_t *p, __m512 a, __m512 b)
{
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* --- input ------------------------------------------------------------------------------------ */

/* The inputs of one or two tiles: row r is at x + r * pitch.  Rows and columns from `above` and
   `left` to `below` and `right` are inside the image. */
typedef struct {
    const uint16_t *x;
    int64_t pitch, pixel;
    int64_t above, below, left, right;
} window;

INLINE window window_of(const td_native_wino *w, const td_native_wino_place *at, const uint16_t *x)
{
    const int64_t h = at->p - w->pad, c = at->q - w->pad;
    const int64_t pixel = w->x.pixel, pitch = w->W * pixel;
    const int64_t image = w->C * w->H * w->W;
    return (window){
        x + at->n * image + h * pitch + c * pixel, pitch, pixel, -h, w->H - h, -c, w->W - c
    };
}

/* column `s` of the window, transformed: t = B' d */
INLINE void input_column(const window *in, bool is_whole, int64_t s, __m512 t[SIDE])
{
    __m512 d[SIDE];
#pragma GCC unroll 4
    for (int64_t r = 0; r < SIDE; r++) {
        const bool is_inside =
            is_whole || (r >= in->above && r < in->below && s >= in->left && s < in->right);
        d[r] = is_inside ? widened(in->x + r * in->pitch + s * in->pixel) : _mm512_setzero_ps();
    }
    t[0] = _mm512_sub_ps(d[2], d[0]);
    t[1] = _mm512_add_ps(d[1], d[2]);
    t[2] = _mm512_sub_ps(d[2], d[1]);
    t[3] = _mm512_sub_ps(d[3], d[1]);
}

/* point `s` of a row whose first column is half[0] */
INLINE __m512 input_point(const __m512 half[][SIDE], int r, int s)
{
    return s == 0   ? _mm512_sub_ps(half[2][r], half[0][r])
           : s == 1 ? _mm512_add_ps(half[1][r], half[2][r])
           : s == 2 ? _mm512_sub_ps(half[2][r], half[1][r])
                    : _mm512_sub_ps(half[3][r], half[1][r]);
}

/* `tiles`: 1 or 2; v: their line at point 0 */
INLINE void input_tiles(const window *in, int tiles, bool is_whole, uint16_t *v, int64_t step)
{
    __m512 half[COLS][SIDE];
#pragma GCC unroll 6
    for (int s = 0; s < SIDE + TILE * (tiles - 1); s++)
        input_column(in, is_whole, s, half[s]);
#pragma GCC unroll 4
    for (int r = 0; r < SIDE; r++)
#pragma GCC unroll 4
        for (int s = 0; s < SIDE; s++) {
            uint16_t *to = v + (r * SIDE + s) * step;
            const __m512 a = input_point(half, r, s);
            if (tiles == PAIR)
                store_both_rounded(to, a, input_point(half + TILE, r, s));
            else
                store_rounded(to, a);
        }
}

INLINE void input_block(const window *in, int tiles, uint16_t *v, int64_t step)
{
    const int64_t cols = SIDE + TILE * (tiles - 1);
    const bool is_whole = in->above <= 0 && in->left <= 0 && in->below >= SIDE && in->right >= cols;
    if (is_whole && tiles == PAIR)
        input_tiles(in, PAIR, true, v, step);
    else if (tiles == PAIR)
        input_tiles(in, PAIR, false, v, step);
    else
        input_tiles(in, 1, false, v, step);
}

/* loops in the memory order of the channels */
static TARGET void input(const td_native_wino *w, int64_t first, int64_t n, const void *x, void *v)
{
    const int64_t blocks = w->C / LANES, room = w->room * LANES;
    const int64_t together = w->x.block == LANES ? blocks : 1; /* channels last */
    for (int64_t cb = 0; cb < blocks; cb += together) {
        td_native_wino_place at = td_native_wino_place_of(w, first);
        for (int64_t i = 0, tiles; i < n; i += tiles, td_native_wino_go_on(w, tiles, &at)) {
            window in = window_of(w, &at, x);
            tiles = i + 1 < n && at.col + 1 < w->cols.tiles ? PAIR : 1;
            in.x += cb * w->x.block;
            for (int64_t k = cb; k < cb + together; k++, in.x += w->x.block)
                input_block(&in, (int)tiles, (uint16_t *)v + k * room + i * LANES, w->v_step);
        }
    }
}

/* --- products --------------------------------------------------------------------------------- */

INLINE __m512bh pair_of(const uint16_t *v)
{
    int32_t pair;
    memcpy(&pair, v, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* `tiles` and `blocks` are compile-time constants: all sums stay in registers */
INLINE void product_of(const td_native_wino *w, int tiles, int blocks, const uint16_t *v,
                       const uint16_t *u, int64_t u_step, float *m)
{
    __m512 sum[TILES_MAX][BLOCKS_MAX];
#pragma GCC unroll 14
    for (int i = 0; i < tiles; i++)
#pragma GCC unroll 2
        for (int j = 0; j < blocks; j++)
            sum[i][j] = _mm512_setzero_ps();
    for (int64_t cb = 0; cb < w->C; cb += LANES, v += w->room * LANES)
#pragma GCC unroll 1
        for (int64_t c = 0; c < LANES; c += 2, u += LINE) {
            __m512bh b[BLOCKS_MAX];
#pragma GCC unroll 2
            for (int j = 0; j < blocks; j++)
                b[j] = (__m512bh)_mm512_loadu_si512(u + j * u_step);
#pragma GCC unroll 14
            for (int i = 0; i < tiles; i++) {
                const __m512bh a = pair_of(v + i * LANES + c);
#pragma GCC unroll 2
                for (int j = 0; j < blocks; j++)
                    sum[i][j] = _mm512_dpbf16_ps(sum[i][j], a, b[j]);
            }
        }
#pragma GCC unroll 2
    for (int j = 0; j < blocks; j++)
#pragma GCC unroll 14
        for (int i = 0; i < tiles; i++)
            _mm512_storeu_ps(m + (j * w->piece + i) * LANES, sum[i][j]);
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (blocks == 1)                                                                           \
            product_of(w, n, 1, v, u, u_step, m);                                                  \
        else                                                                                       \
            product_of(w, n, BLOCKS_MAX, v, u, u_step, m);                                         \
        break;

static TARGET void product(const td_native_wino *w, int tiles, int blocks, const void *v,
                           const void *u, int64_t u_step, float *m)
{
    switch (tiles) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
    }
}

#undef CASE

/* --- output ----------------------------------------------------------------------------------- */

/* where a tile's results go: their first pixel, and how many rows and columns are inside */
typedef struct {
    uint16_t *y;
    const uint16_t *residual;
    int64_t pitch, pixel, rows, cols;
} target;

/* scale and bias of 16 filters; without a scale 1, exactly */
typedef struct {
    __m512 scale, bias;
    bool has_scale;
} norm;

INLINE __m512 finished(const td_native_wino *w, const norm *f, __m512 a, const uint16_t *residual)
{
    a = f->has_scale ? _mm512_fmadd_ps(a, f->scale, f->bias) : _mm512_add_ps(a, f->bias);
    if (residual)
        a = _mm512_add_ps(a, widened(residual));
    if (w->relu) /* keeps NaN: min and max return the second operand if one is NaN */
        a = _mm512_min_ps(_mm512_set1_ps(w->cap), _mm512_max_ps(_mm512_setzero_ps(), a));
    return a;
}

INLINE void output_tile(const td_native_wino *w, const norm *f, const float *m, int64_t m_step,
                        const target *to)
{
    __m512 half[TILE][SIDE];
#pragma GCC unroll 4
    for (int s = 0; s < SIDE; s++) {
        __m512 d[SIDE];
#pragma GCC unroll 4
        for (int r = 0; r < SIDE; r++)
            d[r] = _mm512_loadu_ps(m + (r * SIDE + s) * m_step);
        half[0][s] = _mm512_add_ps(d[0], _mm512_add_ps(d[1], d[2]));
        half[1][s] = _mm512_add_ps(_mm512_sub_ps(d[1], d[2]), d[3]);
    }
#pragma GCC unroll 2
    for (int r = 0; r < TILE; r++) {
        const __m512 *h = half[r];
        const int64_t at = r * to->pitch;
        const uint16_t *z = to->residual ? to->residual + at : NULL;
        uint16_t *y = to->y + at;
        __m512 a = _mm512_add_ps(h[0], _mm512_add_ps(h[1], h[2]));
        __m512 b = _mm512_add_ps(_mm512_sub_ps(h[1], h[2]), h[3]);
        if (r >= to->rows)
            break;
        a = finished(w, f, a, z);
        if (to->cols < TILE) {
            store_rounded(y, a);
            continue;
        }
        b = finished(w, f, b, z ? z + to->pixel : NULL);
        if (to->pixel == LANES) {
            store_both_rounded(y, a, b);
        } else {
            store_rounded(y, a);
            store_rounded(y + to->pixel, b);
        }
    }
}

static TARGET void output(const td_native_wino *w, int64_t first, int64_t n, const float *m,
                          int64_t m_step, const td_native_wino_end *end)
{
    const int64_t image = w->K * w->P * w->Q, pixel = w->y.pixel, pitch = w->Q * pixel;
    const norm f = { .scale = end->scale ? _mm512_loadu_ps(end->scale) : _mm512_setzero_ps(),
                     .bias = end->bias ? _mm512_loadu_ps(end->bias) : _mm512_setzero_ps(),
                     .has_scale = end->scale };
    td_native_wino_place at = td_native_wino_place_of(w, first);
    for (int64_t i = 0; i < n; i++, m += LANES, td_native_wino_go_on(w, 1, &at)) {
        const int64_t to = at.n * image + end->block * w->y.block + at.p * pitch + at.q * pixel;
        const target t = { .y = (uint16_t *)end->y + to,
                           .residual = end->residual ? (const uint16_t *)end->residual + to : NULL,
                           .pitch = pitch,
                           .pixel = pixel,
                           .rows = w->P - at.p,
                           .cols = w->Q - at.q };
        output_tile(w, &f, m, m_step, &t);
    }
}

/* --- filters ---------------------------------------------------------------------------------- */

/* t = G g */
INLINE void filter_transform_1d(const __m512 g[3], __m512 t[SIDE])
{
    const __m512 half = _mm512_set1_ps(0.5F), ends = _mm512_add_ps(g[0], g[2]);
    t[0] = _mm512_sub_ps(_mm512_setzero_ps(), g[0]);
    t[1] = _mm512_mul_ps(half, _mm512_add_ps(ends, g[1]));
    t[2] = _mm512_mul_ps(half, _mm512_sub_ps(ends, g[1]));
    t[3] = g[2];
}

INLINE void transform_filters(const float *g, int64_t g_step, __m512 u[POINTS])
{
    __m512 half[3][SIDE]; /* [column][point] */
#pragma GCC unroll 3
    for (int s = 0; s < 3; s++) {
        const __m512 d[3] = { _mm512_loadu_ps(g + s * g_step),
                              _mm512_loadu_ps(g + (3 + s) * g_step),
                              _mm512_loadu_ps(g + (6 + s) * g_step) };
        filter_transform_1d(d, half[s]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < SIDE; r++) {
        const __m512 d[3] = { half[0][r], half[1][r], half[2][r] };
        filter_transform_1d(d, u + r * SIDE);
    }
}

INLINE __m512i rounded(__m512 a)
{
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a));
}

static TARGET void filter_pair(const float *even, const float *odd, int64_t g_step, uint16_t *u,
                               int64_t u_step)
{
    __m512 a[POINTS], b[POINTS];
    transform_filters(even, g_step, a);
    transform_filters(odd, g_step, b);
    for (int p = 0; p < POINTS; p++)
        _mm512_storeu_si512(u + p * u_step,
                            _mm512_or_si512(rounded(a[p]), _mm512_slli_epi32(rounded(b[p]), 16)));
}

static const td_native_wino_simd simd = { .isa = "avx512_bf16",
                                          .dtype = TD_DT_BF16,
                                          .lanes = LANES,
                                          .tiles = TILES_MAX,
                                          .blocks = BLOCKS_MAX,
                                          .filter_pair = filter_pair,
                                          .product = product,
                                          .forms[TD_WINO_SMALL] = { .input = input,
                                                                    .output = output } };

const td_native_wino_simd *td_native_wino_pairs(void)
{
    /* where an instruction multiplies matrices, oneDNN's direct kernels are faster */
    return td_isa_best() == TD_ISA_AVX512_BF16 ? &simd : NULL;
}
#else
const td_native_wino_simd *td_native_wino_pairs(void)
{
    return NULL;
}
#endif
