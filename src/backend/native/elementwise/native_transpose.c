/*
 * native_transpose.c -- transpositions to plain tensors, by rows or by tiles
 *
 * The operand may have its dimensions in another order in memory, as images with channels last.
 * Dimensions that stay neighbors are one dimension.  Then either the last one is contiguous in x as
 * well, and rows are copied, or tiles of 16 x 16 elements are turned, which are contiguous in x
 * along `across` and in y along the last dimension:
 *
 *     x   across ->                y   last ->
 *         a b c d  ...  16             a e i ...  16
 *         e f g h                      b f j
 *         i j k l                      c g k
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

#define TILE 16
#define ROWS 64 /* rows of a piece of work */

/* elements from one index of a dimension of `x` to the next; false: it has blocks */
static bool steps_of(const td_type *x, int64_t step[TD_RANK_MAX])
{
    td_blocking bl;
    int64_t s = 1;
    if (!td_type_blocking(x, &bl) || bl.n_blocks || bl.rank != x->rank)
        return false;
    for (int d = bl.rank - 1; d >= 0; s *= x->dim[bl.order[d--]])
        step[bl.order[d]] = s;
    return true;
}

typedef struct {
    int rank, across; /* across: the dimension that is contiguous in x */
    int64_t size[TD_RANK_MAX], from[TD_RANK_MAX], to[TD_RANK_MAX]; /* steps in x and y, elements */
    int64_t outer; /* places that the other dimensions have */
} moves;

static moves moves_of(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    moves m = { .outer = 1 };
    int perm[TD_RANK_MAX];
    int64_t step[TD_RANK_MAX];
    TD_CHECK(td_transpose_perm(n, perm) && steps_of(x, step));
    for (int d = 0; d < x->rank; d++) {
        const int64_t size = x->dim[perm[d]], from = step[perm[d]];
        if (size == 1)
            continue;
        if (m.rank && m.from[m.rank - 1] == from * size)
            m.rank--;
        else
            m.size[m.rank] = 1;
        m.size[m.rank] *= size;
        m.from[m.rank++] = from;
    }
    for (int d = m.rank - 1, k = 1; d >= 0; d--, k = 0)
        m.to[d] = k ? 1 : m.to[d + 1] * m.size[d + 1];
    for (int d = 0; d < m.rank; d++)
        if (m.from[d] == 1)
            m.across = d;
    for (int d = 0; d + 1 < m.rank; d++)
        m.outer *= d == m.across ? 1 : m.size[d];
    return m;
}

/* offsets of place i of the dimensions other than the last and `across` */
static void place(const moves *m, int64_t i, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    for (int d = m->rank - 2; d >= 0; d--) {
        if (d == m->across)
            continue;
        *from += i % m->size[d] * m->from[d];
        *to += i % m->size[d] * m->to[d];
        i /= m->size[d];
    }
}

/* y[a to + l] = x[a + l from] for a < n_across, l < n_last */
#define TURN(bits)                                                                                 \
    static void turn_##bits(const uint##bits##_t *x, uint##bits##_t *y, int64_t n_across,          \
                            int64_t n_last, int64_t from, int64_t to)                              \
    {                                                                                              \
        for (int64_t l = 0; l < n_last; l += TILE) {                                               \
            const int64_t width = n_last - l < TILE ? n_last - l : TILE;                           \
            for (int64_t a = 0; a < n_across; a++)                                                 \
                for (int64_t i = 0; i < width; i++)                                                \
                    y[a * to + l + i] = x[a + (l + i) * from];                                     \
        }                                                                                          \
    }
TURN(8)
TURN(16)
TURN(32)
TURN(64)

static void turn(const moves *m, size_t each, const char *x, char *y, int64_t n_across)
{
    const int last = m->rank - 1;
    const int64_t n = m->size[last], from = m->from[last], to = m->to[m->across];
    if (each == 8)
        turn_64((const uint64_t *)(const void *)x, (uint64_t *)(void *)y, n_across, n, from, to);
    else if (each == 4)
        turn_32((const uint32_t *)(const void *)x, (uint32_t *)(void *)y, n_across, n, from, to);
    else if (each == 2)
        turn_16((const uint16_t *)(const void *)x, (uint16_t *)(void *)y, n_across, n, from, to);
    else
        turn_8((const uint8_t *)x, (uint8_t *)y, n_across, n, from, to);
}

static void copy_all(int64_t bytes, const char *x, char *y)
{
    const int64_t piece = TD_NATIVE_PIECE;
#pragma omp parallel for if (bytes > piece)
    for (int64_t i = 0; i < bytes; i += piece)
        memcpy(y + i, x + i, (size_t)(bytes - i < piece ? bytes - i : piece));
}

/* up to ROWS rows at even distances at a time */
static void copy_rows(const moves *m, size_t each, const char *x, char *y)
{
    const int d = m->rank - 2;
    const size_t row = (m->rank ? (size_t)m->size[m->rank - 1] : 1) * each;
    if (m->outer == 1) {
        copy_all((int64_t)row, x, y);
        return;
    }
    const size_t from_step = (size_t)m->from[d] * each, to_step = (size_t)m->to[d] * each;
#pragma omp parallel for collapse(2) if (m->outer * (int64_t)row > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < m->outer; i += m->size[d])
        for (int64_t k = 0; k < m->size[d]; k += ROWS) {
            const int64_t n = smaller(m->size[d] - k, ROWS);
            int64_t from, to;
            place(m, i + k, &from, &to);
            for (int64_t r = 0; r < n; r++)
                memcpy(y + (size_t)to * each + (size_t)r * to_step,
                       x + (size_t)from * each + (size_t)r * from_step, row);
        }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const moves m = moves_of(p->node);
    const size_t each = td_dtype_bytes(td_in_type(p->node, 0)->dtype);
    const char *x = args[0];
    char *y = args[1];
    if (m.rank == 0 || m.across == m.rank - 1) {
        copy_rows(&m, each, x, y);
        return TD_OK;
    }
    const int64_t parts = (m.size[m.across] + TILE - 1) / TILE;
#pragma omp parallel for if (m.outer * parts > 1)
    for (int64_t i = 0; i < m.outer * parts; i++) {
        int64_t from, to;
        const int64_t a = i % parts * TILE, rest = m.size[m.across] - a;
        place(&m, i / parts, &from, &to);
        turn(&m, each, x + (size_t)(from + a) * each, y + (size_t)(to + a * m.to[m.across]) * each,
             rest < TILE ? rest : TILE);
    }
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    int64_t step[TD_RANK_MAX];
    if (!td_type_is_plain(&n->out[0]->type))
        return td_error(TD_ENOKERNEL, "its result is not in plain order");
    return steps_of(td_in_type(n, 0), step)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "layout '%s'", td_in_type(n, 0)->layout);
}

TD_NATIVE_KERNEL(transpose, accepts, NULL, run, NULL);
