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

const td_wide *td_import_wide_at(const td_importer *im)
{
    return im->node->n_in ? td_map_get(&im->wide, im->node->in[0]) : NULL;
}

static td_status set_result(td_importer *im, const td_wide *w)
{
    td_wide *kept = td_arena_alloc(&im->folder.arena, 1, sizeof *kept);
    if (!kept)
        return TD_ENOMEM;
    *kept = *w;
    return td_map_set(&im->wide, im->node->out[0], kept);
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
        g[n - 1].size *= w->dim[k];
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
        dim[part] *= w->dim[d];
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
