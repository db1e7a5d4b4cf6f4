/*
 * own_update.c -- the optimiser's step: one stream over memory, half copies of the weight included
 *
 * A copy that lies as the weight does is written on the way (own_sgd).  Convolutions in half want
 * their filters otherwise, forward and backward in different layouts (own_sgd_copies).  All these
 * layouts cut a filter into the same tiles (16 x 16 channels) and differ in the order of tiles and
 * the order inside, which is the same in every tile:
 *
 *     weight tile k, element e   ->   copy[place[k] + order[e]]
 */
#include <string.h>

#include "backend/own/own.h"
#include "base/arena.h"

enum { W, V, G, LR, INVERSE, FINITE, COPY }; /* operands, from INVERSE on as far as given */

#define TILE_MAX 4096

/* w, v and g alike; lr, inverse and finite one number each */
static td_status check_operands(const td_node *n)
{
    const td_type *w = td_in_type(n, W);
    for (int i = 0; i < LR; i++)
        if (!td_type_equal(td_in_type(n, i), w) || w->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "operand %d is not f32 like operand 0", i);
    for (int i = LR; i < n->n_in && i < COPY; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32 || td_type_count(td_in_type(n, i)) != 1)
            return td_error(TD_ENOKERNEL, "operand %d is not one f32", i);
    return TD_OK;
}

static td_status check_half(const td_type *copy)
{
    return td_dtype_is_half(copy->dtype)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "the copy is %s", td_dtype_name(copy->dtype));
}

/* this step's numbers; false: nothing is to be written */
static bool step_of(const td_node *n, void *const *args, td_own_step *out)
{
    const td_sgd_attr *at = n->attr;
    *out = (td_own_step){ at->momentum, at->decay, *(const float *)args[LR],
                          n->n_in > INVERSE ? *(const float *)args[INVERSE] : 1, at->nesterov };
    return n->n_in <= FINITE || *(const float *)args[FINITE] != 0;
}

/* --- no copy, or one that lies as the weight does --------------------------------------------- */

static td_status accepts_sgd(const td_node *n)
{
    TD_TRY(check_operands(n));
    if (n->n_in <= COPY)
        return TD_OK;
    if (n->n_in > COPY + 1)
        return td_error(TD_ENOKERNEL, "there are two copies");
    TD_TRY(check_half(td_in_type(n, COPY)));
    if (strcmp(td_in_type(n, COPY)->layout, td_in_type(n, W)->layout) != 0)
        return td_error(TD_ENOKERNEL, "the copy does not lie as the weight does");
    return TD_OK;
}

static td_status run_sgd(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    td_own_step a;
    if (!step_of(n, args, &a))
        return TD_OK;
    float *w = args[W], *v = args[V];
    const float *g = args[G];
    uint16_t *copy = n->n_in > COPY ? args[COPY] : NULL;
    const int64_t count = td_type_padded_count(td_in_type(n, W));
    const td_own_simd *simd = td_own_simd_for(td_in_type(n, copy ? COPY : W)->dtype, 16);
#pragma omp parallel for if (count > TD_OWN_PIECE)
    for (int64_t i = 0; i < count; i += TD_OWN_PIECE)
        simd->sgd(td_own_piece(i, count), &a, w + i, v + i, g + i, copy ? copy + i : NULL);
    return TD_OK;
}

const td_kernel td_own_sgd = {
    .name = "own_sgd", .op = &td_op_sgd, .accepts = accepts_sgd, .run = run_sgd
};

/* --- copies in other layouts: may they be laid over the weight? ------------------------------- */

typedef struct {
    int tile; /* elements */
    int64_t n_tiles;
    int n_copies;
    int32_t *place[2];  /* [n_tiles] in elements */
    uint16_t *order[2]; /* [tile] */
} copies_state;

/* elements of a tile: the product of the inner blocks; the box of indices they cover in `box` */
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

static td_status accepts_copy(const td_type *w, const td_blocking *bw, const td_type *copy)
{
    int64_t box[TD_RANK_MAX + 1], other[TD_RANK_MAX + 1];
    td_blocking bc;
    TD_TRY(check_half(copy));
    if (!td_type_blocking(copy, &bc) || bc.rank != bw->rank ||
        memcmp(bc.dim, bw->dim, (size_t)bc.rank * sizeof bc.dim[0]) != 0 || has_padding(&bc))
        return td_error(TD_ENOKERNEL, "the copy cannot be laid over the weight");
    if (!tile_of(bw, box) || !tile_of(&bc, other) || memcmp(box, other, sizeof box) != 0)
        return td_error(TD_ENOKERNEL, "the tiles of '%s' and '%s' differ", w->layout, copy->layout);
    return TD_OK;
}

static td_status accepts_copies(const td_node *n)
{
    const td_type *w = td_in_type(n, W);
    td_blocking bw;
    if (n->n_in <= COPY)
        return td_error(TD_ENOKERNEL, "there is no copy");
    TD_TRY(check_operands(n));
    if (td_type_count(w) > INT32_MAX || !td_type_blocking(w, &bw) || has_padding(&bw))
        return td_error(TD_ENOKERNEL, "layout '%s' has padding", w->layout);
    for (int i = COPY; i < n->n_in; i++) {
        TD_TRY(accepts_copy(w, &bw, td_in_type(n, i)));
        if (td_in_type(n, i)->dtype != td_in_type(n, COPY)->dtype)
            return td_error(TD_ENOKERNEL, "the copies are of two types");
    }
    return TD_OK;
}

/* --- where tiles and elements go -------------------------------------------------------------- */

/* the type as its blocking sees it: with the group split off */
static td_type split_type(const td_blocking *b)
{
    td_type t = { .dtype = TD_DT_F32, .rank = b->rank };
    memcpy(t.dim, b->dim,
           (size_t)(b->rank < TD_RANK_MAX ? b->rank : TD_RANK_MAX) * sizeof t.dim[0]);
    return t;
}

/* visit every element of the weight in the order of its memory and note where it is in the copy */
static void fill_tables(const copies_state *s, const td_blocking *bw, const td_blocking *bc, int c)
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
        s->place[c][k] = (int32_t)td_blocking_offset(bc, &t, at);
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
        s->order[c][e] = (uint16_t)td_blocking_offset(bc, &t, at);
    }
}

static void free_state(copies_state *s)
{
    for (int c = 0; s && c < 2; c++) {
        td_free(s->place[c]);
        td_free(s->order[c]);
    }
    td_free(s);
}

static void release(td_prepared *p)
{
    free_state(p->state);
    p->state = NULL;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    td_blocking bw, bc;
    int64_t box[TD_RANK_MAX + 1];
    copies_state *s = TD_NEW(copies_state);
    if (!s)
        return TD_ENOMEM;
    TD_CHECK(td_type_blocking(td_in_type(n, W), &bw));
    s->tile = tile_of(&bw, box);
    s->n_tiles = td_type_count(td_in_type(n, W)) / s->tile;
    s->n_copies = n->n_in - COPY;
    for (int c = 0; c < s->n_copies; c++) {
        TD_CHECK(td_type_blocking(td_in_type(n, COPY + c), &bc));
        s->place[c] = td_alloc((size_t)s->n_tiles, sizeof *s->place[c]);
        s->order[c] = td_alloc((size_t)s->tile, sizeof *s->order[c]);
        if (!s->place[c] || !s->order[c]) {
            free_state(s);
            return TD_ENOMEM;
        }
        fill_tables(s, &bw, &bc, c);
    }
    out->state = s;
    return TD_OK;
}

/* --- run -------------------------------------------------------------------------------------- */

static void write_copies(const copies_state *s, int64_t k, const uint16_t *half, void *const *args)
{
    for (int c = 0; c < s->n_copies; c++) {
        uint16_t *to = (uint16_t *)args[COPY + c] + s->place[c][k];
        const uint16_t *order = s->order[c];
        for (int e = 0; e < s->tile; e++)
            to[order[e]] = half[e];
    }
}

static td_status run_copies(const td_prepared *p, void *const *args)
{
    const copies_state *s = p->state;
    td_own_step a;
    if (!step_of(p->node, args, &a))
        return TD_OK;
    float *w = args[W], *v = args[V];
    const float *g = args[G];
    const td_own_simd *simd = td_own_simd_for(td_in_type(p->node, COPY)->dtype, 16);
    const int64_t group = TD_OWN_PIECE / s->tile; /* tiles of one job */
#pragma omp parallel for if (s->n_tiles > group)
    for (int64_t k = 0; k < s->n_tiles; k += group) {
        _Alignas(64) uint16_t half[TD_OWN_PIECE];
        const int64_t m = s->n_tiles - k < group ? s->n_tiles - k : group, i = k * s->tile;
        simd->sgd(m * s->tile, &a, w + i, v + i, g + i, half);
        for (int64_t j = 0; j < m; j++)
            write_copies(s, k + j, half + j * s->tile, args);
    }
    return TD_OK;
}

const td_kernel td_own_sgd_copies = { .name = "own_sgd_copies",
                                      .op = &td_op_sgd,
                                      .accepts = accepts_copies,
                                      .prepare = prepare,
                                      .run = run_copies,
                                      .release = release };
