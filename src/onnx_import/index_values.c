/*
 * index_values.c -- see index_values.h
 *
 * PyTorch's newer exporter writes as_strided as a Gather whose indices are sums of a Range over the
 * batch and of constants, repeated along each other's dimensions.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include "onnx_import/index_values.h"

#include <string.h>

#define RANK_MAX TD_TENSOR_RANK_MAX

/* a known tensor; its elements need not be aligned */
typedef struct {
    int rank;
    int64_t dim[RANK_MAX];
    int64_t count;
    const char *bytes;
} indices;

static int64_t at(const indices *x, int64_t i)
{
    int64_t value;
    memcpy(&value, x->bytes + 8 * i, sizeof value);
    return value;
}

static bool get(const td_onnx_folder *f, const td_onnx_node *n, int i, indices *out)
{
    const td_tensor *t = i < n->n_in ? td_map_get(f->tensors, n->in[i]) : NULL;
    if (!t || t->dtype != TD_DT_I64)
        return false;
    *out = (indices){ .rank = t->rank, .count = (int64_t)(t->n_bytes / 8), .bytes = t->data };
    memcpy(out->dim, t->dim, (size_t)t->rank * sizeof *t->dim);
    return true;
}

/* a tensor for the result; *data NULL: there are too many integers already */
static td_status new_result(td_onnx_folder *f, const td_onnx_node *n, int rank, const int64_t *dim,
                            td_tensor *t, int64_t **data)
{
    int64_t count = 1;
    *data = NULL;
    for (int d = 0; d < rank; d++)
        count = td_mul_capped(count, dim[d]);
    if (count < 1 || count > TD_ONNX_INDICES_MAX - f->n_indices)
        return TD_OK;
    *data = td_arena_alloc(&f->arena, (size_t)count, sizeof **data);
    if (!*data)
        return TD_ENOMEM;
    f->n_indices += count;
    *t = (td_tensor){ .name = n->out[0],
                      .dtype = TD_DT_I64,
                      .rank = rank,
                      .data = *data,
                      .n_bytes = (size_t)count * sizeof **data };
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
    return TD_OK;
}

/* --- operators -------------------------------------------------------------------------------- */

static td_status range(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x[3];
    td_tensor t;
    int64_t *data;
    for (int i = 0; i < 3; i++)
        if (!get(f, n, i, &x[i]) || x[i].count != 1)
            return TD_OK;
    const int64_t start = at(&x[0], 0), limit = at(&x[1], 0), step = at(&x[2], 0);
    const int64_t most = TD_ONNX_INDICES_MAX;
    if (step < 1 || step > most || start < 0 || limit > most * most || limit <= start)
        return TD_OK; /* no exporter counts down */
    TD_TRY(new_result(f, n, 1, (int64_t[]){ (limit - start + step - 1) / step }, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / 8); i++)
        data[i] = start + i * step;
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* the dimensions of two tensors that are repeated along each other's; false: they do not fit */
static bool common_dims(const indices *x, const indices *y, int *rank, int64_t *dim)
{
    *rank = x->rank > y->rank ? x->rank : y->rank;
    for (int d = 0; d < *rank; d++) {
        const int i = d - (*rank - x->rank), k = d - (*rank - y->rank);
        const int64_t a = i < 0 ? 1 : x->dim[i], b = k < 0 ? 1 : y->dim[k];
        if (a != b && a != 1 && b != 1)
            return false;
        dim[d] = a > b ? a : b;
    }
    return true;
}

/* the element of x at position i of a tensor with these dimensions */
static int64_t repeated(const indices *x, int rank, const int64_t *dim, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int d = rank - 1; d >= rank - x->rank; d--) {
        const int64_t own = x->dim[d - (rank - x->rank)];
        index += own > 1 ? i % dim[d] * step : 0;
        step *= own;
        i /= dim[d];
    }
    return at(x, index);
}

static td_status arithmetic(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x, y;
    td_tensor t;
    int64_t *data, dim[RANK_MAX];
    int rank;
    if (!get(f, n, 0, &x) || !get(f, n, 1, &y) || !common_dims(&x, &y, &rank, dim))
        return TD_OK;
    TD_TRY(new_result(f, n, rank, dim, &t, &data));
    for (int64_t i = 0; data && i < (int64_t)(t.n_bytes / 8); i++)
        if (!td_onnx_compute(n->op, repeated(&x, rank, dim, i), repeated(&y, rank, dim, i),
                             &data[i]))
            return td_error(TD_EFORMAT, "integers overflow, or are divided by 0");
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

static td_status expand(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x, to, all = { 0 };
    td_tensor t;
    int64_t *data, dim[RANK_MAX];
    int rank;
    if (!get(f, n, 0, &x) || !get(f, n, 1, &to) || to.rank != 1 || to.count > RANK_MAX)
        return TD_OK;
    all.rank = (int)to.count;
    for (int d = 0; d < all.rank; d++)
        all.dim[d] = at(&to, d);
    if (!common_dims(&x, &all, &rank, dim))
        return TD_OK;
    TD_TRY(new_result(f, n, rank, dim, &t, &data));
    for (int64_t i = 0; data && i < (int64_t)(t.n_bytes / 8); i++)
        data[i] = repeated(&x, rank, dim, i);
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

/* the same elements with other dimensions */
static td_status with_dims(td_onnx_folder *f, const td_onnx_node *n, const indices *x, int rank,
                           const int64_t *dim, bool *done)
{
    int64_t count = 1;
    td_tensor t = {
        .name = n->out[0], .dtype = TD_DT_I64, .rank = rank, .n_bytes = (size_t)x->count * 8
    };
    for (int d = 0; d < rank; d++)
        count = td_mul_capped(count, dim[d]);
    if (count != x->count)
        return TD_OK;
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    t.data = x->bytes;
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* the list of attribute or operand `axes` as bits of the result's (Unsqueeze) or x's dimensions */
static bool get_axes(const td_onnx_folder *f, const td_onnx_node *n, int rank, unsigned *bits,
                     int *count)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "axes");
    indices list;
    *bits = 0;
    if (a && a->kind == TD_ONNX_INTS && a->n <= RANK_MAX)
        list = (indices){ .rank = 1, .count = a->n, .bytes = (const char *)a->ints };
    else if (!get(f, n, 1, &list) || list.count > RANK_MAX)
        return false;
    *count = (int)list.count;
    for (int i = 0; i < *count; i++) {
        const int r = rank >= 0 ? rank : -1 - rank + *count;
        const int64_t axis = at(&list, i) + (at(&list, i) < 0 ? r : 0);
        if (axis < 0 || axis >= r || r > RANK_MAX || (*bits >> axis & 1))
            return false;
        *bits |= 1u << axis;
    }
    return true;
}

static td_status unsqueeze(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x;
    unsigned bits;
    int count, k = 0;
    int64_t dim[RANK_MAX];
    if (!get(f, n, 0, &x) || !get_axes(f, n, -1 - x.rank, &bits, &count) ||
        x.rank + count > RANK_MAX)
        return TD_OK;
    for (int d = 0; d < x.rank + count; d++)
        dim[d] = bits >> d & 1 ? 1 : x.dim[k++];
    return with_dims(f, n, &x, x.rank + count, dim, done);
}

static td_status squeeze(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x;
    unsigned bits;
    int count, rank = 0;
    int64_t dim[RANK_MAX];
    if (!get(f, n, 0, &x) || !get_axes(f, n, x.rank, &bits, &count))
        return TD_OK;
    for (int d = 0; d < x.rank; d++)
        if (!(bits >> d & 1))
            dim[rank++] = x.dim[d];
    return with_dims(f, n, &x, rank, dim, done);
}

static td_status reshape(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    indices x, to;
    int64_t dim[RANK_MAX], known = 1;
    int open = -1;
    if (!get(f, n, 0, &x) || !get(f, n, 1, &to) || to.rank != 1 || to.count > RANK_MAX)
        return TD_OK;
    for (int d = 0; d < (int)to.count; d++) {
        dim[d] = at(&to, d);
        if (dim[d] == 0 && d < x.rank)
            dim[d] = x.dim[d];
        if (dim[d] == -1 && open < 0)
            open = d;
        else if (dim[d] < 1)
            return TD_OK;
        else
            known = td_mul_capped(known, dim[d]);
    }
    if (open >= 0)
        dim[open] = x.count / known;
    return with_dims(f, n, &x, (int)to.count, dim, done);
}

td_status td_onnx_fold_indices(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    static const struct {
        const char *op;
        td_status (*fold)(td_onnx_folder *, const td_onnx_node *, bool *);
    } rows[] = {
        { "Range", range },      { "Add", arithmetic },      { "Sub", arithmetic },
        { "Mul", arithmetic },   { "Div", arithmetic },      { "Mod", arithmetic },
        { "Equal", arithmetic }, { "Unsqueeze", unsqueeze }, { "Squeeze", squeeze },
        { "Reshape", reshape },  { "Expand", expand },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(n->op, rows[i].op) == 0)
            return rows[i].fold(f, n, done);
    return TD_OK;
}
