/*
 * ref_shape.c -- ops that move elements and compute nothing
 *
 * All but resize_nearest_grad and gather_grad copy bytes and work for every dtype.
 */
#include <string.h>

#include "backend/ref/ref.h"
#include "base/half.h"

static size_t bytes_of(const td_type *t)
{
    return (size_t)td_type_count(t) * td_dtype_bytes(t->dtype);
}

/* --- along an axis: [outer, axis, inner] ------------------------------------------------------ */

typedef struct {
    int64_t outer;
    size_t row_bytes; /* of axis and inner together */
} axis_rows;

static axis_rows rows_at(const td_type *t, int axis)
{
    axis_rows r = { 1, td_dtype_bytes(t->dtype) };
    for (int d = 0; d < axis; d++)
        r.outer *= t->dim[d];
    for (int d = axis; d < t->rank; d++)
        r.row_bytes *= (size_t)t->dim[d];
    return r;
}

static td_status concat(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const int axis = ((const td_concat_attr *)n->attr)->axis;
    const axis_rows y = rows_at(&n->out[0]->type, axis);
    char *to = args[n->n_in];
    for (int i = 0; i < n->n_in; i++) {
        const axis_rows x = rows_at(td_in_type(n, i), axis);
        for (int64_t o = 0; o < x.outer; o++)
            memcpy(to + (size_t)o * y.row_bytes, (char *)args[i] + (size_t)o * x.row_bytes,
                   x.row_bytes);
        to += x.row_bytes;
    }
    return TD_OK;
}

/* a slice: `size` pieces of `piece` bytes in each row of the whole tensor, `step` bytes apart */
typedef struct {
    int64_t outer, size;
    size_t row_bytes, before, step, piece;
} sliced;

static sliced slice_of(const td_slice_attr *a, const td_type *x)
{
    const axis_rows r = rows_at(x, a->axis);
    const size_t inner = r.row_bytes / (size_t)x->dim[a->axis];
    if (a->step == 1)
        return (sliced){ r.outer,     1,
                         r.row_bytes, inner * (size_t)a->start,
                         0,           inner * (size_t)a->size };
    return (sliced){
        r.outer, a->size, r.row_bytes, inner * (size_t)a->start, inner * (size_t)a->step, inner
    };
}

static td_status slice(const td_prepared *p, void *const *args)
{
    const sliced v = slice_of(p->node->attr, td_in_type(p->node, 0));
    const char *from = args[0];
    char *to = args[1];
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.size; i++, to += v.piece)
            memcpy(to, from + (size_t)o * v.row_bytes + v.before + (size_t)i * v.step, v.piece);
    return TD_OK;
}

static td_status slice_grad(const td_prepared *p, void *const *args)
{
    const td_type *x = &p->node->out[0]->type;
    const sliced v = slice_of(p->node->attr, x);
    const char *from = args[0];
    char *to = args[2];
    memset(to, 0, bytes_of(x));
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.size; i++, from += v.piece)
            memcpy(to + (size_t)o * v.row_bytes + v.before + (size_t)i * v.step, from, v.piece);
    return TD_OK;
}

/* --- rows by index ---------------------------------------------------------------------------- */

static td_status gather(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    const td_gather_shape v = td_gather_shape_of(p->node, x);
    const size_t row = (size_t)v.inner * td_dtype_bytes(x->dtype);
    const int64_t *index = args[1];
    const char *from = args[0];
    char *to = args[2];
    for (int64_t o = 0; o < v.outer; o++, from += (size_t)v.rows * row)
        for (int64_t i = 0; i < v.n; i++, to += row)
            if (index[i] >= 0 && index[i] < v.rows)
                memcpy(to, from + (size_t)index[i] * row, row);
            else
                memset(to, 0, row);
    return TD_OK;
}

static void gather_grad(const td_node *n, void *const *a)
{
    const td_type *x = td_in_type(n, 2);
    const td_gather_shape v = td_gather_shape_of(n, x);
    const double *dy = a[0];
    const int64_t *index = a[1];
    double *dx = a[3];
    memset(dx, 0, (size_t)td_type_count(x) * sizeof *dx);
    for (int64_t o = 0; o < v.outer; o++, dx += v.rows * v.inner)
        for (int64_t i = 0; i < v.n; i++, dy += v.inner)
            for (int64_t c = 0; c < v.inner && index[i] >= 0 && index[i] < v.rows; c++)
                dx[index[i] * v.inner + c] += dy[c];
}

/* --- whole tensors ---------------------------------------------------------------------------- */

static td_status reshape(const td_prepared *p, void *const *args)
{
    if (args[0] != args[1])
        memmove(args[1], args[0], bytes_of(td_in_type(p->node, 0)));
    return TD_OK;
}

/* writes `value` `times` times; returns the address after */
static char *repeat(td_dtype d, double value, int64_t times, char *to)
{
    const size_t each = td_dtype_bytes(d);
    for (int64_t i = 0; i < times; i++, to += each)
        td_ref_store(d, &value, 1, to);
    return to;
}

static td_status constant(const td_prepared *p, void *const *args)
{
    const td_type *t = &p->node->out[0]->type;
    const td_constant_attr *a = p->node->attr;
    td_values_cursor c = td_constant_values(p->node);
    char *to = args[0];
    if (!a->values)
        repeat(t->dtype, a->value, td_type_count(t), to);
    while (td_constant_next(&c))
        to = repeat(t->dtype, c.value, c.times, to);
    return TD_OK;
}

/* reorder has a result, assign an operand that it overwrites */
static td_status accepts_reorder(const td_node *n)
{
    td_blocking bl;
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_type_blocking(td_ref_type(n, i), &bl))
            return td_error(TD_ENOKERNEL, "layout %s does not fit", td_ref_type(n, i)->layout);
    return TD_OK;
}

/* the index of element `i` in plain order */
static void index_of(const td_type *t, int64_t i, int64_t *at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
}

/* copies `from` to `to` index by index, rounded to the dtype of `to` */
static void copy_elements(const td_type *from, const char *src, const td_type *to, char *dst)
{
    const size_t from_bytes = td_dtype_bytes(from->dtype), to_bytes = td_dtype_bytes(to->dtype);
    td_blocking bfrom, bto;
    TD_CHECK(td_type_blocking(from, &bfrom) && td_type_blocking(to, &bto));
    if (td_type_bytes(to) != (int64_t)bytes_of(to))
        memset(dst, 0, (size_t)td_type_bytes(to)); /* the padding */
#pragma omp parallel for
    for (int64_t i = 0; i < td_type_count(to); i++) {
        int64_t at[TD_RANK_MAX];
        double v;
        index_of(to, i, at);
        const char *x = src + (size_t)td_blocking_offset(&bfrom, from, at) * from_bytes;
        char *y = dst + (size_t)td_blocking_offset(&bto, to, at) * to_bytes;
        if (from->dtype == to->dtype) {
            memcpy(y, x, to_bytes);
            continue;
        }
        td_ref_load(from->dtype, x, 1, &v);
        td_ref_store(to->dtype, &v, 1, y);
    }
}

static td_status reorder(const td_prepared *p, void *const *args)
{
    copy_elements(td_in_type(p->node, 0), args[0], &p->node->out[0]->type, args[1]);
    return TD_OK;
}

static td_status assign(const td_prepared *p, void *const *args)
{
    copy_elements(td_in_type(p->node, 1), args[1], td_in_type(p->node, 0), args[0]);
    return TD_OK;
}

static void cast(const td_node *n, int64_t count, double *const *a)
{
    (void)n; /* loading and storing convert; i64 above 2^53 becomes the nearest double first */
    memcpy(a[1], a[0], (size_t)count * sizeof(double));
}

static void round_tf32(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = (double)td_f32_round_tf32((float)a[0][i]);
}

/* y[i] = x[perm of i] */
static td_status transpose(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0), *y = &p->node->out[0]->type;
    const size_t each = td_dtype_bytes(x->dtype);
    int perm[TD_RANK_MAX];
    int64_t step[TD_RANK_MAX];
    TD_CHECK(td_transpose_perm(p->node, perm));
    for (int64_t k = x->rank - 1, s = 1; k >= 0; s *= x->dim[k--])
        step[k] = s;
#pragma omp parallel for
    for (int64_t i = 0; i < td_type_count(y); i++) {
        int64_t at[TD_RANK_MAX], from = 0;
        index_of(y, i, at);
        for (int d = 0; d < y->rank; d++)
            from += at[d] * step[perm[d]];
        memcpy((char *)args[1] + (size_t)i * each, (char *)args[0] + (size_t)from * each, each);
    }
    return TD_OK;
}

/* --- nearest-neighbour resize ----------------------------------------------------------------- */

typedef struct {
    int64_t planes, H, W, P, Q;
} resize_shape;

static resize_shape resize_of(const td_type *x, const td_type *y)
{
    return (resize_shape){ x->dim[0] * x->dim[1], x->dim[2], x->dim[3], y->dim[2], y->dim[3] };
}

static int64_t source_of(const resize_shape *v, int64_t plane, int64_t p, int64_t q)
{
    return (plane * v->H + p * v->H / v->P) * v->W + q * v->W / v->Q;
}

static td_status resize_nearest(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    const resize_shape v = resize_of(x, &p->node->out[0]->type);
    const size_t each = td_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < v.planes * v.P * v.Q; i++) {
        const int64_t from = source_of(&v, i / (v.P * v.Q), i / v.Q % v.P, i % v.Q);
        memcpy((char *)args[1] + (size_t)i * each, (char *)args[0] + (size_t)from * each, each);
    }
    return TD_OK;
}

static void resize_nearest_grad(const td_node *n, void *const *a)
{
    const resize_shape v = resize_of(td_in_type(n, 1), td_in_type(n, 0));
    const double *dy = a[0];
    double *dx = a[2];
    memset(dx, 0, (size_t)td_type_count(td_in_type(n, 1)) * sizeof *dx);
    for (int64_t i = 0; i < v.planes * v.P * v.Q; i++)
        dx[source_of(&v, i / (v.P * v.Q), i / v.Q % v.P, i % v.Q)] += dy[i];
}

/* infer has checked that it is the same memory */
static td_status accepts_view(const td_node *n)
{
    (void)n;
    return TD_OK;
}

#define MOVES(op_, run_)                                                                           \
    const td_ref_kernel td_ref_##op_ = TD_REF_KERNEL(op_, td_ref_check_plain, NULL, run_, )

MOVES(concat, concat);
MOVES(slice, slice);
MOVES(slice_grad, slice_grad);
MOVES(gather, gather);
MOVES(reshape, reshape);
MOVES(transpose, transpose);
MOVES(constant, constant);
MOVES(resize_nearest, resize_nearest);
const td_ref_kernel td_ref_transpose_view =
    TD_REF_KERNEL(transpose_view, accepts_view, NULL, reshape, );
const td_ref_kernel td_ref_reorder = TD_REF_KERNEL(reorder, accepts_reorder, NULL, reorder, );
const td_ref_kernel td_ref_assign = TD_REF_KERNEL(assign, accepts_reorder, NULL, assign, );
const td_ref_kernel td_ref_cast = TD_REF_EACH(cast, cast);
const td_ref_kernel td_ref_round_tf32 = TD_REF_EACH(round_tf32, round_tf32);
const td_ref_kernel td_ref_resize_nearest_grad = TD_REF(resize_nearest_grad, resize_nearest_grad);
const td_ref_kernel td_ref_gather_grad = TD_REF(gather_grad, gather_grad);
