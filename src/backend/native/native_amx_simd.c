/*
 * native_amx_simd.c -- the inner loops of native_amx.h
 */
#include "backend/native/native_amx.h"

#include <string.h>

#include "backend/native/native_division.h"
#include "base/isa.h"

#if defined(__x86_64__)
#include "backend/native/native_bf16_math.h"
#include "backend/native/native_tile.h"

#undef TARGET
#define TARGET __attribute__((target(TILES)))

enum {
    CELL = TD_AMX_CHANNELS,
    ROOM = TD_AMX_PIXELS * TD_AMX_CHANNELS,
    FILTER_BYTES = 640 * 1024, /* of a filter that stays in the L2 cache */
    FEW = 8,    /* groups of 32 pixels that wait for the filter rather than for pixels */
    LINES = 32, /* of the cache in 32 x 32 channels of a filter */
};

/* where the cells of a strip are */
typedef struct {
    const td_amx_geometry *g;
    int64_t plane, image, depth; /* cells from one plane, image, 32 channels to the next */
    int64_t blocks;              /* of 32 channels that are read */
    int64_t step;                /* elements from one pixel to the next */
} places;

/* Are the pixels read where they are? */
static bool is_direct(const td_amx_geometry *g, const td_amx_strip *s)
{
    return g->is_flat && g->C % CELL == 0 && s->rows >= TD_AMX_PIXELS;
}

static places places_of(const td_amx_geometry *g, const td_amx_strip *s)
{
    places c = { .g = g, .plane = td_amx_plane_cells(g, s->rows) };
    c.image = c.plane * g->n_planes;
    c.depth = c.image * s->images;
    c.blocks = divide_up(g->C, TD_AMX_CHANNELS);
    c.step = CELL;
    if (is_direct(g, s)) {
        c.depth = 1;
        c.step = g->C;
    }
    return c;
}

/* n pixels that are `step` elements apart; `to`: the first cell of the first 32 channels */
static TARGET void copy_pixels(const places *c, const uint16_t *x, int64_t n, int64_t step,
                               uint16_t *to)
{
    const int64_t whole = c->g->C / CELL, rest = c->g->C % CELL;
    const __mmask32 some = (__mmask32)((1U << rest) - 1);
    for (int64_t i = 0; i < n; i++, x += step, to += CELL) {
        for (int64_t b = 0; b < whole; b++)
            _mm512_store_si512(to + b * c->depth * CELL, _mm512_loadu_si512(x + b * CELL));
        if (rest)
            _mm512_store_si512(to + whole * c->depth * CELL,
                               _mm512_maskz_loadu_epi16(some, x + whole * CELL));
    }
}

static void zero_cells(const places *c, int64_t n, uint16_t *to)
{
    for (int64_t b = 0; b < c->blocks && n > 0; b++)
        memset(to + b * c->depth * CELL, 0, (size_t)(n * CELL) * sizeof *to);
}

/* a row of one plane, from the row h of x, which may be outside */
static void copy_row(const places *c, const uint16_t *image, int64_t h, int col, uint16_t *to)
{
    const td_amx_geometry *g = c->g;
    if (h < 0 || h >= g->H) {
        zero_cells(c, g->row, to);
        return;
    }
    const int64_t n = smaller(divide_up(g->W - col, g->stride), g->row - g->left);
    zero_cells(c, g->left, to);
    copy_pixels(c, image + (h * g->W + col) * g->C, n, g->stride * g->C, to + g->left * CELL);
    zero_cells(c, g->row - g->left - n, to + (g->left + n) * CELL);
}

/* the rows of one image that s->rows rows of the result read */
static void copy_image(const places *c, const uint16_t *image, const td_amx_strip *s, uint16_t *to)
{
    const td_amx_geometry *g = c->g;
    for (int k = 0; k < g->n_planes; k++) {
        uint16_t *plane = to + k * c->plane * CELL;
        const int64_t n = s->rows + g->tall;
        for (int64_t i = 0; i < n; i++)
            copy_row(c, image, (s->p + i - g->top) * g->stride + g->plane[k].row, g->plane[k].col,
                     plane + i * g->row * CELL);
        zero_cells(c, c->plane - n * g->row, plane + n * g->row * CELL);
    }
}

static void copy_strip(const places *c, const uint16_t *x, const td_amx_strip *s)
{
    const td_amx_geometry *g = c->g;
    if (g->is_flat)
        copy_pixels(c, x + s->p * g->C, s->rows, g->C, s->cells);
    for (int64_t i = 0; i < s->images && !g->is_flat; i++)
        copy_image(c, x + (s->image + i) * g->H * g->W * g->C, s, s->cells + i * c->image * CELL);
}

/* --- products --------------------------------------------------------------------------------- */

/* a filter's block of 32 results; what is fetched while it is multiplied */
typedef struct {
    const uint16_t *w, *ahead; /* ahead: the next block or a part of it; NULL: nothing */
    int64_t lines;             /* of the cache, for every 32 channels */
} filter;

INLINE void fetch_ahead(const filter *f, int64_t i)
{
    for (int64_t k = 0; k < f->lines; k++)
        _mm_prefetch((const char *)(f->ahead + (i * f->lines + k) * CELL), _MM_HINT_T1);
}

/* sums of 32 numbers from cell `at` on, of 32 channels; tiles 0 to 3 are sums, 4 and 5 pixels, 6
   and 7 filters */
static TARGET NOINLINE void multiply(const places *c, const int64_t *tap, const uint16_t *at,
                                     const filter *f, float *sums)
{
    enum { OUT = CELL * (int)sizeof(float), PANEL = 2 * TILE_ROW_BYTES };
    const int64_t row = c->step * (int64_t)sizeof *at, next = TILE_ROWS * c->step;
    const uint16_t *w = f->w;
    int64_t i = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int t = 0; t < c->g->n_taps; t++) {
        const uint16_t *x = at + tap[t];
        for (int64_t b = 0; b < c->blocks; b++, x += c->depth * CELL, w += CELL * CELL) {
            fetch_ahead(f, i++);
            _tile_loadd(4, x, row);
            _tile_loadd(6, w, PANEL);
            _tile_loadd(7, w + CELL, PANEL);
            _tile_loadd(5, x + next, row);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, OUT);
    _tile_stored(1, sums + TILE_ROWS, OUT);
    _tile_stored(2, sums + ROOM / 2, OUT);
    _tile_stored(3, sums + ROOM / 2 + TILE_ROWS, OUT);
}

/* --- results ---------------------------------------------------------------------------------- */

/* 32 channels of the result */
typedef struct {
    __m512 low, high; /* bias */
    __mmask32 which;
    int64_t first, step; /* elements: of the first channel, from one pixel to the next */
    int64_t row, Q;      /* of the geometry */
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

/* those of 32 numbers that are pixels; col: of the first one */
INLINE TARGET void put_pixels(const channels *k, td_block_act act, bool has_rest, int64_t n,
                              int64_t col, const float *sums, const uint16_t *rest, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++, sums += CELL) {
        if (col < k->Q) {
            __m512 low = _mm512_add_ps(_mm512_load_ps(sums), k->low);
            __m512 high = _mm512_add_ps(_mm512_load_ps(sums + LANES), k->high);
            if (has_rest) {
                const __m512i r = _mm512_maskz_loadu_epi16(k->which, rest);
                low = _mm512_add_ps(low, widened(_mm512_castsi512_si256(r)));
                high = _mm512_add_ps(high, widened(_mm512_extracti64x4_epi64(r, 1)));
                rest += k->step;
            }
            const __m512bh both = _mm512_cvtne2ps_pbh(apply(act, high), apply(act, low));
            if (k->which == UINT32_MAX) /* a line that is written whole need not be read */
                _mm512_storeu_si512(y, (__m512i)both);
            else
                _mm512_mask_storeu_epi16(y, k->which, (__m512i)both);
            y += k->step;
        }
        if (++col == k->row)
            col = 0;
    }
}

#define PUT(name, act, has_rest)                                                                   \
    static TARGET void name(const channels *k, int64_t n, int64_t col, const float *sums,          \
                            const uint16_t *rest, uint16_t *y)                                     \
    {                                                                                              \
        put_pixels(k, act, has_rest, n, col, sums, rest, y);                                       \
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

typedef void put_loop(const channels *k, int64_t n, int64_t col, const float *sums,
                      const uint16_t *rest, uint16_t *y);

static put_loop *put_for(td_block_act act, bool has_rest)
{
    static put_loop *const all[][2] = { [TD_BLOCK_LINEAR] = { put_linear, add_linear },
                                        [TD_BLOCK_RELU] = { put_relu, add_relu },
                                        [TD_BLOCK_RELU6] = { put_relu6, add_relu6 },
                                        [TD_BLOCK_SILU] = { put_silu, add_silu },
                                        [TD_BLOCK_HARDSWISH] = { put_hardswish, add_hardswish } };
    return all[act][has_rest];
}

static TARGET channels channels_of(const td_amx_conv *v, int64_t block)
{
    const int64_t k = block * CELL, n = smaller(v->g.K - k, CELL);
    channels c = { .which = (__mmask32)((UINT64_C(1) << n) - 1),
                   .first = k,
                   .step = v->g.K,
                   .row = v->g.row,
                   .Q = v->g.Q };
    c.low = c.high = _mm512_setzero_ps();
    if (v->bias) {
        c.low = _mm512_maskz_loadu_ps((__mmask16)c.which, v->bias + k);
        c.high = _mm512_maskz_loadu_ps((__mmask16)(c.which >> LANES), v->bias + k + LANES);
    }
    return c;
}

/* how many of the first n numbers are pixels of the result */
static int64_t pixels_among(const td_amx_geometry *g, int64_t n)
{
    return g->is_flat ? n : n / g->row * g->Q + smaller(n % g->row, g->Q);
}

/* Lines that are far apart come late unless they are asked for before the products. */
static void fetch_lines(const uint16_t *y, const uint16_t *rest, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        __builtin_prefetch(y + i * step, 1);
    for (int64_t i = 0; i < n && rest; i++)
        __builtin_prefetch(rest + i * step, 0);
}

/* a strip while it is computed */
typedef struct {
    const td_amx_conv *v;
    const td_amx_strip *s;
    places c;
    bool is_direct;
    const uint16_t *pixels;       /* cells, or x */
    int64_t tap[TD_AMX_TAPS_MAX]; /* elements */
    int64_t n;                    /* numbers of an image */
    int64_t lines;                /* of the next block of the filter that are fetched */
} job;

static int64_t panel_of(const job *j)
{
    return j->v->g.n_taps * j->c.blocks * CELL * CELL;
}

/* group i of all 32 numbers fetches its part of the next block */
static filter filter_of(const job *j, int64_t block, int64_t i)
{
    filter f = { .w = j->v->w + block * panel_of(j) };
    const int64_t each = j->v->g.n_taps * j->c.blocks * j->lines;
    if (j->lines > 0 && block + 1 < j->s->to && (i + 1) * each * CELL <= panel_of(j)) {
        f.ahead = f.w + panel_of(j) + i * each * CELL;
        f.lines = j->lines;
    }
    return f;
}

/* 32 numbers from `first` on of image i, of a block of 32 channels */
static TARGET void conv_block(const job *j, int64_t i, int64_t first, int64_t block)
{
    const td_amx_conv *v = j->v;
    const td_amx_geometry *g = &v->g;
    const td_amx_strip *s = j->s;
    const channels k = channels_of(v, block);
    const int64_t end = smaller(first + TD_AMX_PIXELS, j->n), begun = pixels_among(g, first);
    const int64_t pixel = (g->is_flat ? s->p : ((s->image + i) * g->P + s->p) * g->Q) + begun;
    const int64_t at = pixel * g->K + k.first;
    /* where pixels are read directly, none are read behind the last one */
    const int64_t from = j->is_direct ? smaller(first, j->n - TD_AMX_PIXELS) : first;
    const int64_t group = (i * j->n + first) / TD_AMX_PIXELS;
    const filter f = filter_of(j, block, group);
    const uint16_t *rest = v->rest ? v->rest + at : NULL;
    _Alignas(64) float sums[ROOM];
    fetch_lines(v->y + at, rest, pixels_among(g, end) - begun, g->K);
    use_memory(sums);
    multiply(&j->c, j->tap, j->pixels + (i * j->c.image + from) * j->c.step, &f, sums);
    use_memory(sums);
    put_for(v->act, rest != NULL)(&k, end - first, g->is_flat ? 0 : first % g->row,
                                  sums + (first - from) * CELL, rest, v->y + at);
}

/* all results of 32 numbers, then the next: for filters that stay in the cache */
static TARGET void conv_by_pixels(const job *j)
{
    for (int64_t i = 0; i < j->s->images; i++)
        for (int64_t first = 0; first < j->n; first += TD_AMX_PIXELS)
            for (int64_t block = j->s->from; block < j->s->to; block++)
                conv_block(j, i, first, block);
}

static TARGET void conv_by_channels(const job *j)
{
    for (int64_t block = j->s->from; block < j->s->to; block++)
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
    tile_config before;
    for (int t = 0; t < g->n_taps; t++)
        j.tap[t] = (g->tap[t].plane * j.c.plane + g->tap[t].row * g->row + g->tap[t].col) * CELL;
    j.pixels = j.is_direct ? v->x + s->p * g->C : s->cells;
    if (!j.is_direct)
        copy_strip(&j.c, v->x, s);
    use_memory(s->cells);
    use_tiles(&before);
    const int64_t groups = s->images * divide_up(j.n, TD_AMX_PIXELS);
    const int64_t blocks = g->n_taps * j.c.blocks * (s->to - s->from);
    if (blocks * CELL * CELL * (int64_t)sizeof *v->w <= FILTER_BYTES && groups > FEW) {
        conv_by_pixels(&j);
    } else {
        j.lines = groups > FEW ? 0 : divide_up(LINES, groups);
        conv_by_channels(&j);
    }
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
