/*
 * native_amx_simd.c -- the inner loops of native_amx.h
 */
#include "backend/native/amx/native_amx.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "base/isa.h"

#if defined(__x86_64__)
#include "backend/native/simd/native_bf16_math.h"
#include "backend/native/simd/native_tile.h"

#undef TARGET
#define TARGET __attribute__((target(TILES)))

enum {
    CELL = TD_AMX_CELL_BYTES,
    WIDTH = TD_AMX_CHANNELS, /* output channels in a block */
    ROOM = TD_AMX_PIXELS * WIDTH,
    PANEL_BYTES = CELL * WIDTH, /* of the filter, for a block of results and a cell */
    FILTER_BYTES = 640 * 1024,  /* of a filter that stays in the L2 cache */
    FEW = 8, /* groups of 32 pixels that wait for the filter rather than for pixels */
    LINES = PANEL_BYTES / CELL,
};

/* where the cells of a strip are */
typedef struct {
    const td_amx_geometry *g;
    int64_t each;                /* bytes of an element of x */
    int64_t plane, image, depth; /* cells from one plane, image, block of channels to the next */
    int64_t blocks;              /* of channels that are read */
    int64_t step;                /* bytes from one pixel to the next */
} places;

/* Are the pixels read where they are? */
static bool is_direct(const td_amx_geometry *g, const td_amx_strip *s)
{
    return g->is_flat && g->C % g->channels == 0 && s->rows >= TD_AMX_PIXELS;
}

static places places_of(const td_amx_geometry *g, const td_amx_strip *s)
{
    places c = { .g = g,
                 .each = CELL / g->channels,
                 .plane = td_amx_plane_cells(g, s->rows),
                 .blocks = divide_up(g->C, g->channels),
                 .step = CELL };
    c.image = c.plane * g->n_planes;
    c.depth = c.image * s->images;
    if (is_direct(g, s)) {
        c.depth = 1;
        c.step = g->C * c.each;
    }
    return c;
}

/* n pixels that are `step` bytes apart; `to`: the first cell of the first block of channels */
static TARGET void copy_pixels(const places *c, const char *x, int64_t n, int64_t step, char *to)
{
    const int64_t whole = c->g->C * c->each / CELL, rest = c->g->C * c->each % CELL;
    const __mmask64 some = (UINT64_C(1) << rest) - 1;
    for (int64_t i = 0; i < n; i++, x += step, to += CELL) {
        for (int64_t b = 0; b < whole; b++)
            _mm512_store_si512(to + b * c->depth * CELL, _mm512_loadu_si512(x + b * CELL));
        if (rest)
            _mm512_store_si512(to + whole * c->depth * CELL,
                               _mm512_maskz_loadu_epi8(some, x + whole * CELL));
    }
}

static void zero_cells(const places *c, int64_t n, char *to)
{
    for (int64_t b = 0; b < c->blocks && n > 0; b++)
        memset(to + b * c->depth * CELL, 0, (size_t)(n * CELL));
}

/* a row of one plane, from the row h of x, which may be outside */
static void copy_row(const places *c, const char *image, int64_t h, int col, char *to)
{
    const td_amx_geometry *g = c->g;
    const int64_t pixel = g->C * c->each;
    if (h < 0 || h >= g->H) {
        zero_cells(c, g->row, to);
        return;
    }
    const int64_t n = divide_up(g->W - col, g->stride);
    zero_cells(c, g->left, to);
    copy_pixels(c, image + (h * g->W + col) * pixel, n, g->stride * pixel, to + g->left * CELL);
    zero_cells(c, g->row - g->left - n, to + (g->left + n) * CELL);
}

/* the rows of one image that s->rows rows of the result read */
static void copy_image(const places *c, const char *image, const td_amx_strip *s, char *to)
{
    const td_amx_geometry *g = c->g;
    for (int k = 0; k < g->n_planes; k++) {
        char *plane = to + k * c->plane * CELL;
        const int64_t n = s->rows + g->tall;
        for (int64_t i = 0; i < n; i++)
            copy_row(c, image, (s->p + i - g->top) * g->stride + g->plane[k].row, g->plane[k].col,
                     plane + i * g->row * CELL);
        zero_cells(c, c->plane - n * g->row, plane + n * g->row * CELL);
    }
}

static void copy_strip(const places *c, const char *x, const td_amx_strip *s)
{
    const td_amx_geometry *g = c->g;
    const int64_t pixel = g->C * c->each;
    char *cells = s->cells;
    if (g->is_flat)
        copy_pixels(c, x + s->p * pixel, s->rows, pixel, cells);
    for (int64_t i = 0; i < s->images && !g->is_flat; i++)
        copy_image(c, x + (s->image + i) * g->H * g->W * pixel, s, cells + i * c->image * CELL);
}

/* --- results ---------------------------------------------------------------------------------- */

/* 32 channels of the result */
typedef struct {
    __m512 bias[2], scale[2]; /* scale: of integers */
    __mmask32 which;
    int64_t step;   /* elements from one pixel to the next */
    int64_t row, Q; /* as in td_amx_geometry */
    const td_amx_int8 *int8;
} channels;

INLINE TARGET __m512 apply(td_block_act act, __m512 x)
{
    const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
    if (act == TD_BLOCK_SILU)
        return _mm512_mul_ps(x, sigmoid(x));
    if (act == TD_BLOCK_HARDSWISH) {
        const __m512 s = _mm512_fmadd_ps(x, _mm512_set1_ps(1.0F / 6), _mm512_set1_ps(0.5F));
        return _mm512_mul_ps(x, _mm512_min_ps(one, _mm512_max_ps(zero, s)));
    }
    if (act == TD_BLOCK_RELU || act == TD_BLOCK_RELU6)
        x = _mm512_max_ps(zero, x); /* NaN stays */
    return act == TD_BLOCK_RELU6 ? _mm512_min_ps(_mm512_set1_ps(6), x) : x;
}

INLINE TARGET __m512 widened(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* the first number whose result is put */
typedef struct {
    int64_t col;      /* in its row */
    const void *sums; /* float32 or integers of 32 bits */
    const char *rest; /* the residual's elements for its pixel, or NULL */
    char *y;          /* the pixel's first result */
} cursor;

/* puts n numbers from there on, those that are pixels */
typedef void put_loop(const channels *k, int64_t n, const cursor *at);

INLINE TARGET void put_halves(const channels *k, td_block_act act, bool has_rest, int64_t n,
                              const cursor *at)
{
    const float *sums = at->sums;
    const char *rest = at->rest;
    char *y = at->y;
    const __m512 bias[2] = { k->bias[0], k->bias[1] }; /* y might alias *k */
    const int64_t step = k->step * (int64_t)sizeof(uint16_t), row = k->row, Q = k->Q;
    const __mmask32 which = k->which;
    int64_t col = at->col;
    for (int64_t i = 0; i < n; i++, sums += WIDTH) {
        if (col < Q) {
            __m512 low = _mm512_add_ps(_mm512_load_ps(sums), bias[0]);
            __m512 high = _mm512_add_ps(_mm512_load_ps(sums + LANES), bias[1]);
            if (has_rest) {
                const __m512i r = _mm512_maskz_loadu_epi16(which, rest);
                low = _mm512_add_ps(low, widened(_mm512_castsi512_si256(r)));
                high = _mm512_add_ps(high, widened(_mm512_extracti64x4_epi64(r, 1)));
                rest += step;
            }
            const __m512bh both = _mm512_cvtne2ps_pbh(apply(act, high), apply(act, low));
            if (which == UINT32_MAX) /* a line that is written whole need not be read */
                _mm512_storeu_si512(y, (__m512i)both);
            else
                _mm512_mask_storeu_epi16(y, which, (__m512i)both);
            y += step;
        }
        if (++col == row)
            col = 0;
    }
}

#define PUT(name, act, has_rest)                                                                   \
    static TARGET void name(const channels *k, int64_t n, const cursor *at)                        \
    {                                                                                              \
        put_halves(k, act, has_rest, n, at);                                                       \
    }

PUT(put_linear, TD_BLOCK_LINEAR, false)
PUT(put_relu, TD_BLOCK_RELU, false)
PUT(put_relu6, TD_BLOCK_RELU6, false)
PUT(put_silu, TD_BLOCK_SILU, false)
PUT(put_hardswish, TD_BLOCK_HARDSWISH, false)
PUT(add_linear, TD_BLOCK_LINEAR, true)
PUT(add_relu, TD_BLOCK_RELU, true)
PUT(add_relu6, TD_BLOCK_RELU6, true)
PUT(add_silu, TD_BLOCK_SILU, true)
PUT(add_hardswish, TD_BLOCK_HARDSWISH, true)

static put_loop *put_for(td_block_act act, bool has_rest)
{
    static put_loop *const all[][2] = { [TD_BLOCK_LINEAR] = { put_linear, add_linear },
                                        [TD_BLOCK_RELU] = { put_relu, add_relu },
                                        [TD_BLOCK_RELU6] = { put_relu6, add_relu6 },
                                        [TD_BLOCK_SILU] = { put_silu, add_silu },
                                        [TD_BLOCK_HARDSWISH] = { put_hardswish, add_hardswish } };
    return all[act][has_rest];
}

/* --- results of integers ---------------------------------------------------------------------- */

/* half j of a pixel's rest, as float32; is_simple: all of it */
INLINE TARGET __m512 rest_at(const channels *k, td_dtype type, bool is_simple, const char *rest,
                             int j)
{
    const __mmask16 which = (__mmask16)(is_simple ? UINT16_MAX : k->which >> (j * LANES));
    if (type == TD_DT_F32)
        return _mm512_maskz_loadu_ps(which, (const float *)(const void *)rest + j * LANES);
    const __m128i r = is_simple ? _mm_loadu_si128((const __m128i *)(const void *)rest + j)
                                : _mm_maskz_loadu_epi8(which, rest + j * LANES);
    return _mm512_cvtepi32_ps(type == TD_DT_S8 ? _mm512_cvtepi8_epi32(r) : _mm512_cvtepu8_epi32(r));
}

/* 32 integers of 32 bits, clipped to 8 */
INLINE TARGET __m256i packed(bool is_signed, __m512i low, __m512i high)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i p = _mm512_packs_epi32(low, high);
    const __m512i bytes = is_signed ? _mm512_packs_epi16(p, p) : _mm512_packus_epi16(p, p);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, bytes));
}

/* NaN becomes 0 */
INLINE TARGET __m512i rounded(__m512 v)
{
    return _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
}

INLINE TARGET __m512 clipped(const td_amx_int8 *t, __m512 v)
{
    /* NaN stays */
    return _mm512_max_ps(_mm512_set1_ps(t->low), _mm512_min_ps(_mm512_set1_ps(t->high), v));
}

/* is_simple: 32 results that packing clips */
INLINE TARGET void put_pixel(const channels *k, td_dtype type, bool is_simple, const __m512 *v,
                             char *y)
{
    if (type == TD_DT_F32) {
        float *to = (float *)(void *)y;
        _mm512_mask_storeu_ps(to, (__mmask16)k->which, clipped(k->int8, v[0]));
        _mm512_mask_storeu_ps(to + LANES, (__mmask16)(k->which >> LANES), clipped(k->int8, v[1]));
    } else if (is_simple) {
        const __m512i low = _mm512_cvtps_epi32(v[0]), high = _mm512_cvtps_epi32(v[1]);
        _mm256_storeu_si256((__m256i *)(void *)y, packed(type == TD_DT_S8, low, high));
    } else {
        const __m512i low = rounded(clipped(k->int8, v[0]));
        const __m512i high = rounded(clipped(k->int8, v[1]));
        _mm256_mask_storeu_epi8(y, k->which, packed(type == TD_DT_S8, low, high));
    }
}

INLINE TARGET void put_int8(const channels *k, td_dtype type, td_dtype rest_type, bool has_rest,
                            bool is_simple, int64_t n, const cursor *at)
{
    const int32_t *sums = at->sums;
    const char *rest = at->rest;
    char *y = at->y;
    int64_t col = at->col;
    const __m512 by = _mm512_set1_ps(k->int8->rest_step);
    const __m512 scale[2] = { k->scale[0], k->scale[1] }; /* y might alias *k */
    const __m512 bias[2] = { k->bias[0], k->bias[1] };
    const int64_t row = k->row, Q = k->Q;
    const int64_t step = k->step * (type == TD_DT_F32 ? (int64_t)sizeof(float) : 1);
    for (int64_t i = 0; i < n; i++, sums += WIDTH) {
        if (col < Q) {
            __m512 v[2];
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                v[j] = _mm512_cvtepi32_ps(_mm512_load_si512(sums + j * LANES));
                v[j] = _mm512_fmadd_ps(v[j], scale[j], bias[j]);
                if (has_rest)
                    v[j] = _mm512_fmadd_ps(rest_at(k, rest_type, is_simple, rest, j), by, v[j]);
            }
            put_pixel(k, type, is_simple, v, y);
            rest += has_rest ? step : 0;
            y += step;
        }
        if (++col == row)
            col = 0;
    }
}

#define PUT_INT8(name, type, rest_type, has_rest)                                                  \
    static TARGET void name(const channels *k, int64_t n, const cursor *at)                        \
    {                                                                                              \
        if (k->int8->is_simple && k->which == UINT32_MAX)                                          \
            put_int8(k, type, rest_type, has_rest, true, n, at);                                   \
        else                                                                                       \
            put_int8(k, type, rest_type, has_rest, false, n, at);                                  \
    }

PUT_INT8(put_u8, TD_DT_U8, TD_DT_U8, false)
PUT_INT8(put_s8, TD_DT_S8, TD_DT_S8, false)
PUT_INT8(put_f32, TD_DT_F32, TD_DT_F32, false)
PUT_INT8(put_u8_of_u8, TD_DT_U8, TD_DT_U8, true)
PUT_INT8(put_u8_of_s8, TD_DT_U8, TD_DT_S8, true)
PUT_INT8(put_s8_of_u8, TD_DT_S8, TD_DT_U8, true)
PUT_INT8(put_s8_of_s8, TD_DT_S8, TD_DT_S8, true)
PUT_INT8(put_f32_of_f32, TD_DT_F32, TD_DT_F32, true)

static put_loop *put_int8_for(const td_amx_int8 *t, bool has_rest)
{
    if (t->y == TD_DT_F32)
        return has_rest ? put_f32_of_f32 : put_f32;
    if (!has_rest)
        return t->y == TD_DT_S8 ? put_s8 : put_u8;
    if (t->y == TD_DT_S8)
        return t->rest == TD_DT_S8 ? put_s8_of_s8 : put_s8_of_u8;
    return t->rest == TD_DT_S8 ? put_u8_of_s8 : put_u8_of_u8;
}

/* --- products --------------------------------------------------------------------------------- */

/* a filter's block of 32 results; what is fetched while it is multiplied */
typedef struct {
    const char *w, *ahead, *end; /* [ahead, end): the rest of the next block; NULL: nothing */
    int64_t lines;               /* cache lines to prefetch with each panel */
} filter;

INLINE void fetch_ahead(const filter *f, int64_t i)
{
    const char *at = f->ahead + i * f->lines * CELL;
    for (int64_t k = 0; k < f->lines && at < f->end; k++, at += CELL)
        _mm_prefetch(at, _MM_HINT_T1);
}

/* A block whose sums are in the tiles.  They are stored between the first products of the next
   block, of which none waits for another then, and put after them: while a tile of sums is stored,
   which takes as long as a product, the others are multiplied. */
typedef struct {
    channels k;
    put_loop *put;
    float *sums; /* ROOM */
    int64_t n;   /* numbers; 0: there is no block */
    cursor at;
} block_before;

#define PRODUCT(is_int8, sums, x, w)                                                               \
    do {                                                                                           \
        if (is_int8)                                                                               \
            _tile_dpbusd(sums, x, w);                                                              \
        else                                                                                       \
            _tile_dpbf16ps(sums, x, w);                                                            \
    } while (0)

/* the first product of a tile of sums, after those of the block before are stored */
#define FIRST_PRODUCT(is_int8, before, i, x, w)                                                    \
    do {                                                                                           \
        if ((before)->n > 0)                                                                       \
            STORE_SUMS(i, (before)->sums);                                                         \
        _tile_zero(i);                                                                             \
        PRODUCT(is_int8, i, x, w);                                                                 \
    } while (0)

INLINE TARGET void load_factors(const places *c, const char *x, const char *w)
{
    _tile_loadd(4, x, c->step);
    _tile_loadd(6, w, SQUARE_ROW_BYTES);
    _tile_loadd(7, w + TILE_ROW_BYTES, SQUARE_ROW_BYTES);
    _tile_loadd(5, x + TILE_ROWS * c->step, c->step);
}

/* sums of 32 numbers from cell `at` on, of 32 results, float32 or integers of 32 bits; tiles 0 to 3
   are sums, 4 and 5 pixels, 6 and 7 filters */
INLINE TARGET void multiply(bool is_int8, const places *c, const int64_t *tap, const char *at,
                            const filter *f, const block_before *before)
{
    const char *w = f->w;
    int64_t i = 0;
    for (int t = 0; t < c->g->n_taps; t++) {
        const char *x = at + tap[t];
        for (int64_t b = 0; b < c->blocks; b++, x += c->depth * CELL, w += PANEL_BYTES) {
            fetch_ahead(f, i);
            load_factors(c, x, w);
            if (i++ == 0) {
                FIRST_PRODUCT(is_int8, before, 0, 4, 6);
                FIRST_PRODUCT(is_int8, before, 1, 4, 7);
                FIRST_PRODUCT(is_int8, before, 2, 5, 6);
                FIRST_PRODUCT(is_int8, before, 3, 5, 7);
            } else {
                PRODUCT(is_int8, 0, 4, 6);
                PRODUCT(is_int8, 1, 4, 7);
                PRODUCT(is_int8, 2, 5, 6);
                PRODUCT(is_int8, 3, 5, 7);
            }
        }
    }
}

static TARGET NOINLINE void multiply_halves(const places *c, const int64_t *tap, const char *at,
                                            const filter *f, const block_before *before)
{
    multiply(false, c, tap, at, f, before);
}

static TARGET NOINLINE void multiply_int8(const places *c, const int64_t *tap, const char *at,
                                          const filter *f, const block_before *before)
{
    multiply(true, c, tap, at, f, before);
}

/* those of the last block */
static TARGET NOINLINE void store_sums(float *sums)
{
    STORE_SUMS(0, sums);
    STORE_SUMS(1, sums);
    STORE_SUMS(2, sums);
    STORE_SUMS(3, sums);
}

/* puts sums that are stored */
INLINE TARGET void put_before(block_before *b)
{
    use_memory(b->sums);
    if (b->n > 0)
        b->put(&b->k, b->n, &b->at);
}

/* --- a strip ---------------------------------------------------------------------------------- */

/* Field by field: a copy of the struct would read vectors of which parts were just written, which
   waits for all stores. */
static TARGET void set_channels(const td_amx_conv *v, int64_t block, channels *c)
{
    const int64_t k = block * WIDTH, n = smaller(v->g.K - k, WIDTH);
    const float *bias = v->int8 ? v->int8->bias : v->bias;
    c->which = (__mmask32)((UINT64_C(1) << n) - 1);
    c->step = v->g.K;
    c->row = v->g.row;
    c->Q = v->g.Q;
    c->int8 = v->int8;
    for (int j = 0; j < 2; j++) {
        const __mmask16 which = (__mmask16)(c->which >> (j * LANES));
        c->bias[j] = c->scale[j] = _mm512_setzero_ps();
        if (bias)
            c->bias[j] = _mm512_maskz_loadu_ps(which, bias + k + j * LANES);
        if (v->int8)
            c->scale[j] = _mm512_maskz_loadu_ps(which, v->int8->scale + k + j * LANES);
    }
}

/* how many of the first n numbers are pixels of the result */
static int64_t pixels_among(const td_amx_geometry *g, int64_t n)
{
    return g->is_flat ? n : n / g->row * g->Q + smaller(n % g->row, g->Q);
}

/* a strip while it is computed */
typedef struct {
    const td_amx_conv *v;
    const td_amx_strip *s;
    places c;
    bool is_direct;
    const char *pixels;           /* cells, or x */
    int64_t tap[TD_AMX_TAPS_MAX]; /* bytes */
    int64_t n;                    /* numbers of an image */
    int64_t lines;                /* of the next block of the filter that are fetched */
    block_before before;
} job;

/* bytes of a block of the filter */
static int64_t filter_bytes(const job *j)
{
    return j->v->g.n_taps * j->c.blocks * PANEL_BYTES;
}

/* group i of 32 numbers, of all images, fetches its part of the next block */
static filter filter_of(const job *j, int64_t block, int64_t i)
{
    const int64_t bytes = filter_bytes(j);
    filter f = { .w = (const char *)j->v->w + block * bytes };
    const int64_t from = i * bytes / PANEL_BYTES * j->lines * CELL;
    if (j->lines > 0 && block + 1 < j->s->block_to && from < bytes) {
        f.ahead = f.w + bytes + from;
        f.end = f.w + 2 * bytes;
        f.lines = j->lines;
    }
    return f;
}

/* bytes of an element of the result */
static int64_t result_bytes(const td_amx_conv *v)
{
    return (int64_t)td_dtype_bytes(v->int8 ? v->int8->y : TD_DT_BF16);
}

/* 32 numbers from `first` on of image i, of a block of 32 channels, and puts the block before */
static TARGET void conv_block(job *j, int64_t i, int64_t first, int64_t block)
{
    const td_amx_conv *v = j->v;
    const td_amx_geometry *g = &v->g;
    const td_amx_strip *s = j->s;
    const int64_t end = smaller(first + TD_AMX_PIXELS, j->n), begun = pixels_among(g, first);
    const int64_t pixel = (g->is_flat ? s->p : ((s->image + i) * g->P + s->p) * g->Q) + begun;
    const int64_t each = result_bytes(v), at = (pixel * g->K + block * WIDTH) * each;
    /* where pixels are read directly, none are read behind the last one */
    const int64_t from = j->is_direct ? smaller(first, j->n - TD_AMX_PIXELS) : first;
    const filter f =
        filter_of(j, block, i * divide_up(j->n, TD_AMX_PIXELS) + first / TD_AMX_PIXELS);
    const char *x = j->pixels + i * j->c.image * CELL + from * j->c.step;
    block_before *b = &j->before;
    (v->int8 ? multiply_int8 : multiply_halves)(&j->c, j->tap, x, &f, b);
    put_before(b);
    set_channels(v, block, &b->k);
    b->n = end - first;
    b->at.col = g->is_flat ? 0 : first % g->row;
    b->at.sums = b->sums + (first - from) * WIDTH;
    b->at.rest = v->rest ? (const char *)v->rest + at : NULL;
    b->at.y = (char *)v->y + at;
}

/* all results of 32 numbers, then the next: for filters that stay in the cache */
static TARGET void conv_by_pixels(job *j)
{
    for (int64_t i = 0; i < j->s->images; i++)
        for (int64_t first = 0; first < j->n; first += TD_AMX_PIXELS)
            for (int64_t block = j->s->block_from; block < j->s->block_to; block++)
                conv_block(j, i, first, block);
}

static TARGET void conv_by_channels(job *j)
{
    for (int64_t block = j->s->block_from; block < j->s->block_to; block++)
        for (int64_t i = 0; i < j->s->images; i++)
            for (int64_t first = 0; first < j->n; first += TD_AMX_PIXELS)
                conv_block(j, i, first, block);
}

static TARGET void run_amx(const td_amx_conv *v, const td_amx_strip *s)
{
    const td_amx_geometry *g = &v->g;
    job j = { .v = v,
              .s = s,
              .c = places_of(g, s),
              .is_direct = is_direct(g, s),
              .n = td_amx_numbers(g, s->rows) };
    _Alignas(64) float sums[ROOM];
    tile_config before;
    j.before.put =
        v->int8 ? put_int8_for(v->int8, v->rest != NULL) : put_for(v->act, v->rest != NULL);
    j.before.sums = sums;
    for (int t = 0; t < g->n_taps; t++)
        j.tap[t] = (g->tap[t].plane * j.c.plane + g->tap[t].row * g->row + g->tap[t].col) * CELL;
    j.pixels = j.is_direct ? (const char *)v->x + s->p * j.c.step : s->cells;
    if (!j.is_direct)
        copy_strip(&j.c, v->x, s);
    use_memory(s->cells);
    use_tiles(&before);
    const int64_t groups = s->images * divide_up(j.n, TD_AMX_PIXELS);
    const int64_t blocks = g->n_taps * j.c.blocks * (s->block_to - s->block_from);
    if (blocks * PANEL_BYTES <= FILTER_BYTES && groups > FEW) {
        conv_by_pixels(&j);
    } else {
        j.lines = groups > FEW ? 0 : divide_up(LINES, groups);
        conv_by_channels(&j);
    }
    store_sums(sums);
    put_before(&j.before);
    restore_tiles(&before);
}

td_amx_loops *td_amx_loops_here(void)
{
    return td_isa_has_tiles() ? run_amx : NULL;
}
#else
td_amx_loops *td_amx_loops_here(void)
{
    return NULL;
}
#endif
