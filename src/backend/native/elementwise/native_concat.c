/*
 * native_concat.c -- concatenation, and slices, in every layout: copies of bytes
 *
 *     concat      y = x0 | x1 | ...     along an axis
 *     slice       y = x[start], x[start + step], ...
 *     slice_grad  dx = 0 | dy | 0       or dy's elements `step` apart
 *
 * In memory a tensor is rows: what is contiguous of all indices of the axis, and the dimensions
 * after it.  The result's bytes are divided among threads without regard to rows, as each part of
 * it is found in one source.  Steps of more than 1 are copied index by index.
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

enum { LINE = 64 };

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct {
    int64_t outer; /* rows */
    int64_t block; /* indices of the axis that are stored together */
    int64_t bytes; /* of so many indices */
} axis_rows;

/* TD_ENOKERNEL: the axis has padding */
static td_status rows_of(const td_type *t, int axis, axis_rows *r)
{
    td_blocking bl;
    if (!td_type_blocking(t, &bl) || bl.rank != t->rank || bl.padded[axis] != t->dim[axis])
        return td_error(TD_ENOKERNEL, "layout '%s' of %lld indices", t->layout,
                        (long long)t->dim[axis]);
    int64_t block[TD_RANK_MAX];
    *r = (axis_rows){ .outer = 1, .bytes = (int64_t)td_dtype_bytes(t->dtype) };
    for (int d = 0; d < bl.rank; d++)
        block[d] = 1;
    for (int i = 0; i < bl.n_blocks; i++) {
        block[bl.block_dim[i]] *= bl.block[i];
        r->bytes *= bl.block[i];
    }
    int at = 0;
    for (; bl.order[at] != axis; at++)
        r->outer *= bl.padded[bl.order[at]] / block[bl.order[at]];
    while (++at < bl.rank)
        r->bytes *= bl.padded[bl.order[at]] / block[bl.order[at]];
    r->block = block[axis];
    return TD_OK;
}

/* bytes of n indices */
static int64_t bytes_of(const axis_rows *r, int64_t n)
{
    return n / r->block * r->bytes;
}

static int axis_of(const td_node *n)
{
    return n->op == &td_op_concat ? ((const td_concat_attr *)n->attr)->axis
                                  : ((const td_slice_attr *)n->attr)->axis;
}

static td_status check_operand(const td_node *n, int i, const char *layout)
{
    const td_type *t = i < n->n_in ? td_in_type(n, i) : &n->out[0]->type;
    axis_rows r;
    if (td_is_shape_only(n, i))
        return TD_OK;
    if (strcmp(t->layout, layout) != 0)
        return td_error(TD_ENOKERNEL, "operands and result have different layouts");
    return rows_of(t, axis_of(n), &r);
}

static td_status accepts(const td_node *n)
{
    for (int i = 0; i <= n->n_in; i++)
        TD_TRY(check_operand(n, i, n->out[0]->type.layout));
    if (n->op == &td_op_concat)
        return TD_OK;
    const td_slice_attr *a = n->attr;
    axis_rows r;
    TD_TRY(rows_of(&n->out[0]->type, a->axis, &r));
    if (r.block > 1 && (a->step > 1 || a->start % r.block || a->size % r.block))
        return td_error(TD_ENOKERNEL, "the slice does not consist of blocks of %lld",
                        (long long)r.block);
    return TD_OK;
}

/* --- contiguous parts ------------------------------------------------------------------------- */

/* a part of each row of the result */
typedef struct {
    int operand;     /* -1: zeros */
    int64_t end;     /* bytes of the result's row */
    int64_t row, at; /* of the operand: bytes of its rows, of the part's first byte */
} part;

typedef struct {
    part parts[TD_IN_MAX];
    int n_parts;
    int64_t outer, row; /* of the result */
    td_native_pieces pieces;
} layout_of_parts;

static void add_part(layout_of_parts *v, int operand, int64_t bytes, int64_t row, int64_t at)
{
    const int64_t from = v->n_parts ? v->parts[v->n_parts - 1].end : 0;
    if (bytes > 0)
        v->parts[v->n_parts++] = (part){ operand, from + bytes, row, at };
}

static layout_of_parts parts_of(const td_node *n, int threads)
{
    const td_slice_attr *a = n->attr;
    const int axis = axis_of(n);
    const td_type *y = &n->out[0]->type;
    layout_of_parts v = { .n_parts = 0 };
    axis_rows r;
    TD_CHECK(rows_of(y, axis, &r) == TD_OK);
    v.outer = r.outer;
    v.row = bytes_of(&r, y->dim[axis]);
    if (n->op == &td_op_concat)
        for (int i = 0; i < n->n_in; i++) {
            const int64_t bytes = bytes_of(&r, td_in_type(n, i)->dim[axis]);
            add_part(&v, i, bytes, bytes, 0);
        }
    else if (n->op == &td_op_slice)
        add_part(&v, 0, v.row, bytes_of(&r, td_in_type(n, 0)->dim[axis]), bytes_of(&r, a->start));
    else {
        const int64_t before = bytes_of(&r, a->start), bytes = bytes_of(&r, a->size);
        add_part(&v, -1, before, 0, 0);
        add_part(&v, 0, bytes, bytes, 0);
        add_part(&v, -1, v.row - before - bytes, 0, 0);
    }
    v.pieces = td_native_divide(v.outer * v.row, LINE, threads);
    return v;
}

/* bytes [from, end) of the result */
static void copy_piece(const layout_of_parts *v, void *const *args, int64_t from, int64_t end,
                       char *y)
{
    int64_t row = from / v->row, at = from % v->row;
    const part *p = v->parts;
    while (p->end <= at)
        p++;
    while (from < end) {
        const int64_t begin = p == v->parts ? 0 : p[-1].end, n = smaller(p->end - at, end - from);
        if (p->operand < 0)
            memset(y + from, 0, (size_t)n);
        else
            memcpy(y + from, (char *)args[p->operand] + row * p->row + p->at + at - begin,
                   (size_t)n);
        from += n;
        at += n;
        if (at == v->row) {
            at = 0;
            row++;
            p = v->parts;
        } else if (at == p->end) {
            p++;
        }
    }
}

static td_status run_parts(const td_node *n, void *const *args)
{
    const layout_of_parts v = parts_of(n, td_threads());
    const td_native_pieces *d = &v.pieces;
#pragma omp parallel for schedule(static) if (d->n > 1)
    for (int64_t i = 0; i < d->n; i++)
        copy_piece(&v, args, i * d->each, i * d->each + td_native_piece_at(d, i * d->each),
                   args[n->n_in]);
    return TD_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

#define COPY_EACH(type)                                                                            \
    for (int64_t i = 0; i < n; i++)                                                                \
    ((type *)to)[i * to_step] = ((const type *)from)[i * from_step]

/* n indices of `bytes` each, of a row; from one to the next: steps of so many */
static void copy_row(int64_t n, int64_t bytes, const void *from, int64_t from_step, void *to,
                     int64_t to_step)
{
    if (bytes == 2)
        COPY_EACH(uint16_t);
    else if (bytes == 4)
        COPY_EACH(uint32_t);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)to + i * to_step * bytes, (const char *)from + i * from_step * bytes,
                   (size_t)bytes);
}

/* slice, or its gradient */
static td_status run_steps(const td_node *n, void *const *args)
{
    const td_slice_attr *a = n->attr;
    const bool is_grad = n->op == &td_op_slice_grad;
    const td_type *wide = is_grad ? &n->out[0]->type : td_in_type(n, 0);
    axis_rows r;
    TD_TRY(rows_of(wide, a->axis, &r));
    const int64_t wide_row = r.bytes * wide->dim[a->axis], row = r.bytes * a->size;
    const char *from = args[0];
    char *to = args[n->n_in];
#pragma omp parallel for schedule(static) if (r.outer * row > TD_NATIVE_PIECE)
    for (int64_t o = 0; o < r.outer; o++)
        if (is_grad) {
            memset(to + o * wide_row, 0, (size_t)wide_row);
            copy_row(a->size, r.bytes, from + o * row, 1, to + o * wide_row + a->start * r.bytes,
                     a->step);
        } else {
            copy_row(a->size, r.bytes, from + o * wide_row + a->start * r.bytes, a->step,
                     to + o * row, 1);
        }
    return TD_OK;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static bool has_steps(const td_node *n)
{
    return n->op != &td_op_concat && ((const td_slice_attr *)n->attr)->step > 1;
}

static td_status run(const td_prepared *p, void *const *args)
{
    return has_steps(p->node) ? run_steps(p->node, args) : run_parts(p->node, args);
}

static td_work_share share(const td_node *n, int threads)
{
    const td_type *y = &n->out[0]->type;
    axis_rows r;
    if (!has_steps(n)) {
        const layout_of_parts v = parts_of(n, threads);
        return td_native_pieces_share(&v.pieces, threads);
    }
    TD_CHECK(rows_of(y, axis_of(n), &r) == TD_OK);
    return td_work_share_of(r.outer, (double)(r.bytes * y->dim[axis_of(n)]), threads);
}

TD_NATIVE_KERNEL(concat, accepts, NULL, run, share);
TD_NATIVE_KERNEL(slice, accepts, NULL, run, share);
TD_NATIVE_KERNEL(slice_grad, accepts, NULL, run, share);
