/*
 * wide_values.c -- tensors of more dimensions than a graph's, between a Reshape and another one
 *
 * Windows of an image are made by a Reshape to [N, H/w, w, W/w, w, C], a Transpose, and a Reshape.
 * Dimensions that the Transpose leaves side by side are one in the graph: [N H/w, w, W/w, w C].
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

td_status td_import_narrow(td_importer *im, const td_wide *w, td_value **y)
{
    group g[TD_WIDE_RANK_MAX];
    int64_t dim[TD_RANK_MAX] = { 0 };
    int perm[TD_RANK_MAX] = { 0 }, n_batch = 0;
    const int n = group_dims(w, g);
    if (n > TD_RANK_MAX)
        return td_import_refuse(im, "more than five dimensions that are exchanged");
    for (int i = 0; i < n; i++)
        n_batch += g[i].has_batch;
    for (int i = 0; i < n; i++) {
        int place = 0;
        for (int k = 0; k < n; k++)
            place += g[k].first < g[i].first;
        perm[i] = place;
        dim[place] = g[i].has_batch && n_batch == 1 ? -1 : g[i].size;
    }
    *y = td_reshape(im->b, w->x, n, dim);
    if (n > 1)
        *y = td_transpose(im->b, *y, perm);
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
