/*
 * own_update.c -- the optimiser's step: one stream over memory, half copies of the weight included
 *
 * A copy that lies as the weight does is written on the way (own_sgd).  Convolutions in half want
 * their filters in other layouts, tile by tile (own_sgd_copies, own_tiles.c).
 */
#include <string.h>

#include "backend/own/own.h"
#include "base/arena.h"

enum { W, V, G, LR, INVERSE, FINITE, COPY }; /* operands, from INVERSE on as far as given */

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
    *out = (td_own_step){ .momentum = at->momentum,
                          .decay = at->decay,
                          .lr = *(const float *)args[LR],
                          .inverse = n->n_in > INVERSE ? *(const float *)args[INVERSE] : 1,
                          .nesterov = at->nesterov };
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

/* --- copies in other layouts ------------------------------------------------------------------ */

#define COPIES_MAX 2

typedef struct {
    int n_copies;
    td_own_tiles to[COPIES_MAX];
} copies_state;

static td_status accepts_copies(const td_node *n)
{
    if (n->n_in <= COPY)
        return td_error(TD_ENOKERNEL, "there is no copy");
    TD_TRY(check_operands(n));
    for (int i = COPY; i < n->n_in; i++) {
        TD_TRY(check_half(td_in_type(n, i)));
        TD_TRY(td_own_tiles_check(td_in_type(n, W), td_in_type(n, i)));
        if (td_in_type(n, i)->dtype != td_in_type(n, COPY)->dtype)
            return td_error(TD_ENOKERNEL, "the copies are of two types");
    }
    return TD_OK;
}

static void release(td_prepared *p)
{
    copies_state *s = p->state;
    for (int c = 0; s && c < COPIES_MAX; c++)
        td_own_tiles_release(&s->to[c]);
    td_free(s);
    p->state = NULL;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    copies_state *s = TD_NEW(copies_state);
    td_status st = s ? TD_OK : TD_ENOMEM;
    out->state = s;
    if (s)
        s->n_copies = n->n_in - COPY;
    for (int c = 0; st == TD_OK && c < s->n_copies; c++)
        st = td_own_tiles_make(td_in_type(n, W), td_in_type(n, COPY + c), &s->to[c]);
    if (st != TD_OK)
        release(out);
    return st;
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
    const int64_t tile = s->to[0].tile, n_tiles = s->to[0].n_tiles;
    const int64_t group = TD_OWN_PIECE / tile; /* tiles of one job */
#pragma omp parallel for if (n_tiles > group)
    for (int64_t k = 0; k < n_tiles; k += group) {
        _Alignas(64) uint16_t half[TD_OWN_PIECE];
        const int64_t m = n_tiles - k < group ? n_tiles - k : group, i = k * tile;
        simd->sgd(m * tile, &a, w + i, v + i, g + i, half);
        for (int c = 0; c < s->n_copies; c++)
            td_own_tiles_put(&s->to[c], k, m, half, args[COPY + c]);
    }
    return TD_OK;
}

const td_kernel td_own_sgd_copies = { .name = "own_sgd_copies",
                                      .op = &td_op_sgd,
                                      .accepts = accepts_copies,
                                      .prepare = prepare,
                                      .run = run_copies,
                                      .release = release };
