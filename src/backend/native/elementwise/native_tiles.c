/*
 * native_tiles.c -- converts between blocked layouts with the same tiles
 *
 * The layouts that convolutions prefer for their filters consist of tiles of, say, 16 x 16 channels
 * and differ in the order of tiles and in the order inside, which is the same in every tile:
 *
 *     tile k, element e   ->   to[place[k] + order[e]]
 *
 * native_reorder moves a half filter from the forward convolution's layout to the backward one's.
 */
#include "backend/native/elementwise/native_tiles.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/simd/native_simd.h"
#include "base/arena.h"
#include "tandem/program.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define TILE_MAX 4096
#define LINE     32 /* halves in a cache line */

/* --- do two layouts have the same tiles? ------------------------------------------------------ */

/* elements in a tile, the product of the inner blocks; `box` gets the tile's size in each
   dimension */
static int tile_of(const td_blocking *b, int64_t box[TD_RANK_MAX + 1])
{
    int64_t n = 1;
    for (int d = 0; d <= TD_RANK_MAX; d++)
        box[d] = 1;
    for (int i = 0; i < b->n_blocks; i++) {
        box[b->block_dim[i]] *= b->block[i];
        n *= b->block[i];
    }
    return n <= TILE_MAX ? (int)n : 0;
}

static bool has_padding(const td_blocking *b)
{
    for (int d = 0; d < b->rank; d++)
        if (b->padded[d] != b->dim[d])
            return true;
    return false;
}

td_status td_native_tiles_check(const td_type *from, const td_type *to)
{
    int64_t box[TD_RANK_MAX + 1], other[TD_RANK_MAX + 1];
    td_blocking bf, bt;
    if (td_type_count(from) > INT32_MAX || !td_type_blocking(from, &bf) || has_padding(&bf))
        return td_error(TD_ENOKERNEL, "layout '%s' has padding", from->layout);
    if (!td_type_blocking(to, &bt) || bt.rank != bf.rank ||
        memcmp(bt.dim, bf.dim, (size_t)bf.rank * sizeof bf.dim[0]) != 0 || has_padding(&bt))
        return td_error(TD_ENOKERNEL, "layout '%s' does not match '%s'", to->layout, from->layout);
    if (!tile_of(&bf, box) || !tile_of(&bt, other) || memcmp(box, other, sizeof box) != 0)
        return td_error(TD_ENOKERNEL, "the tiles of '%s' and '%s' differ", from->layout,
                        to->layout);
    return TD_OK;
}

/* --- positions of tiles and elements ---------------------------------------------------------- */

/* the type as its blocking sees it: with the group split off */
static td_type split_type(const td_blocking *b)
{
    td_type t = { .dtype = TD_DT_F32, .rank = b->rank };
    memcpy(t.dim, b->dim,
           (size_t)(b->rank < TD_RANK_MAX ? b->rank : TD_RANK_MAX) * sizeof t.dim[0]);
    return t;
}

/* for every tile, and every element of a tile, in the memory order of bw: its offset in bc */
static void fill_tables(td_native_tiles *s, const td_blocking *bw, const td_blocking *bc)
{
    const td_type t = split_type(bw);
    int64_t outer[TD_RANK_MAX + 1], at[TD_RANK_MAX + 1], n[TD_RANK_MAX + 1];
    int64_t box[TD_RANK_MAX + 1];
    (void)tile_of(bw, box);
    for (int d = 0; d < bw->rank; d++) {
        n[d] = bw->dim[d] / box[d];
        outer[d] = 0;
    }
    for (int64_t k = 0; k < s->n_tiles; k++) {
        for (int d = 0; d < bw->rank; d++)
            at[d] = outer[d] * box[d];
        s->place[k] = (int32_t)td_blocking_offset(bc, &t, at);
        for (int i = bw->rank - 1; i >= 0 && ++outer[bw->order[i]] == n[bw->order[i]]; i--)
            outer[bw->order[i]] = 0;
    }
    for (int e = 0; e < s->tile; e++) {
        int64_t rest = e, factor[TD_RANK_MAX + 1];
        for (int d = 0; d < bw->rank; d++) {
            at[d] = 0;
            factor[d] = 1;
        }
        for (int i = bw->n_blocks - 1; i >= 0; i--) {
            int d = bw->block_dim[i];
            at[d] += rest % bw->block[i] * factor[d];
            factor[d] *= bw->block[i];
            rest /= bw->block[i];
        }
        s->order[e] = (uint16_t)td_blocking_offset(bc, &t, at);
    }
}

/* --- tiles of 256 halves with AVX-512 --------------------------------------------------------- */

enum { WORDS = 32, REGISTERS = 8, PAIRS = REGISTERS / 2, SHUFFLED = WORDS * REGISTERS };

/*
 * A tile is 8 registers of 32 words.  Each register of the result is assembled from the four pairs
 * of registers in turn: vpermi2w picks words from a pair, and a mask selects which words are
 * written.
 */
struct td_native_shuffle {
    uint16_t index[REGISTERS][PAIRS][WORDS]; /* 0 to 63: word of the pair */
    uint32_t mask[REGISTERS][PAIRS];
};

static bool has_shuffle(void)
{
    return HAVE_X86 && strncmp(td_native_simd_for(TD_DT_BF16, 16)->isa, "avx512", 6) == 0;
}

static td_status make_shuffle(td_native_tiles *t)
{
    struct td_native_shuffle *s = TD_NEW(struct td_native_shuffle);
    if (!s)
        return TD_ENOMEM;
    for (int e = 0; e < SHUFFLED; e++) {
        const int to = t->order[e], r = to / WORDS, word = to % WORDS, pair = e / (2 * WORDS);
        s->index[r][pair][word] = (uint16_t)(e % (2 * WORDS));
        s->mask[r][pair] |= UINT32_C(1) << word;
    }
    t->shuffle = s;
    return TD_OK;
}

#if HAVE_X86
__attribute__((target("avx512f,avx512bw"))) static void
put_shuffled(const struct td_native_shuffle *s, const uint16_t *from, uint16_t *to)
{
    __m512i x[REGISTERS];
    for (int i = 0; i < REGISTERS; i++)
        x[i] = _mm512_loadu_si512(from + i * WORDS);
    for (int r = 0; r < REGISTERS; r++) {
        __m512i y = _mm512_setzero_si512();
        for (int p = 0; p < PAIRS; p++) {
            const __m512i index = _mm512_loadu_si512(s->index[r][p]);
            const __m512i words = _mm512_permutex2var_epi16(x[2 * p], index, x[2 * p + 1]);
            y = _mm512_mask_blend_epi16(s->mask[r][p], y, words);
        }
        _mm512_storeu_si512(to + r * WORDS, y);
    }
}
#else
static void put_shuffled(const struct td_native_shuffle *s, const uint16_t *from, uint16_t *to)
{
    (void)s, (void)from, (void)to;
}
#endif

/* --- conversion ------------------------------------------------------------------------------- */

td_status td_native_tiles_make(const td_type *from, const td_type *to, td_native_tiles *out)
{
    td_blocking bf, bt;
    int64_t box[TD_RANK_MAX + 1];
    TD_CHECK(td_type_blocking(from, &bf) && td_type_blocking(to, &bt));
    *out = (td_native_tiles){ .tile = tile_of(&bf, box) };
    out->n_tiles = td_type_count(from) / out->tile;
    out->place = td_alloc((size_t)out->n_tiles, sizeof *out->place);
    out->order = td_alloc((size_t)out->tile, sizeof *out->order);
    if (!out->place || !out->order) {
        td_native_tiles_release(out);
        return TD_ENOMEM;
    }
    fill_tables(out, &bf, &bt);
    if (out->tile != SHUFFLED || !has_shuffle())
        return TD_OK;
    const td_status st = make_shuffle(out);
    if (st != TD_OK)
        td_native_tiles_release(out);
    return st;
}

int td_native_tile_of(const td_type *t)
{
    td_blocking b;
    int64_t box[TD_RANK_MAX + 1];
    TD_CHECK(td_type_blocking(t, &b));
    return tile_of(&b, box);
}

td_native_pieces td_native_tiles_divide(int64_t tile, const td_type *t, int threads)
{
    const int64_t lines = tile < LINE ? LINE / tile * tile : tile;
    return td_native_divide(td_type_count(t), lines, threads);
}

void td_native_tiles_release(td_native_tiles *t)
{
    td_free(t->place);
    td_free(t->order);
    td_free(t->shuffle);
    *t = (td_native_tiles){ 0 };
}

void td_native_tiles_put(const td_native_tiles *t, int64_t first, int64_t n, const uint16_t *from,
                         uint16_t *to)
{
    const uint16_t *order = t->order;
    for (int64_t k = 0; k < n; k++, from += t->tile) {
        uint16_t *at = to + t->place[first + k];
        if (t->shuffle) {
            put_shuffled(t->shuffle, from, at);
            continue;
        }
        for (int e = 0; e < t->tile; e++)
            at[order[e]] = from[e];
    }
}

/* --- reorder ---------------------------------------------------------------------------------- */

static td_status accepts_reorder(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_blocking b;
    if (!td_dtype_is_half(x->dtype) || x->dtype != y->dtype)
        return td_error(TD_ENOKERNEL, "not from one half type to the same");
    if (!td_type_blocking(x, &b) || b.n_blocks == 0)
        return td_error(TD_ENOKERNEL, "layout '%s' has no tiles", x->layout);
    return td_native_tiles_check(x, y);
}

static td_status prepare_reorder(const td_node *n, td_prepared *out)
{
    td_native_tiles *t = TD_NEW(td_native_tiles);
    td_status st = t ? td_native_tiles_make(td_in_type(n, 0), &n->out[0]->type, t) : TD_ENOMEM;
    out->state = t;
    if (st != TD_OK) {
        td_free(t);
        out->state = NULL;
    }
    return st;
}

static td_status run_reorder(const td_prepared *p, void *const *args)
{
    const td_native_tiles *t = p->state;
    const uint16_t *from = args[0];
    uint16_t *to = args[1];
    const td_native_pieces d =
        td_native_tiles_divide(t->tile, td_in_type(p->node, 0), td_threads());
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        td_native_tiles_put(t, i / t->tile, td_native_piece_at(&d, i) / t->tile, from + i, to);
    return TD_OK;
}

static td_work_share share_reorder(const td_node *n, int threads)
{
    const td_type *x = td_in_type(n, 0);
    const td_native_pieces d = td_native_tiles_divide(td_native_tile_of(x), x, threads);
    return td_native_pieces_share(&d, threads);
}

static void release_reorder(td_prepared *p)
{
    if (p->state)
        td_native_tiles_release(p->state);
    td_free(p->state);
    p->state = NULL;
}

const td_kernel td_native_reorder = { .name = "native_reorder",
                                      .op = &td_op_reorder,
                                      .accepts = accepts_reorder,
                                      .prepare = prepare_reorder,
                                      .run = run_reorder,
                                      .release = release_reorder,
                                      .share = share_reorder };
