/*
 * native_amx_grad_w_simd.c -- the inner loops of native_amx_grad_w.h
 */
#include "backend/native/amx/native_amx_grad_w.h"

#include "backend/native/common/native_division.h"
#include "base/isa.h"

enum { AT_ONCE = 32 /* cells, numbers */ };

static int64_t whole(int64_t n)
{
    return divide_up(n, AT_ONCE) * AT_ONCE;
}

static int64_t plane_of(const td_amx_geometry *g, int64_t rows)
{
    return whole(td_amx_plane_cells(g, rows));
}

/* cells of a channel: an odd number of cache lines, so that channels are in different sets */
static int64_t column_of(const td_amx_geometry *g, int64_t images, int64_t rows)
{
    return (images * g->n_planes * plane_of(g, rows) / AT_ONCE | 1) * AT_ONCE;
}

int64_t td_amx_columns(const td_amx_geometry *g, int64_t images, int64_t rows, int64_t channels)
{
    return channels * column_of(g, images, rows);
}

int64_t td_amx_pairs(const td_amx_geometry *g, int64_t images, int64_t rows, int64_t channels)
{
    return channels * images * whole(td_amx_numbers(g, rows));
}

#if defined(__x86_64__)
#include "backend/native/simd/native_tile.h"
#include "backend/native/simd/native_transpose_16.h"

#define TARGET __attribute__((target(TILES)))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { TILE = TD_AMX_TILE, SUMS = TILE * TILE };

/* a strip while it is computed */
typedef struct {
    const td_amx_geometry *g;
    const td_amx_grad_strip *s;
    const uint16_t *x, *dy;       /* the strip's channels of the first pixel */
    int64_t plane, image, column; /* cells of a plane, an image, a channel */
    int64_t numbers;              /* of an image, in multiples of AT_ONCE */
} job;

/* --- copies ----------------------------------------------------------------------------------- */

/* where the pixels of 32 cells or numbers are; NULL: zeros */
typedef struct {
    const uint16_t *at[AT_ONCE];
} pixels;

/* cells of plane k, image i of the strip */
static void find_cells(const job *j, int64_t i, int k, int64_t cell, pixels *out)
{
    const td_amx_geometry *g = j->g;
    const td_amx_grad_strip *s = j->s;
    for (int64_t n = 0; n < AT_ONCE && g->is_flat; n++)
        out->at[n] = cell + n < s->rows ? j->x + (s->p + cell + n) * g->C : NULL;
    if (g->is_flat)
        return;
    int64_t y = cell / g->row, col = cell % g->row;
    for (int64_t n = 0; n < AT_ONCE; n++) {
        const int64_t h = (s->p + y - g->top) * g->stride + g->plane[k].row;
        const int64_t w = (col - g->left) * g->stride + g->plane[k].col;
        const bool is_inside = h >= 0 && h < g->H && w >= 0 && w < g->W && y < s->rows + g->tall;
        out->at[n] = is_inside ? j->x + (((s->image + i) * g->H + h) * g->W + w) * g->C : NULL;
        if (++col == g->row) {
            col = 0;
            y++;
        }
    }
}

static void find_numbers(const job *j, int64_t i, int64_t number, pixels *out)
{
    const td_amx_geometry *g = j->g;
    const td_amx_grad_strip *s = j->s;
    for (int64_t n = 0; n < AT_ONCE && g->is_flat; n++)
        out->at[n] = number + n < s->rows ? j->dy + (s->p + number + n) * g->K : NULL;
    if (g->is_flat)
        return;
    int64_t p = number / g->row, col = number % g->row;
    for (int64_t n = 0; n < AT_ONCE; n++) {
        const bool is_inside = p < s->rows && col < g->Q;
        out->at[n] =
            is_inside ? j->dy + (((s->image + i) * g->P + s->p + p) * g->Q + col) * g->K : NULL;
        if (++col == g->row) {
            col = 0;
            p++;
        }
    }
}

INLINE __m256i load_16(const uint16_t *p, int64_t channel)
{
    return p ? _mm256_loadu_si256((const __m256i *)(const void *)(p + channel))
             : _mm256_setzero_si256();
}

/* 16 channels of pixels 2 n and 2 n + 1 as pairs */
INLINE __m512i pair_of(const pixels *p, int n, int64_t channel)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(load_16(p->at[2 * n], channel)),
                                            load_16(p->at[2 * n + 1], channel), 1);
    return _mm512_permutexvar_epi16(order, both);
}

/* 32 cells of all channels; `to`: those of the first channel */
static TARGET void put_columns(const job *j, const pixels *p, uint16_t *to)
{
    for (int64_t c = 0; c < j->s->c_to - j->s->c; c += TILE) {
        __m512 row[TILE], column[TILE];
#pragma GCC unroll 16
        for (int n = 0; n < TILE; n++)
            row[n] = _mm512_castsi512_ps(pair_of(p, n, c));
        td_transpose_16(row, column);
#pragma GCC unroll 16
        for (int n = 0; n < TILE; n++)
            _mm512_store_ps(to + (c + n) * j->column, column[n]);
    }
}

static TARGET void put_pairs(const job *j, const pixels *p, uint16_t *to)
{
    const int64_t tile = j->s->images * j->numbers * TILE;
    for (int64_t k = 0; k < j->s->k_to - j->s->k; k += TILE, to += tile)
        for (int n = 0; n < AT_ONCE / 2; n++)
            _mm512_store_si512(to + n * AT_ONCE, pair_of(p, n, k));
}

static void copy_strip(const job *j)
{
    pixels p;
    for (int64_t i = 0; i < j->s->images; i++) {
        for (int k = 0; k < j->g->n_planes; k++)
            for (int64_t cell = 0; cell < j->plane; cell += AT_ONCE) {
                find_cells(j, i, k, cell, &p);
                put_columns(j, &p, j->s->columns + i * j->image + k * j->plane + cell);
            }
        for (int64_t n = 0; n < j->numbers; n += AT_ONCE) {
            find_numbers(j, i, n, &p);
            put_pairs(j, &p, j->s->pairs + (i * j->numbers + n) * TILE);
        }
    }
}

/* --- products --------------------------------------------------------------------------------- */

/* adds to the sums of 32 channels of x by 32 of dy, for one tap: tiles 0 to 3 are sums, 4 and 5
   columns, 6 and 7 pairs; next_c, next_k: floats between sums */
static TARGET NOINLINE void multiply(const job *j, const uint16_t *columns, const uint16_t *pairs,
                                     float *sums, int64_t next_c, int64_t next_k)
{
    const int64_t row = j->column * (int64_t)sizeof *columns, below = TILE * j->column;
    const int64_t beside = j->s->images * j->numbers * TILE;
    if (j->s->is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, TILE_ROW_BYTES);
        _tile_loadd(1, sums + next_k, TILE_ROW_BYTES);
        _tile_loadd(2, sums + next_c, TILE_ROW_BYTES);
        _tile_loadd(3, sums + next_c + next_k, TILE_ROW_BYTES);
    }
    for (int64_t i = 0; i < j->s->images; i++) {
        const uint16_t *a = columns + i * j->image;
        for (int64_t n = 0; n < j->numbers; n += AT_ONCE, pairs += AT_ONCE * TILE) {
            _tile_loadd(4, a + n, row);
            _tile_loadd(6, pairs, TILE_ROW_BYTES);
            _tile_loadd(7, pairs + beside, TILE_ROW_BYTES);
            _tile_loadd(5, a + below + n, row);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, TILE_ROW_BYTES);
    _tile_stored(1, sums + next_k, TILE_ROW_BYTES);
    _tile_stored(2, sums + next_c, TILE_ROW_BYTES);
    _tile_stored(3, sums + next_c + next_k, TILE_ROW_BYTES);
}

static TARGET void multiply_all(const job *j)
{
    const td_amx_geometry *g = j->g;
    const td_amx_grad_strip *s = j->s;
    const int64_t next_c = g->n_taps * SUMS, next_k = g->C / TILE * next_c;
    const int64_t tile = s->images * j->numbers * TILE;
    for (int64_t c = s->c; c < s->c_to; c += AT_ONCE)
        for (int64_t k = s->k; k < s->k_to; k += AT_ONCE)
            for (int t = 0; t < g->n_taps; t++) {
                const td_amx_tap *tap = &g->tap[t];
                const int64_t at = tap->plane * j->plane + tap->row * g->row + tap->col;
                multiply(j, s->columns + (c - s->c) * j->column + at,
                         s->pairs + (k - s->k) / TILE * tile,
                         s->sums + k / TILE * next_k + c / TILE * next_c + t * SUMS, next_c,
                         next_k);
            }
}

static TARGET void run_amx(const td_amx_geometry *g, const uint16_t *x, const uint16_t *dy,
                           const td_amx_grad_strip *s)
{
    const job j = { .g = g,
                    .s = s,
                    .x = x + s->c,
                    .dy = dy + s->k,
                    .plane = plane_of(g, s->rows),
                    .image = plane_of(g, s->rows) * g->n_planes,
                    .column = column_of(g, s->images, s->rows),
                    .numbers = whole(td_amx_numbers(g, s->rows)) };
    tile_config before;
    copy_strip(&j);
    use_memory(s->columns);
    use_tiles(&before);
    multiply_all(&j);
    restore_tiles(&before);
    use_memory(s->sums);
}

td_amx_grad_loops *td_amx_grad_loops_here(void)
{
    return td_isa_has_tiles() ? run_amx : NULL;
}
#else
td_amx_grad_loops *td_amx_grad_loops_here(void)
{
    return NULL;
}
#endif
