/*
 * wide_values.c -- tensors of more dimensions than a graph's, between a Reshape and another one
 *
 * Windows of an image are made by a Reshape to [N, H/w, w, W/w, w, C], a Transpose, and a Reshape.
 * Dimensions that the Transpose leaves side by side are one in the graph: [N H/w, w, W/w, w C].
 * Where more than TD_RANK_MAX are left, one after the other is moved to where it belongs.
 */
#include <string.h>

#include "onnx_import/importer.h"

struct td_wide {
    td_value *x; /* the elements */
    int rank;
    int64_t dim[TD_WIDE_RANK_MAX]; /* in the order of x's elements */
    int perm[TD_WIDE_RANK_MAX];    /* dimension d is dim[perm[d]] */
    unsigned batch;                /* those of dim that contain the batch, as bits */
};

const td_wide *td_import_wide_of(const td_importer *im, int i)
{
    return i < im->node->n_in ? td_map_get(&im->wide, im->node->in[i]) : NULL;
}

const td_wide *td_import_wide_at(const td_importer *im)
{
    return td_import_wide_of(im, 0);
}

static td_status set_result_at(td_importer *im, int i, const td_wide *w)
{
    td_wide *kept = td_arena_alloc(&im->folder.arena, 1, sizeof *kept);
    if (!kept)
        return TD_ENOMEM;
    *kept = *w;
    return td_map_set(&im->wide, im->node->out[i], kept);
}

static td_status set_result(td_importer *im, const td_wide *w)
{
    return set_result_at(im, 0, w);
}

td_status td_import_wide_same(td_importer *im, const td_wide *w)
{
    return set_result(im, w);
}

td_status td_import_widen(td_importer *im, td_value *x, int rank, const int64_t *dim)
{
    td_wide w = { .x = x, .rank = rank, .batch = td_import_batch_dims(im, rank, dim) };
    const td_type t = td_value_type(x);
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        w.dim[d] = dim[d];
        w.perm[d] = d;
        count = td_mul_capped(count, dim[d]);
    }
    if (!w.batch && count != td_type_count(&t))
        return td_import_wrong(im, "the elements do not make this shape");
    return set_result(im, &w);
}

td_status td_import_wide_transpose(td_importer *im, const td_wide *w)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "perm");
    td_wide to = *w;
    unsigned seen = 0;
    if (a && (a->kind != TD_ONNX_INTS || a->n != w->rank))
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    for (int d = 0; d < w->rank; d++) {
        const int64_t k = a ? a->ints[d] : w->rank - 1 - d;
        if (k < 0 || k >= w->rank || (seen >> k & 1))
            return td_import_wrong(im, "perm is not an order of the dimensions");
        seen |= 1u << k;
        to.perm[d] = w->perm[k];
    }
    return set_result(im, &to);
}

/* dimensions of x that remain side by side */
typedef struct {
    int64_t size;
    int first; /* in the order of x's elements */
    bool has_batch;
} group;

/* the groups in the order of the result; those of size 1 are left out */
static int group_dims(const td_wide *w, group *g)
{
    int n = 0, last = -2;
    for (int d = 0; d < w->rank; d++) {
        const int k = w->perm[d];
        const bool has_batch = w->batch >> k & 1;
        if (w->dim[k] == 1 && !has_batch)
            continue;
        bool is_next = n > 0;
        for (int i = last + 1; i < k && is_next; i++) /* only dimensions of 1 lie between them */
            is_next = w->dim[i] == 1 && !(w->batch >> i & 1);
        if (!is_next || k < last)
            g[n++] = (group){ .size = 1, .first = k };
        g[n - 1].size = td_mul_capped(g[n - 1].size, w->dim[k]);
        g[n - 1].has_batch = g[n - 1].has_batch || has_batch;
        last = k;
    }
    return n;
}

/* each group becomes one dimension */
static void join_groups(td_wide *w)
{
    group g[TD_WIDE_RANK_MAX];
    td_wide to = { .x = w->x, .rank = group_dims(w, g) };
    for (int i = 0; i < to.rank; i++) {
        int place = 0;
        for (int k = 0; k < to.rank; k++)
            place += g[k].first < g[i].first;
        to.perm[i] = place;
        to.dim[place] = g[i].size;
        to.batch |= (unsigned)g[i].has_batch << place;
    }
    *w = to;
}

/* in memory, the dimensions before each of three cuts change places with those before the next:
   0 .. first, middle .. end, first .. middle, end .. */
typedef struct {
    int first, middle, end;
} exchange;

/* dimension `from` goes behind dimension `to` */
static exchange moved_behind(int from, int to)
{
    return from > to ? (exchange){ to + 1, from, from + 1 } : (exchange){ from, from + 1, to + 1 };
}

static td_wide exchanged(const td_wide *w, exchange e)
{
    int at[TD_WIDE_RANK_MAX];
    td_wide to = { .x = w->x, .rank = w->rank };
    for (int d = 0; d < w->rank; d++) {
        at[d] = d < e.first || d >= e.end ? d
                : d < e.middle            ? d + e.end - e.middle
                                          : d - (e.middle - e.first);
        to.dim[at[d]] = w->dim[d];
        to.batch |= (w->batch >> d & 1) << at[d];
    }
    for (int i = 0; i < w->rank; i++)
        to.perm[i] = at[w->perm[i]];
    join_groups(&to);
    return to;
}

/* x with `n` dimensions, those in `batch` with the batch, in another order */
static td_value *reordered(td_importer *im, td_value *x, int n, const int64_t *dim, unsigned batch,
                           const int *perm)
{
    int64_t open[TD_RANK_MAX] = { 0 };
    for (int d = 0; d < n; d++)
        open[d] = batch == 1u << d ? -1 : dim[d];
    x = td_reshape(im->b, x, n, open);
    return n > 1 ? td_transpose(im->b, x, perm) : x;
}

/*
 * Moves one dimension of memory behind the one that it follows in the result, so that both are one:
 * the one that leaves the fewest.
 */
static void bring_together(td_importer *im, td_wide *w)
{
    exchange best = { 0 };
    td_wide to = { .rank = TD_WIDE_RANK_MAX + 1 };
    for (int i = 1; i < w->rank; i++) {
        const exchange e = moved_behind(w->perm[i], w->perm[i - 1]);
        const td_wide next = exchanged(w, e);
        best = next.rank < to.rank ? e : best;
        to = next.rank < to.rank ? next : to;
    }
    int64_t dim[4] = { 1, 1, 1, 1 };
    unsigned batch = 0;
    for (int d = 0; d < w->rank; d++) {
        const int part = (d >= best.first) + (d >= best.middle) + (d >= best.end);
        dim[part] = td_mul_capped(dim[part], w->dim[d]);
        batch |= (w->batch >> d & 1) << part;
    }
    to.x = reordered(im, w->x, 4, dim, batch, (int[]){ 0, 2, 1, 3 });
    *w = to;
}

td_status td_import_narrow(td_importer *im, const td_wide *w, td_value **y)
{
    td_wide v = *w;
    join_groups(&v);
    while (v.rank > TD_RANK_MAX)
        bring_together(im, &v);
    *y = reordered(im, v.x, v.rank, v.dim, v.batch, v.perm);
    return TD_OK;
}

/* --- operators of a few dimensions, which leave the others as they are ------------------------ */

/* w's dimensions in their order, for elements that are in this order in memory */
static td_wide ordered(const td_wide *w)
{
    td_wide to = { .x = w->x, .rank = w->rank };
    for (int d = 0; d < w->rank; d++) {
        to.dim[d] = w->dim[w->perm[d]];
        to.perm[d] = d;
        to.batch |= (w->batch >> w->perm[d] & 1) << d;
    }
    return to;
}

/* w with its elements in memory in the order of its dimensions; out may be w */
static td_status in_order(td_importer *im, const td_wide *w, td_wide *out)
{
    td_wide to = ordered(w);
    bool is_ordered = true;
    for (int d = 0; d < w->rank; d++)
        is_ordered = is_ordered && w->perm[d] == d;
    if (!is_ordered)
        TD_TRY(td_import_narrow(im, w, &to.x));
    *out = to;
    return TD_OK;
}

/* the elements as [.., w's last `n` dimensions]; w is in order */
static td_value *last_dims(td_importer *im, const td_wide *w, int n)
{
    int64_t dim[3] = { -1 };
    for (int d = 0; d < n; d++)
        dim[1 + d] = w->dim[w->rank - n + d];
    return td_reshape(im->b, w->x, 1 + n, dim);
}

/* the same dimensions before the last two */
static bool are_alike(const td_wide *a, const td_wide *b)
{
    bool same = a->rank == b->rank && a->batch == b->batch;
    for (int d = 0; same && d < a->rank - 2; d++)
        same = a->dim[d] == b->dim[d];
    return same && !(a->batch >> (a->rank - 2) & 3);
}

td_status td_import_wide_product(td_importer *im)
{
    const td_wide *const w[2] = { td_import_wide_of(im, 0), td_import_wide_of(im, 1) };
    td_wide in[2];
    if (im->node->n_in != 2 || !w[0] || !w[1])
        return td_import_refuse(im, "a product of more than five dimensions and fewer");
    for (int i = 0; i < 2; i++)
        TD_TRY(in_order(im, w[i], &in[i]));
    if (!are_alike(&in[0], &in[1]))
        return td_import_refuse(im, "a product of more than five dimensions that differ");
    const int last = in[0].rank - 1;
    if (in[0].dim[last] != in[1].dim[last - 1])
        return td_import_wrong(im, "rows and columns of a product differ in length");
    in[0].x =
        td_matmul(im->b, last_dims(im, &in[0], 2), false, last_dims(im, &in[1], 2), false, NULL);
    in[0].dim[last] = in[1].dim[last];
    return set_result(im, &in[0]);
}

td_status td_import_wide_rows(td_importer *im, const td_wide *w, td_value **y)
{
    td_wide in = *w;
    const int last = w->rank - 1;
    if (w->perm[last] != last || (w->batch >> last & 1))
        TD_TRY(in_order(im, w, &in));
    if (in.batch >> last & 1)
        return td_import_refuse(im, "rows of which the batch is a part");
    *y = last_dims(im, &in, 1);
    return TD_OK;
}

td_status td_import_wide_of_rows(td_importer *im, const td_wide *w, td_value *rows, int64_t columns)
{
    const int last = w->rank - 1;
    td_wide to = w->perm[last] != last ? ordered(w) : *w; /* as td_import_wide_rows left the rows */
    to.x = rows;
    to.dim[last] = columns;
    return set_result(im, &to);
}

static bool is_same_order(const td_wide *a, const td_wide *b)
{
    return a->rank == b->rank && a->batch == b->batch &&
           memcmp(a->perm, b->perm, (size_t)a->rank * sizeof *a->perm) == 0;
}

/* an operator over rows of the last dimension that has an axis: is it this one? */
static bool is_last_axis(const td_importer *im)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "axis");
    return strcmp(im->node->op, "Softmax") != 0 || im->m->opset >= 13 ? !a || a->i == -1
                                                                      : a && a->i == -1;
}

/* the operands of the node that are such values, as rows in one order, that of *out */
static td_status rows_of_operands(td_importer *im, td_wide *out, td_value **rows)
{
    td_wide in[2];
    int n = 0;
    bool same = true;
    for (int i = 0; i < im->node->n_in; i++) {
        const td_wide *w = td_import_wide_of(im, i);
        if (!w)
            continue;
        if (i > 1)
            return td_import_refuse(im, "an operand of more than five dimensions");
        in[n++] = *w;
    }
    if (n == 2)
        same = is_same_order(&in[0], &in[1]) && in[0].perm[in[0].rank - 1] == in[0].rank - 1;
    for (int i = 0; i < n && !same; i++)
        TD_TRY(in_order(im, &in[i], &in[i]));
    for (int d = 0; n == 2 && d < in[0].rank; d++)
        if (in[0].rank != in[1].rank || in[0].dim[d] != in[1].dim[d])
            return td_import_refuse(im, "operands of more than five dimensions that differ");
    for (int i = 0; i < n; i++)
        TD_TRY(td_import_wide_rows(im, &in[i], &rows[i]));
    *out = in[0];
    return TD_OK;
}

td_status td_import_wide_each(td_importer *im, td_status (*get)(td_importer *im, td_value **y))
{
    td_wide w;
    td_value *rows[2], *y = NULL;
    if (!is_last_axis(im))
        return td_import_refuse(im, "of more than five dimensions, an axis that is not -1");
    for (int i = 0; i < im->node->n_in; i++) {
        const td_value *v = td_map_get(&im->values, im->node->in[i]);
        const td_tensor *t = td_map_get(&im->tensors, im->node->in[i]);
        if ((v && td_value_type(v).rank > 1) || (t && t->rank > 1 && t->n_bytes > 8))
            return td_import_refuse(im, "operands of more than five dimensions and of fewer");
    }
    TD_TRY(rows_of_operands(im, &w, rows));
    for (int i = 0, n = 0; i < im->node->n_in && i < 2; i++)
        if (td_import_wide_of(im, i))
            TD_TRY(td_map_set(&im->values, im->node->in[i], rows[n++]));
    const td_status st = get(im, &y);
    for (int i = 0; i < im->node->n_in && i < 2; i++)
        if (td_import_wide_of(im, i))
            TD_TRY(td_map_set(&im->values, im->node->in[i], NULL));
    if (st != TD_OK || !td_build_ok(im->b))
        return st != TD_OK ? st : TD_EFORMAT; /* the builder has set the message */
    const td_type t = td_value_type(y), x = td_value_type(rows[0]);
    if (t.rank != 2 || t.dim[0] != x.dim[0] || t.dim[1] != x.dim[1])
        return td_import_refuse(im, "operands of more than five dimensions and of fewer");
    return td_import_wide_of_rows(im, &w, y, t.dim[1]);
}

int td_import_wide_rank(const td_wide *w)
{
    return w->rank;
}

/* w's dimension d from `start` on, `size` elements, each `step` behind the one before */
static td_wide part_of(td_importer *im, const td_wide *w, int d, int64_t start, int64_t size,
                       int64_t step)
{
    const int k = w->perm[d];
    int64_t dim[3] = { 1, w->dim[k], 1 };
    unsigned batch = 0;
    td_wide to = *w;
    if (size == w->dim[k])
        return to;
    for (int i = 0; i < w->rank; i++) {
        const int side = i < k ? 0 : i == k ? 1 : 2;
        dim[side] *= i == k ? 1 : w->dim[i];
        batch |= (w->batch >> i & 1) << side;
    }
    for (int i = 0; i < 3; i++)
        dim[i] = batch == 1u << i ? -1 : dim[i];
    const td_slice_attr a = { 1, start, size, step };
    to.x = td_emit(im->b, &td_op_slice, &a, td_reshape(im->b, w->x, 3, dim));
    to.dim[k] = size;
    return to;
}

/* w without the dimensions of 1 in `axes`, as bits: a value of the graph if few are left */
static td_status without(td_importer *im, const td_wide *w, unsigned axes, td_value **y)
{
    td_wide to = { .x = w->x };
    int place[TD_WIDE_RANK_MAX];
    int64_t dim[TD_WIDE_RANK_MAX];
    unsigned gone = 0;
    for (int d = 0; d < w->rank; d++)
        gone |= (axes >> d & 1) << w->perm[d];
    for (int k = 0; k < w->rank; k++) {
        place[k] = to.rank;
        if (gone >> k & 1)
            continue;
        to.batch |= (w->batch >> k & 1) << to.rank;
        to.dim[to.rank++] = w->dim[k];
    }
    for (int d = 0, n = 0; d < w->rank; d++)
        if (!(axes >> d & 1)) {
            to.perm[n] = place[w->perm[d]];
            dim[n++] = w->dim[w->perm[d]];
        }
    if (to.rank > TD_RANK_MAX)
        return set_result(im, &to);
    TD_TRY(td_import_narrow(im, &to, y));
    *y = td_import_reshaped(im, *y, to.rank, dim);
    return TD_OK;
}

td_status td_import_wide_squeeze(td_importer *im, const td_wide *w, int n, int64_t *axes,
                                 td_value **y)
{
    unsigned bits = 0;
    for (int i = 0; i < n; i++) {
        axes[i] += axes[i] < 0 ? w->rank : 0;
        if (axes[i] < 0 || axes[i] >= w->rank || (bits >> axes[i] & 1))
            return td_import_wrong(im, "an axis is out of range, or named twice");
        if (w->dim[w->perm[axes[i]]] != 1)
            return td_import_wrong(im, "a dimension that is not 1");
        bits |= 1u << axes[i];
    }
    return without(im, w, bits, y);
}

td_status td_import_wide_pick(td_importer *im, const td_wide *w, int64_t axis, int64_t at,
                              td_value **y)
{
    const int64_t size = w->dim[w->perm[axis]];
    at += at < 0 ? size : 0;
    if (at < 0 || at >= size)
        return td_import_wrong(im, "an index is out of range");
    if (w->batch >> w->perm[axis] & 1)
        return td_import_refuse(im, "one image of the batch");
    const td_wide one = part_of(im, w, (int)axis, at, 1, 1);
    return td_build_ok(im->b) ? without(im, &one, 1u << axis, y) : TD_OK;
}

const td_wide *td_import_wide_part(td_importer *im, const td_wide *w, int64_t axis, int64_t start,
                                   int64_t size, int64_t step)
{
    td_wide *kept = td_arena_alloc(&im->folder.arena, 1, sizeof *kept);
    if (kept)
        *kept = part_of(im, w, (int)axis, start, size, step);
    return kept;
}

td_status td_import_wide_split(td_importer *im, const td_wide *w, int64_t axis, const int64_t *size)
{
    int64_t start = 0;
    for (int i = 0; i < im->node->n_out && td_build_ok(im->b); i++) {
        const td_wide one = part_of(im, w, (int)axis, start, size[i], 1);
        TD_TRY(set_result_at(im, i, &one));
        start += size[i];
    }
    return TD_OK;
}

int64_t td_import_wide_dim(const td_wide *w, int d)
{
    return d < w->rank ? w->dim[w->perm[d]] : 0;
}

int64_t td_import_wide_count(const td_wide *w)
{
    const td_type t = td_value_type(w->x);
    return td_type_count(&t);
}

td_status td_import_wide_shape(td_importer *im, const td_wide *w)
{
    int64_t start, end, n = 0;
    int64_t *dim = td_arena_alloc(&im->folder.arena, TD_WIDE_RANK_MAX, sizeof *dim);
    if (!dim)
        return TD_ENOMEM;
    TD_TRY(td_import_attr_int(im, "start", 0, &start));
    TD_TRY(td_import_attr_int(im, "end", w->rank, &end));
    start += start < 0 ? w->rank : 0;
    end += end < 0 ? w->rank : 0;
    for (int64_t d = start < 0 ? 0 : start; d < end && d < w->rank; d++)
        dim[n++] = td_import_wide_dim(w, (int)d);
    const td_tensor t = { .name = im->node->out[0],
                          .dtype = TD_DT_I64,
                          .rank = 1,
                          .dim = { n },
                          .data = dim,
                          .n_bytes = (size_t)n * sizeof *dim };
    return td_onnx_folder_add(&im->folder, im->node, &t);
}
