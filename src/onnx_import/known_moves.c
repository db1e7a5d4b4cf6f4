/*
 * known_moves.c -- operators on known tensors that move elements and compute nothing
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <string.h>

#include "onnx_import/known_tensor.h"

#define RANK_MAX TD_KNOWN_RANK_MAX

/* elements of the same type as `x`, which a result can have */
static bool can_move(const td_known *x)
{
    return x->dtype == TD_DT_I64 || x->dtype == TD_DT_F32 || x->dtype == TD_DT_U8;
}

static td_status add(td_onnx_folder *f, const td_onnx_node *n, const td_tensor *t, bool *done)
{
    *done = true;
    return td_onnx_folder_add(f, n, t);
}

static void copy(void *to, int64_t i, const td_known *x, int64_t k)
{
    memcpy((char *)to + (size_t)i * x->each, x->bytes + (size_t)k * x->each, x->each);
}

static int64_t attr_int(const td_onnx_node *n, const char *name, int64_t otherwise)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, name);
    return a && a->kind == TD_ONNX_INT ? a->i : otherwise;
}

/* makes *axis one of `rank` */
static bool is_axis(int64_t *axis, int rank)
{
    *axis += *axis < 0 ? rank : 0;
    return *axis >= 0 && *axis < rank;
}

/* --- by position ------------------------------------------------------------------------------ */

/* element i of the result is element start + sum of index[d] * step[d] of x */
static td_status walk(td_onnx_folder *f, const td_onnx_node *n, const td_known *x, int rank,
                      const int64_t *dim, int64_t start, const int64_t *step, bool *done)
{
    td_tensor t;
    void *data;
    TD_TRY(td_known_new(f, n, x->dtype, rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / x->each); i++) {
        int64_t from = start, rest = i;
        for (int d = rank - 1; d >= 0; rest /= dim[d--])
            from += rest % dim[d] * step[d];
        copy(data, i, x, from);
    }
    return add(f, n, &t, done);
}

/* elements of x from one index of dimension d to the next */
static void steps_of(const td_known *x, int64_t *step)
{
    int64_t s = 1;
    for (int d = x->rank - 1; d >= 0; s = td_mul_capped(s, x->dim[d--]))
        step[d] = s;
}

td_status td_known_transpose(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    const td_onnx_attr *a = td_onnx_attr_find(n, "perm");
    int64_t own[RANK_MAX], step[RANK_MAX], dim[RANK_MAX];
    unsigned seen = 0;
    if (!td_known_get(f, n, 0, &x) || !can_move(&x) ||
        (a && (a->kind != TD_ONNX_INTS || a->n != x.rank)))
        return TD_OK;
    steps_of(&x, own);
    for (int d = 0; d < x.rank; d++) {
        const int64_t k = a ? a->ints[d] : x.rank - 1 - d;
        if (k < 0 || k >= x.rank || (seen >> k & 1))
            return td_error(TD_EFORMAT, "perm is not an order of the dimensions");
        seen |= 1u << k;
        dim[d] = x.dim[k];
        step[d] = own[k];
    }
    return walk(f, n, &x, x.rank, dim, 0, step, done);
}

/* one dimension of a slice: the first index, how many, and the step; false: none, or too many */
static bool cut(int64_t size, int64_t *from, int64_t to, int64_t by, int64_t *count)
{
    const int64_t last = by < 0 ? size - 1 : size, least = by < 0 ? -1 : 0;
    if (by == 0 || by > TD_ONNX_KNOWN_MAX || by < -TD_ONNX_KNOWN_MAX)
        return false;
    *from = *from < -size ? least : *from < 0 ? *from + size : *from;
    to = to < -size ? least : to < 0 ? to + size : to;
    *from = *from > last ? last : *from;
    to = to > last ? last : to;
    *count = by > 0 ? (to - *from + by - 1) / by : (*from - to - by - 1) / -by;
    return *count > 0 && *from >= 0 && *from < size;
}

td_status td_known_slice(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    int count[4] = { 0 };
    int64_t list[4][RANK_MAX], dim[RANK_MAX], step[RANK_MAX], start = 0;
    unsigned seen = 0;
    if (!td_known_get(f, n, 0, &x) || !can_move(&x))
        return TD_OK;
    for (int i = 0; i < 4; i++)
        if ((i < 2 || (i + 1 < n->n_in && *n->in[i + 1])) &&
            (!td_known_list(f, n, i + 1, &count[i], list[i]) || count[i] != count[0]))
            return TD_OK;
    steps_of(&x, step);
    memcpy(dim, x.dim, sizeof dim);
    for (int i = 0; i < count[0]; i++) {
        int64_t axis = count[2] ? list[2][i] : i, from = list[0][i];
        const int64_t by = count[3] ? list[3][i] : 1;
        if (!is_axis(&axis, x.rank) || (seen >> axis & 1) ||
            !cut(x.dim[axis], &from, list[1][i], by, &dim[axis]))
            return TD_OK;
        seen |= 1u << axis;
        start += from * step[axis];
        step[axis] *= by;
    }
    return walk(f, n, &x, x.rank, dim, start, step, done);
}

td_status td_known_expand(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, all = { 0 };
    td_tensor t;
    void *data;
    int64_t dim[RANK_MAX];
    int rank;
    if (!td_known_beside(f, n, 0, &x) || !can_move(&x) || /* one number, but no gate [1, ..] */
        (x.rank > 0 && !td_known_get(f, n, 0, &x)) || !td_known_list(f, n, 1, &all.rank, all.dim) ||
        !td_known_common(&x, &all, &rank, dim))
        return TD_OK;
    TD_TRY(td_known_new(f, n, x.dtype, rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / x.each); i++)
        copy(data, i, &x, td_known_repeated(&x, rank, dim, i));
    return add(f, n, &t, done);
}

td_status td_known_tile(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    td_tensor t;
    void *data;
    int64_t by[RANK_MAX], dim[RANK_MAX], step[RANK_MAX];
    int rank;
    if (!td_known_get(f, n, 0, &x) || !can_move(&x) || !td_known_list(f, n, 1, &rank, by) ||
        rank != x.rank)
        return TD_OK;
    for (int d = 0; d < rank; d++) {
        if (by[d] < 1 || by[d] > TD_ONNX_KNOWN_MAX)
            return TD_OK;
        dim[d] = td_mul_capped(x.dim[d], by[d]);
    }
    TD_TRY(td_known_new(f, n, x.dtype, rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    steps_of(&x, step);
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / x.each); i++) {
        int64_t from = 0, rest = i;
        for (int d = rank - 1; d >= 0; rest /= dim[d--])
            from += rest % dim[d] % x.dim[d] * step[d];
        copy(data, i, &x, from);
    }
    return add(f, n, &t, done);
}

/* --- by index --------------------------------------------------------------------------------- */

/* dimensions before the axis, after it, and both with those of `index` in its place */
typedef struct {
    int64_t outer, inner, dim[RANK_MAX];
    int rank;
} selection;

static bool select_along(const td_known *x, int64_t axis, const td_known *index, selection *out)
{
    *out = (selection){ .outer = 1, .inner = 1 };
    if (x->rank - 1 + index->rank > RANK_MAX)
        return false;
    for (int d = 0; d < x->rank; d++) {
        for (int k = 0; d == axis && k < index->rank; k++)
            out->dim[out->rank++] = index->dim[k];
        if (d == axis)
            continue;
        int64_t *const side = d < axis ? &out->outer : &out->inner;
        *side = td_mul_capped(*side, x->dim[d]);
        out->dim[out->rank++] = x->dim[d];
    }
    return true;
}

td_status td_known_gather(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, index;
    td_tensor t;
    void *data;
    selection s;
    int64_t axis = attr_int(n, "axis", 0);
    if (!td_known_get(f, n, 0, &x) || !can_move(&x) || !td_known_get(f, n, 1, &index) ||
        index.dtype != TD_DT_I64 || !is_axis(&axis, x.rank) || !select_along(&x, axis, &index, &s))
        return TD_OK;
    TD_TRY(td_known_new(f, n, x.dtype, s.rank, s.dim, &t, &data));
    for (int64_t i = 0; data && i < s.outer * index.count; i++) {
        int64_t k = td_known_int(&index, i % index.count);
        k += k < 0 ? x.dim[axis] : 0;
        if (k < 0 || k >= x.dim[axis])
            return td_error(TD_EFORMAT, "an index is out of range");
        const int64_t from = (i / index.count * x.dim[axis] + k) * s.inner;
        memcpy((char *)data + (size_t)(i * s.inner) * x.each, x.bytes + (size_t)from * x.each,
               (size_t)s.inner * x.each);
    }
    return data ? add(f, n, &t, done) : TD_OK;
}

/* the result of a Concat along an axis: *end is its size; false: operands do not fit */
static bool join_dims(const td_onnx_folder *f, const td_onnx_node *n, int64_t axis,
                      const td_known *first, int64_t *end)
{
    *end = 0;
    for (int i = 0; i < n->n_in; i++) {
        td_known x;
        if (!td_known_get(f, n, i, &x) || x.dtype != first->dtype || x.rank != first->rank)
            return false;
        for (int d = 0; d < x.rank; d++)
            if (d != axis && x.dim[d] != first->dim[d])
                return false;
        if (x.dim[axis] > TD_ONNX_KNOWN_MAX)
            return false;
        *end += x.dim[axis];
    }
    return true;
}

td_status td_known_concat(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    td_tensor t;
    void *data;
    int64_t axis = attr_int(n, "axis", 0), dim[RANK_MAX], outer = 1, inner = 1, end, at = 0;
    if (!td_known_get(f, n, 0, &x) || !can_move(&x) || !is_axis(&axis, x.rank) ||
        !join_dims(f, n, axis, &x, &end))
        return TD_OK;
    memcpy(dim, x.dim, sizeof dim);
    dim[axis] = end;
    TD_TRY(td_known_new(f, n, x.dtype, x.rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    for (int d = 0; d < x.rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : x.dim[d];
    for (int i = 0; i < n->n_in; i++) {
        if (!td_known_get(f, n, i, &x))
            return TD_OK;
        const size_t part = (size_t)(x.dim[axis] * inner) * x.each;
        for (int64_t o = 0; o < outer && part; o++)
            memcpy((char *)data + (size_t)((o * end + at) * inner) * x.each,
                   x.bytes + (size_t)o * part, part);
        at += x.dim[axis];
    }
    return add(f, n, &t, done);
}

td_status td_known_where(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known is, x[2], both = { 0 };
    td_tensor t;
    void *data;
    int64_t dim[RANK_MAX];
    int rank;
    for (int i = 0; i < 2; i++)
        if (!td_known_beside(f, n, i + 1, &x[i]) || !can_move(&x[i]))
            return TD_OK;
    if (!td_known_get(f, n, 0, &is) || is.dtype == TD_DT_F32 || x[0].dtype != x[1].dtype ||
        !td_known_common(&x[0], &x[1], &both.rank, both.dim) ||
        !td_known_common(&is, &both, &rank, dim))
        return TD_OK;
    TD_TRY(td_known_new(f, n, x[0].dtype, rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / x[0].each); i++) {
        const td_known *from = &x[!td_known_int(&is, td_known_repeated(&is, rank, dim, i))];
        copy(data, i, from, td_known_repeated(from, rank, dim, i));
    }
    return add(f, n, &t, done);
}

/* the offset of the part of x that row i of `index`, of `columns`, selects; -1: there is none */
static int64_t part_at(const td_known *x, const td_known *index, int64_t i, int64_t columns)
{
    int64_t step[RANK_MAX], from = 0;
    steps_of(x, step);
    for (int64_t k = 0; k < columns; k++) {
        int64_t at = td_known_int(index, i * columns + k);
        at += at < 0 ? x->dim[k] : 0;
        if (at < 0 || at >= x->dim[k])
            return -1;
        from += at * step[k];
    }
    return from;
}

/* ScatterND: x, but each part of it that a row of the indices selects comes from the updates.
   Updates that are initializers count as constants: exporters write so the numbers of regions. */
td_status td_known_scatter(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, index, from;
    td_tensor t;
    void *data;
    const td_onnx_attr *a = td_onnx_attr_find(n, "reduction");
    int64_t part = 1;
    if (!td_known_get(f, n, 0, &x) || !can_move(&x) || !td_known_get(f, n, 1, &index) ||
        !td_known_any(f, n, 2, &from) || index.dtype != TD_DT_I64 || from.dtype != x.dtype ||
        (a && (a->kind != TD_ONNX_TEXT || strcmp(a->text, "none") != 0)))
        return TD_OK;
    const int64_t columns = index.rank ? index.dim[index.rank - 1] : 0;
    if (columns < 1 || columns > x.rank)
        return TD_OK;
    for (int d = (int)columns; d < x.rank; d++)
        part = td_mul_capped(part, x.dim[d]);
    if (from.count != td_mul_capped(index.count / columns, part))
        return td_error(TD_EFORMAT, "there are not as many updates as indices");
    if (!td_onnx_folder_read(f, index.count) || !td_onnx_folder_read(f, from.count))
        return TD_OK;
    TD_TRY(td_known_new(f, n, x.dtype, x.rank, x.dim, &t, &data));
    if (!data)
        return TD_OK;
    memcpy(data, x.bytes, t.n_bytes);
    for (int64_t i = 0; i < index.count / columns; i++) {
        const int64_t to = part_at(&x, &index, i, columns);
        if (to < 0)
            return td_error(TD_EFORMAT, "an index is out of range");
        memcpy((char *)data + (size_t)to * x.each, from.bytes + (size_t)(i * part) * x.each,
               (size_t)part * x.each);
    }
    return add(f, n, &t, done);
}

/* ConstantOfShape: zeros of f32, or its value */
td_status td_known_fill(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "value");
    const float zero = 0;
    td_known x = { .dtype = TD_DT_F32, .each = sizeof zero, .bytes = (const char *)&zero };
    td_tensor t;
    void *data;
    int64_t dim[RANK_MAX];
    int rank;
    if (a && (a->kind != TD_ONNX_TENSOR || !a->tensor->n_bytes))
        return TD_OK;
    if (a)
        x = (td_known){ .dtype = a->tensor->dtype,
                        .each = td_dtype_bytes(a->tensor->dtype),
                        .bytes = a->tensor->data };
    const bool is_byte = x.dtype == TD_DT_U8;
    if (!can_move(&x) || !td_known_list(f, n, 0, &rank, dim))
        return TD_OK;
    TD_TRY(td_known_new(f, n, is_byte ? TD_DT_I64 : x.dtype, rank, dim, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / td_dtype_bytes(t.dtype)); i++)
        if (is_byte)
            ((int64_t *)data)[i] = td_known_int(&x, 0);
        else
            copy(data, i, &x, 0);
    return add(f, n, &t, done);
}

/* Trilu: zeros below the k-th diagonal of matrices, or above it */
td_status td_known_triangle(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, diagonal;
    td_tensor t;
    void *data;
    int64_t k = 0;
    const bool is_upper = attr_int(n, "upper", 1) != 0;
    if (!td_known_get(f, n, 0, &x) || x.rank < 2)
        return TD_OK;
    if (n->n_in > 1 && *n->in[1]) {
        if (!td_known_get(f, n, 1, &diagonal) || diagonal.dtype != TD_DT_I64 || diagonal.count != 1)
            return TD_OK;
        k = td_known_int(&diagonal, 0);
    }
    if (k < -TD_ONNX_KNOWN_MAX || k > TD_ONNX_KNOWN_MAX)
        return TD_OK;
    const bool is_float = x.dtype == TD_DT_F32;
    TD_TRY(td_known_new(f, n, is_float ? TD_DT_F32 : TD_DT_I64, x.rank, x.dim, &t, &data));
    for (int64_t i = 0; data && i < x.count; i++) {
        const int64_t right = i % x.dim[x.rank - 1];
        const int64_t down = i / x.dim[x.rank - 1] % x.dim[x.rank - 2];
        const bool is_kept = is_upper ? right - down >= k : right - down <= k;
        if (is_float)
            ((float *)data)[i] = is_kept ? td_known_float(&x, i) : 0;
        else
            ((int64_t *)data)[i] = is_kept ? td_known_int(&x, i) : 0;
    }
    return data ? add(f, n, &t, done) : TD_OK;
}
