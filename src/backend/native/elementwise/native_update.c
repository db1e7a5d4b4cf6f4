/*
 * native_update.c -- the optimizer's step: one pass over memory, including the weight's half copies
 *
 * A copy in the weight's layout is written in the same pass (native_sgd, native_rmsprop, ...).
 * Convolutions in half prefer other layouts, converted tile by tile (native_sgd_copies,
 * native_rmsprop_copies, ...; native_tiles.c).  The optimisers differ in their scalars and in one
 * additional tensor.  Lamb needs two passes: norms of the whole weight come first, summed in pieces
 * whose size does not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/elementwise/native_tiles.h"
#include "backend/native/simd/native_simd.h"
#include "base/arena.h"
#include "tandem/program.h"

/* operands; SQUARE not in sgd, REST1 and REST2 in adam and lamb; then inverse, finite, copies */
enum { W, V, G, LR, SQUARE, REST1, REST2 };

static int copy_of(const td_node *n)
{
    return td_op_first_copy(n->op);
}

static bool is_tensor(const td_node *n, int i)
{
    return i < LR || (i == SQUARE && n->op != &td_op_sgd);
}

/* w, v, g and square have one type; lr, inverse and finite are scalars, lr may be [2] */
static td_status check_operands(const td_node *n)
{
    const td_type *w = td_in_type(n, W);
    for (int i = 0; i < n->n_in && i < copy_of(n); i++) {
        const td_type *t = td_in_type(n, i);
        if (is_tensor(n, i) && (!td_type_equal(t, w) || w->dtype != TD_DT_F32))
            return td_error(TD_ENOKERNEL, "operand %d is not f32 like operand 0", i);
        const int64_t count = i == LR && td_update_has_momentum(n) ? 2 : 1;
        if (!is_tensor(n, i) && (t->dtype != TD_DT_F32 || td_type_count(t) != count))
            return td_error(TD_ENOKERNEL, "operand %d is not one f32", i);
    }
    return TD_OK;
}

static td_status check_half(const td_type *copy)
{
    return td_dtype_is_half(copy->dtype)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "the copy is %s", td_dtype_name(copy->dtype));
}

static td_native_step numbers_of(const td_node *n)
{
    if (n->op == &td_op_rmsprop) {
        const td_rmsprop_attr *at = n->attr;
        return (td_native_step){
            .momentum = at->momentum, .decay = at->decay, .alpha = at->alpha, .eps = at->eps
        };
    }
    if (n->op == &td_op_adam || n->op == &td_op_lamb) {
        const td_adam_attr *at = n->attr;
        return (td_native_step){ .momentum = at->beta1,
                                 .alpha = at->beta2,
                                 .eps = at->eps,
                                 .decay = at->decay,
                                 .decoupled = at->decoupled };
    }
    const td_sgd_attr *at = n->attr;
    return (
        td_native_step){ .momentum = at->momentum, .decay = at->decay, .nesterov = at->nesterov };
}

/* a step's operands except copies */
typedef struct {
    const td_op *op;
    td_native_step a;
    float *w, *v, *square; /* square NULL: sgd */
    const float *g;
    const td_native_simd *wide, *half; /* half: for the copies' dtype */
} update;

/* reads this step's scalars; false: finite is 0, so nothing is written */
static bool begin(const td_node *n, void *const *args, update *out)
{
    const int inverse = copy_of(n) - 2, finite = copy_of(n) - 1;
    const bool has_copy = n->n_in > copy_of(n);
    *out = (update){ .op = n->op,
                     .a = numbers_of(n),
                     .w = args[W],
                     .v = args[V],
                     .g = args[G],
                     .square = n->op != &td_op_sgd ? args[SQUARE] : NULL,
                     .wide = td_native_simd_for(TD_DT_F32, 16) };
    out->half = has_copy ? td_native_simd_for(td_in_type(n, copy_of(n))->dtype, 16) : out->wide;
    out->a.lr = *(const float *)args[LR];
    if (td_update_has_momentum(n))
        out->a.momentum = ((const float *)args[LR])[1];
    out->a.inverse = n->n_in > inverse ? *(const float *)args[inverse] : 1;
    if (n->op == &td_op_adam || n->op == &td_op_lamb) {
        out->a.rest1 = *(const float *)args[REST1];
        out->a.root2 = sqrtf(*(const float *)args[REST2]);
    }
    return n->n_in <= finite || *(const float *)args[finite] != 0;
}

/* updates elements [i, i + n), which fit into the L1 cache; `copy` may be NULL */
static void piece(const update *u, int64_t i, int64_t n, uint16_t *copy)
{
    if (!u->square) {
        u->half->sgd(n, &u->a, u->w + i, u->v + i, u->g + i, copy);
        return;
    }
    if (u->op == &td_op_rmsprop)
        u->wide->rmsprop(n, &u->a, u->w + i, u->v + i, u->g + i, u->square + i);
    else if (u->op == &td_op_adam)
        u->wide->adam(n, &u->a, u->w + i, u->v + i, u->g + i, u->square + i);
    else
        u->wide->lamb_apply(n, &u->a, u->w + i, u->v + i, u->square + i);
    if (copy)
        u->half->narrow(n, u->w + i, copy, false);
}

/* --- lamb's first pass ------------------------------------------------------------------------ */

static td_native_pieces divide_sums(const td_node *n)
{
    return td_native_divide_tensor(td_in_type(n, W), 1);
}

/* two sums for each piece */
static size_t sums_bytes(const td_node *n)
{
    return n->op == &td_op_lamb ? (size_t)divide_sums(n).n * 2 * sizeof(double) : 0;
}

/* new m and v, and the ratio of the norms */
static void measure(const td_node *n, update *u, double *sums)
{
    const td_native_pieces d = divide_sums(n);
    double weights = 0, directions = 0;
#pragma omp parallel for if (d.n > 1)
    for (int64_t p = 0; p < d.n; p++) {
        const int64_t i = p * d.each;
        u->wide->lamb_moments(td_native_piece_at(&d, i), &u->a, u->w + i, u->v + i, u->g + i,
                              u->square + i, sums + 2 * p);
    }
    for (int64_t p = 0; p < d.n; p++) {
        weights += sums[2 * p];
        directions += sums[2 * p + 1];
    }
    const bool is_scaled = u->a.decay > 0 && weights > 0 && directions > 0;
    u->a.ratio = is_scaled ? (float)sqrt(weights / directions) : 1;
}

/* --- no copy, or one in the weight's layout --------------------------------------------------- */

static td_status accepts_plain(const td_node *n)
{
    TD_TRY(check_operands(n));
    if (n->n_in <= copy_of(n))
        return TD_OK;
    if (n->n_in > copy_of(n) + 1)
        return td_error(TD_ENOKERNEL, "there are two copies");
    TD_TRY(check_half(td_in_type(n, copy_of(n))));
    if (strcmp(td_in_type(n, copy_of(n))->layout, td_in_type(n, W)->layout) != 0)
        return td_error(TD_ENOKERNEL, "the copy has another layout than the weight");
    return TD_OK;
}

static td_native_pieces divide_plain(const td_node *n, int threads)
{
    return td_native_divide_tensor(td_in_type(n, W), threads);
}

static td_work_share share_plain(const td_node *n, int threads)
{
    const td_native_pieces d = divide_plain(n, threads);
    return td_native_pieces_share(&d, threads);
}

static td_status prepare_plain(const td_node *n, td_prepared *out)
{
    out->scratch_bytes = sums_bytes(n);
    return TD_OK;
}

static td_status run_plain(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    update u;
    if (!begin(n, args, &u))
        return TD_OK;
    if (n->op == &td_op_lamb)
        measure(n, &u, args[n->n_in]);
    uint16_t *copy = n->n_in > copy_of(n) ? args[copy_of(n)] : NULL;
    const td_native_pieces d = divide_plain(n, td_threads());
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        piece(&u, i, td_native_piece_at(&d, i), copy ? copy + i : NULL);
    return TD_OK;
}

TD_NATIVE_KERNEL(sgd, accepts_plain, NULL, run_plain, share_plain);
TD_NATIVE_KERNEL(rmsprop, accepts_plain, NULL, run_plain, share_plain);
TD_NATIVE_KERNEL(adam, accepts_plain, NULL, run_plain, share_plain);
TD_NATIVE_KERNEL(lamb, accepts_plain, prepare_plain, run_plain, share_plain);

/* --- copies in other layouts ------------------------------------------------------------------ */

#define COPIES_MAX 2

typedef struct {
    int n_copies;
    td_native_tiles to[COPIES_MAX];
} copies_state;

static td_status accepts_copies(const td_node *n)
{
    const int first = copy_of(n);
    if (n->n_in <= first)
        return td_error(TD_ENOKERNEL, "there is no copy");
    TD_TRY(check_operands(n));
    for (int i = first; i < n->n_in; i++) {
        TD_TRY(check_half(td_in_type(n, i)));
        TD_TRY(td_native_tiles_check(td_in_type(n, W), td_in_type(n, i)));
        if (td_in_type(n, i)->dtype != td_in_type(n, first)->dtype)
            return td_error(TD_ENOKERNEL, "the copies have different types");
    }
    return TD_OK;
}

static void release(td_prepared *p)
{
    copies_state *s = p->state;
    for (int c = 0; s && c < COPIES_MAX; c++)
        td_native_tiles_release(&s->to[c]);
    td_free(s);
    p->state = NULL;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    copies_state *s = TD_NEW(copies_state);
    td_status st = s ? TD_OK : TD_ENOMEM;
    out->state = s;
    out->scratch_bytes = sums_bytes(n);
    if (s)
        s->n_copies = n->n_in - copy_of(n);
    for (int c = 0; st == TD_OK && c < s->n_copies; c++)
        st = td_native_tiles_make(td_in_type(n, W), td_in_type(n, copy_of(n) + c), &s->to[c]);
    if (st != TD_OK)
        release(out);
    return st;
}

static td_work_share share_copies(const td_node *n, int threads)
{
    const td_type *w = td_in_type(n, W);
    const td_native_pieces d = td_native_tiles_divide(td_native_tile_of(w), w, threads);
    return td_native_pieces_share(&d, threads);
}

static td_status run_copies(const td_prepared *p, void *const *args)
{
    const copies_state *s = p->state;
    void *const *copies = args + copy_of(p->node);
    update u;
    if (!begin(p->node, args, &u))
        return TD_OK;
    if (u.op == &td_op_lamb)
        measure(p->node, &u, args[p->node->n_in]);
    const int64_t tile = s->to[0].tile;
    const td_native_pieces d = td_native_tiles_divide(tile, td_in_type(p->node, W), td_threads());
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each) {
        _Alignas(64) uint16_t half[TD_NATIVE_PIECE];
        const int64_t n = td_native_piece_at(&d, i);
        piece(&u, i, n, half);
        for (int c = 0; c < s->n_copies; c++)
            td_native_tiles_put(&s->to[c], i / tile, n / tile, half, copies[c]);
    }
    return TD_OK;
}

#define COPIES(op_)                                                                                \
    const td_kernel td_native_##op_##_copies = { .name = "native_" #op_ "_copies",                 \
                                                 .op = &td_op_##op_,                               \
                                                 .accepts = accepts_copies,                        \
                                                 .prepare = prepare,                               \
                                                 .run = run_copies,                                \
                                                 .release = release,                               \
                                                 .share = share_copies }

COPIES(sgd);
COPIES(rmsprop);
COPIES(adam);
COPIES(lamb);
