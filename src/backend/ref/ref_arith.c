/*
 * ref_arith.c -- sums and products with numpy's broadcasting
 *
 * Operands of one shape are processed element by element in any layout; others walk the full shape,
 * in order, with a step of 0 along every dimension that an operand repeats.  Dimensions that all
 * operands walk as if they were one are joined, so that rows are long.
 */
#include <string.h>

#include "backend/ref/ref.h"

/* --- element by element ----------------------------------------------------------------------- */

static void scale(const td_node *n, int64_t count, double *const *a)
{
    const double by = ((const td_scale_attr *)n->attr)->by;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = by * a[0][i];
}

/* --- broadcasting ----------------------------------------------------------------------------- */

#define D TD_RANK_MAX

/* A walk over a full shape of D dimensions, with the offsets of up to three tensors. */
typedef struct {
    int64_t dim[D];
    int64_t step[3][D]; /* elements; 0 where the tensor is repeated */
} walk;

static walk walk_over(const td_type *full)
{
    walk w = { 0 };
    for (int d = 0; d < D; d++)
        w.dim[d] = d < D - full->rank ? 1 : full->dim[d - (D - full->rank)];
    return w;
}

static void walk_add(walk *w, int i, const td_type *t)
{
    int64_t step = 1;
    for (int k = t->rank - 1; k >= 0; k--) {
        w->step[i][k + D - t->rank] = t->dim[k] == 1 ? 0 : step;
        step *= t->dim[k];
    }
}

/* dimension d continues dimension `to` of every tensor */
static bool continues(const walk *w, int d, int to)
{
    for (int i = 0; i < 3; i++)
        if (w->step[i][d] != w->step[i][to] * w->dim[to])
            return false;
    return true;
}

static void walk_move(walk *w, int d, int to)
{
    w->dim[to] = w->dim[d];
    for (int i = 0; i < 3; i++)
        w->step[i][to] = w->step[i][d];
}

/* leaves out dimensions of 1 and joins those that continue one another; the order is the same */
static void walk_join(walk *w)
{
    int to = D - 1;
    for (int d = D - 2; d >= 0; d--) {
        if (w->dim[d] == 1)
            continue;
        if (w->dim[to] == 1)
            walk_move(w, d, to);
        else if (continues(w, d, to))
            w->dim[to] *= w->dim[d];
        else
            walk_move(w, d, --to);
    }
    while (--to >= 0)
        w->dim[to] = 1;
}

/* offset of tensor i at the start of row `row` of the walk (all dimensions but the last) */
static int64_t row_start(const walk *w, int i, int64_t row)
{
    int64_t at = 0;
    for (int d = D - 2; d >= 0; d--) {
        at += row % w->dim[d] * w->step[i][d];
        row /= w->dim[d];
    }
    return at;
}

static int64_t row_count(const walk *w)
{
    return w->dim[0] * w->dim[1] * w->dim[2] * w->dim[3];
}

static walk walk_of_binary(const td_node *n)
{
    walk w = walk_over(&n->out[0]->type);
    walk_add(&w, 0, td_in_type(n, 0));
    walk_add(&w, 1, td_in_type(n, 1));
    walk_join(&w);
    return w;
}

#define BINARY(K, id, tf, zero, text, formula)                                                     \
    static void id##_each(const td_node *n, int64_t count, double *const *a)                       \
    {                                                                                              \
        (void)n;                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const double x = a[0][i], z = a[1][i];                                                 \
            a[2][i] = formula;                                                                     \
        }                                                                                          \
    }                                                                                              \
    static void id##_broadcast(const td_node *n, void *const *a)                                   \
    {                                                                                              \
        const walk w = walk_of_binary(n);                                                          \
        _Pragma("omp parallel for") for (int64_t row = 0; row < row_count(&w); row++)              \
        {                                                                                          \
            const double *from = (double *)a[0] + row_start(&w, 0, row);                           \
            const double *with = (double *)a[1] + row_start(&w, 1, row);                           \
            double *y = (double *)a[2] + row * w.dim[D - 1];                                       \
            for (int64_t j = 0; j < w.dim[D - 1]; j++) {                                           \
                const double x = from[j * w.step[0][D - 1]], z = with[j * w.step[1][D - 1]];       \
                y[j] = formula;                                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    const td_ref_kernel td_ref_##id =                                                              \
        TD_REF_KERNEL(id, ACCEPTS_##zero, NULL, td_ref_run_each, .each = id##_each);               \
    const td_ref_kernel td_ref_##id##_broadcast = TD_REF(id, id##_broadcast);

typedef double real;

#define ACCEPTS_BOTH td_ref_accepts_each
#define ACCEPTS_NONE accepts_unpadded

/* the padding of a layout must stay zero */
static td_status accepts_unpadded(const td_node *n)
{
    const td_type *y = &n->out[0]->type;
    if (td_type_padded_count(y) != td_type_count(y))
        return td_error(TD_ENOKERNEL, "layout %s has padding", y->layout);
    return td_ref_accepts_each(n);
}

TD_BINARY_LIST(BINARY, )

/* the shape of x and y after broadcasting */
static td_type broadcast_type(const td_type *x, const td_type *y)
{
    td_type t = x->rank >= y->rank ? *x : *y;
    const td_type *other = x->rank >= y->rank ? y : x;
    for (int k = 0; k < other->rank; k++) {
        int64_t *dim = &t.dim[k + t.rank - other->rank];
        *dim = *dim > other->dim[k] ? *dim : other->dim[k];
    }
    return t;
}

static void mul_reduce(const td_node *n, void *const *a)
{
    const td_type full = broadcast_type(td_in_type(n, 0), td_in_type(n, 1));
    walk w = walk_over(&full);
    for (int i = 0; i < 3; i++)
        walk_add(&w, i, td_in_type(n, i));
    walk_join(&w);
    memset(a[3], 0, (size_t)td_type_count(&n->out[0]->type) * sizeof(double));
    for (int64_t row = 0; row < row_count(&w); row++) {
        const double *x = (double *)a[0] + row_start(&w, 0, row);
        const double *y = (double *)a[1] + row_start(&w, 1, row);
        double *z = (double *)a[3] + row_start(&w, 2, row);
        for (int64_t j = 0; j < w.dim[D - 1]; j++)
            z[j * w.step[2][D - 1]] += x[j * w.step[0][D - 1]] * y[j * w.step[1][D - 1]];
    }
}

static void sum_to(const td_node *n, void *const *a)
{
    walk w = walk_over(td_in_type(n, 0));
    walk_add(&w, 0, td_in_type(n, 1));
    walk_join(&w);
    memset(a[2], 0, (size_t)td_type_count(&n->out[0]->type) * sizeof(double));
    for (int64_t row = 0; row < row_count(&w); row++) {
        const double *x = (double *)a[0] + row * w.dim[D - 1];
        double *y = (double *)a[2] + row_start(&w, 0, row);
        for (int64_t j = 0; j < w.dim[D - 1]; j++)
            y[j * w.step[0][D - 1]] += x[j];
    }
}

static void repeat(const td_node *n, double by, const double *from, double *to)
{
    walk w = walk_over(&n->out[0]->type);
    walk_add(&w, 0, td_in_type(n, 0));
    walk_join(&w);
#pragma omp parallel for
    for (int64_t row = 0; row < row_count(&w); row++) {
        const double *x = from + row_start(&w, 0, row);
        double *y = to + row * w.dim[D - 1];
        for (int64_t j = 0; j < w.dim[D - 1]; j++)
            y[j] = by * x[j * w.step[0][D - 1]];
    }
}

static void broadcast_like(const td_node *n, void *const *a)
{
    repeat(n, ((const td_scale_attr *)n->attr)->by, a[0], a[2]);
}

static void broadcast_to(const td_node *n, void *const *a)
{
    repeat(n, 1, a[0], a[1]);
}

/* a zero by a negative number is -0 */
static td_status accepts_scale(const td_node *n)
{
    return ((const td_scale_attr *)n->attr)->by < 0 ? accepts_unpadded(n) : td_ref_accepts_each(n);
}

const td_ref_kernel td_ref_scale =
    TD_REF_KERNEL(scale, accepts_scale, NULL, td_ref_run_each, .each = scale);
const td_ref_kernel td_ref_mul_reduce = TD_REF(mul_reduce, mul_reduce);
const td_ref_kernel td_ref_sum_to = TD_REF(sum_to, sum_to);
const td_ref_kernel td_ref_broadcast_like = TD_REF(broadcast_like, broadcast_like);
const td_ref_kernel td_ref_broadcast_to = TD_REF(broadcast_to, broadcast_to);
