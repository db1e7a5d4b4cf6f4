/*
 * axis_operators.c -- ONNX operators that cut tensors along axes, or change their dimensions
 *
 * The batch of a model is not known yet, so what a Reshape or Expand does with it must not be a
 * number.  The model is imported twice (onnx_import.c): first for PROBE images, where dimensions
 * that contain the batch are multiples of it; then for the wanted number, where such a dimension of
 * a Reshape is what is left of the elements, and that of an Expand is left to its readers.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <stdint.h>
#include <string.h>

#include "onnx_import/importer.h"

#define PICKED_MAX 8    /* parts of a Gather: more are read by index */
#define BACK_MAX   4096 /* elements of a Slice from the end */

/* --- axes ------------------------------------------------------------------------------------- */

/* the list of attribute `name`, or of operand i; n is -1 without any */
static td_status ints_of(const td_importer *im, const char *name, int i, int *n, int64_t *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *n = -1;
    if (a && (a->kind != TD_ONNX_INTS || a->n > TD_RANK_MAX))
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    if (a) {
        *n = a->n;
        memcpy(out, a->ints, (size_t)a->n * sizeof *out);
        return TD_OK;
    }
    if (i >= im->node->n_in || !*im->node->in[i])
        return TD_OK;
    return td_import_ints_at(im, i, TD_RANK_MAX, n, out);
}

/* makes *axis one of `rank` */
static td_status check_axis(const td_importer *im, int64_t *axis, int rank)
{
    *axis += *axis < 0 ? rank : 0;
    return *axis >= 0 && *axis < rank ? TD_OK : td_import_wrong(im, "an axis is out of range");
}

td_status td_import_axes(const td_importer *im, int operand, int rank, int *n, bool *is_axis)
{
    int64_t axes[TD_RANK_MAX];
    TD_TRY(ints_of(im, "axes", operand, n, axes));
    memset(is_axis, 0, TD_RANK_MAX * sizeof *is_axis);
    for (int i = 0; i < *n; i++) {
        TD_TRY(check_axis(im, &axes[i], rank));
        if (is_axis[axes[i]])
            return td_import_wrong(im, "an axis is named twice");
        is_axis[axes[i]] = true;
    }
    return TD_OK;
}

/* --- parts ------------------------------------------------------------------------------------ */

static td_value *part(td_importer *im, td_value *x, int64_t axis, int64_t start, int64_t size,
                      int64_t step)
{
    const td_slice_attr a = { (int)axis, start, size, step };
    const td_type t = td_value_type(x);
    if (start == 0 && step == 1 && size == t.dim[axis])
        return x;
    return td_emit(im->b, &td_op_slice, &a, x);
}

static int64_t clamped(int64_t i, int64_t n)
{
    if (i < 0)
        i = i < -n ? 0 : i + n;
    return i > n ? n : i;
}

/* the elements start, start + by, .. above end; by < 0 */
static td_status slice_back(td_importer *im, int64_t axis, int64_t start, int64_t end, int64_t by,
                            td_value **y)
{
    int64_t at[BACK_MAX], n = 0;
    const int64_t size = td_value_type(*y).dim[axis];
    start += start < 0 ? size : 0;
    start = start >= size ? size - 1 : start;
    end = end < -size ? -1 : end < 0 ? end + size : end;
    if (by < -(1 << 20))
        return td_import_wrong(im, "a step is 0 or too large");
    for (int64_t i = start; i >= 0 && i > end; i += by) {
        if (n == BACK_MAX)
            return td_import_refuse(im, "a negative step over more than 4096 elements");
        at[n++] = i;
    }
    return n ? td_import_gather_at(im, *y, axis, (int)n, at, y)
             : td_import_refuse(im, "an empty slice");
}

/* the operands of a Slice: `n` axes */
typedef struct {
    int n;
    int64_t start[TD_RANK_MAX], end[TD_RANK_MAX], axis[TD_RANK_MAX], step[TD_RANK_MAX];
} slices;

static td_status slices_of(td_importer *im, slices *s)
{
    int n[4];
    if (im->node->n_in < 3 || im->node->n_in > 5)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_ints_at(im, 1, TD_RANK_MAX, &n[0], s->start));
    TD_TRY(td_import_ints_at(im, 2, TD_RANK_MAX, &n[1], s->end));
    TD_TRY(ints_of(im, "axes", 3, &n[2], s->axis));
    TD_TRY(ints_of(im, "steps", 4, &n[3], s->step));
    if (n[1] != n[0] || (n[2] >= 0 && n[2] != n[0]) || (n[3] >= 0 && n[3] != n[0]))
        return td_import_wrong(im, "starts, ends, axes and steps differ in length");
    s->n = n[0];
    for (int i = 0; i < s->n; i++) {
        s->axis[i] = n[2] < 0 ? i : s->axis[i];
        s->step[i] = n[3] < 0 ? 1 : s->step[i];
    }
    return TD_OK;
}

/* slice i, forwards, of a dimension: its first element and their number */
static td_status slice_range(const td_importer *im, const slices *s, int i, int64_t dim,
                             int64_t *from, int64_t *size)
{
    *from = clamped(s->start[i], dim);
    const int64_t to = clamped(s->end[i], dim);
    if (s->step[i] < 1 || s->step[i] > 1 << 20)
        return td_import_wrong(im, "a step is 0 or too large");
    if (to <= *from)
        return td_import_refuse(im, "an empty slice");
    *size = (to - *from - 1) / s->step[i] + 1;
    return TD_OK;
}

static td_status slice_wide(td_importer *im, const td_wide *w)
{
    slices s;
    int64_t from, size;
    TD_TRY(slices_of(im, &s));
    for (int i = 0; i < s.n && td_build_ok(im->b); i++) {
        TD_TRY(check_axis(im, &s.axis[i], td_import_wide_rank(w)));
        if (s.step[i] < 0)
            return td_import_refuse(im, "a negative step along one of more than five dimensions");
        TD_TRY(slice_range(im, &s, i, td_import_wide_dim(w, (int)s.axis[i]), &from, &size));
        w = td_import_wide_part(im, w, s.axis[i], from, size, s.step[i]);
        if (!w)
            return TD_ENOMEM;
    }
    return td_import_wide_same(im, w);
}

td_status td_import_slice(td_importer *im, td_value **y)
{
    slices s;
    int64_t from, size;
    if (td_import_wide_at(im))
        return slice_wide(im, td_import_wide_at(im));
    TD_TRY(td_import_value_at(im, 0, y));
    TD_TRY(slices_of(im, &s));
    for (int i = 0; i < s.n && td_build_ok(im->b); i++) {
        const td_type t = td_value_type(*y);
        TD_TRY(check_axis(im, &s.axis[i], t.rank));
        if (s.step[i] < 0) {
            TD_TRY(slice_back(im, s.axis[i], s.start[i], s.end[i], s.step[i], y));
            continue;
        }
        TD_TRY(slice_range(im, &s, i, t.dim[s.axis[i]], &from, &size));
        *y = part(im, *y, s.axis[i], from, size, s.step[i]);
    }
    return TD_OK;
}

/* the size of each part */
static td_status split_sizes(const td_importer *im, int64_t whole, int64_t *size)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "split");
    const int n = im->node->n_out;
    int given = n;
    int64_t sum = 0;
    if (a && a->kind == TD_ONNX_INTS && a->n == n)
        memcpy(size, a->ints, (size_t)n * sizeof *size);
    else if (im->node->n_in > 1 && *im->node->in[1])
        TD_TRY(td_import_ints_at(im, 1, n, &given, size));
    else
        for (int i = 0; i < n; i++) /* the last one may be smaller */
            size[i] = i + 1 < n ? (whole + n - 1) / n : whole - (n - 1) * ((whole + n - 1) / n);
    for (int i = 0; i < n && given == n; i++) {
        if (size[i] < 1 || size[i] > whole - sum)
            given = 0;
        sum += size[i];
    }
    return given == n && sum == whole ? TD_OK
                                      : td_import_wrong(im, "the parts do not make the whole");
}

static td_status split_wide(td_importer *im, const td_wide *w)
{
    int64_t axis, size[TD_ONNX_FOLD_MAX];
    TD_TRY(td_import_attr_int(im, "axis", 0, &axis));
    TD_TRY(check_axis(im, &axis, td_import_wide_rank(w)));
    if (im->node->n_out > TD_ONNX_FOLD_MAX)
        return td_import_refuse(im, "too many parts of more than five dimensions");
    TD_TRY(split_sizes(im, td_import_wide_dim(w, (int)axis), size));
    return td_import_wide_split(im, w, axis, size);
}

td_status td_import_split(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t axis, start = 0;
    if (td_import_wide_at(im))
        return split_wide(im, td_import_wide_at(im));
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_int(im, "axis", 0, &axis));
    const td_type t = td_value_type(x);
    TD_TRY(check_axis(im, &axis, t.rank));
    const int n = im->node->n_out;
    int64_t *size = td_alloc((size_t)n + 1, sizeof *size);
    td_status st = size ? split_sizes(im, t.dim[axis], size) : TD_ENOMEM;
    for (int i = 0; i < n && st == TD_OK && td_build_ok(im->b); i++) {
        *y = part(im, x, axis, start, size[i], 1);
        start += size[i];
        if (i + 1 < n)
            st = td_import_result(im, i, *y);
    }
    td_free(size);
    return st;
}

/* --- Gather ----------------------------------------------------------------------------------- */

/* a Gather of rows or columns floor(i * from / to) is a resize to `to` */
static bool is_resize(const td_type *x, int64_t axis, int n, const int64_t *at)
{
    if (x->rank != 4 || (axis != 2 && axis != 3))
        return false;
    for (int i = 0; i < n; i++)
        if (at[i] != i * x->dim[axis] / n)
            return false;
    return true;
}

/* the number of indices from `i` on with equal distances, *step */
static int run_of(int i, int n, const int64_t *at, int64_t *step)
{
    int size = 1;
    *step = i + 1 < n ? at[i + 1] - at[i] : 1;
    *step = *step < 1 || *step > 1 << 20 ? 1 : *step;
    while (i + size < n && at[i + size] - at[i + size - 1] == *step)
        size++;
    return size;
}

static int count_runs(int n, const int64_t *at)
{
    int64_t step;
    int runs = 0;
    for (int i = 0; i < n && runs <= PICKED_MAX; i += run_of(i, n, at, &step))
        runs++;
    return runs;
}

/* a few parts with equal distances, one behind the other; many by index */
static td_status pick(td_importer *im, td_value *x, int64_t axis, int n, const int64_t *at,
                      td_value **y)
{
    td_value *in[PICKED_MAX], *index;
    const td_tensor t = {
        .dtype = TD_DT_I64, .rank = 1, .dim = { n }, .data = at, .n_bytes = (size_t)n * sizeof *at
    };
    const td_gather_attr a = { (int)axis };
    int n_in = 0;
    int64_t step;
    if (count_runs(n, at) > PICKED_MAX) {
        TD_TRY(td_import_constant(im, &t, &index));
        *y = td_emit(im->b, &td_op_gather, &a, x, index);
        return TD_OK;
    }
    for (int i = 0, size; i < n; i += size) {
        size = run_of(i, n, at, &step);
        in[n_in++] = part(im, x, axis, at[i], size, step);
    }
    *y = n_in > 1 ? td_concat(im->b, n_in, in, (int)axis) : in[0];
    return TD_OK;
}

td_status td_import_gather_at(td_importer *im, td_value *x, int64_t axis, int n, int64_t *at,
                              td_value **y)
{
    const td_type t = td_value_type(x);
    for (int i = 0; i < n; i++) {
        at[i] += at[i] < 0 ? t.dim[axis] : 0;
        if (at[i] < 0 || at[i] >= t.dim[axis])
            return td_import_wrong(im, "an index is out of range");
    }
    if (!is_resize(&t, axis, n, at))
        return pick(im, x, axis, n, at, y);
    const td_resize_attr a = { (int)(axis == 2 ? n : t.dim[2]), (int)(axis == 3 ? n : t.dim[3]) };
    *y = td_emit(im->b, &td_op_resize_nearest, &a, x);
    return TD_OK;
}

/* consecutive indices from the first one on, however many: as_strided of what is contiguous */
static bool is_run(const td_tensor *t, int64_t *first)
{
    int64_t i = 0, value;
    const int64_t n = (int64_t)(t->n_bytes / 8);
    memcpy(first, t->data, sizeof *first);
    for (; i < n; i++) {
        memcpy(&value, (const char *)t->data + 8 * i, sizeof value);
        if (value != *first + i)
            return false;
    }
    return *first >= 0;
}

/* the elements along an axis whose indices are the constant t */
static td_status gather_constants(td_importer *im, td_value *x, int64_t axis, const td_tensor *t,
                                  td_value **y)
{
    int64_t first;
    const int n = (int)(t->n_bytes / 8);
    if (is_run(t, &first) && n <= td_value_type(x).dim[axis] - first) {
        *y = part(im, x, axis, first, n, 1);
        return TD_OK;
    }
    if (t->n_bytes > 8 << 16)
        return td_import_refuse(im, "too many indices");
    int64_t *at = td_alloc((size_t)n, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    memcpy(at, t->data, t->n_bytes);
    const td_status st = td_import_gather_at(im, x, axis, n, at, y);
    td_free(at);
    return st;
}

/* the elements of x along an axis by `t`, whose first `rank` dimensions take the axis's place */
static td_status gather_as(td_importer *im, td_value *x, int64_t axis, const td_tensor *t, int rank,
                           td_value **y)
{
    const td_type type = td_value_type(x);
    int64_t dim[TD_RANK_MAX];
    int n = 0;
    if (type.rank - 1 + rank > TD_RANK_MAX)
        return td_import_refuse(im, "a result of too many dimensions");
    TD_TRY(gather_constants(im, x, axis, t, y));
    if (rank == 1 || !td_build_ok(im->b))
        return TD_OK;
    for (int d = 0; d < type.rank; d++) {
        for (int k = 0; k < rank && d == axis; k++)
            dim[n++] = t->dim[k];
        if (d != axis)
            dim[n++] = type.dim[d];
    }
    *y = td_import_reshaped(im, *y, n, dim);
    return TD_OK;
}

static bool has_indices(const td_importer *im, const td_tensor **out)
{
    const td_tensor *t = im->node->n_in == 2 ? td_map_get(&im->tensors, im->node->in[1]) : NULL;
    *out = t;
    return t && t->dtype == TD_DT_I64 && t->n_bytes >= 8 && t->n_bytes <= INT32_MAX;
}

static td_status gather_wide(td_importer *im, const td_wide *w, td_value **y)
{
    int64_t axis, at;
    const td_tensor *t;
    TD_TRY(td_import_attr_int(im, "axis", 0, &axis));
    if (!has_indices(im, &t) || t->rank != 0)
        return td_import_refuse(im, "of more than five dimensions, not one constant index");
    TD_TRY(check_axis(im, &axis, td_import_wide_rank(w)));
    memcpy(&at, t->data, sizeof at);
    return td_import_wide_pick(im, w, axis, at, y);
}

td_status td_import_gather(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t axis;
    const td_tensor *t;
    if (td_import_wide_at(im))
        return gather_wide(im, td_import_wide_at(im), y);
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_int(im, "axis", 0, &axis));
    TD_TRY(check_axis(im, &axis, td_value_type(x).rank));
    if (!has_indices(im, &t))
        return td_import_refuse(im, "indices that are not constants");
    return gather_as(im, x, axis, t, t->rank, y);
}

/* indices [.., columns] of x's first dimensions as indices [..] of their product */
static td_status flat_indices(td_importer *im, const td_type *x, const td_tensor *t, td_tensor *out)
{
    const int64_t columns = t->dim[t->rank - 1], n = (int64_t)(t->n_bytes / 8) / columns;
    if (!td_onnx_folder_read(&im->folder, n * columns))
        return td_import_refuse(im, "computed operands of too many elements in all");
    int64_t *at = td_arena_alloc(&im->folder.arena, (size_t)n + 1, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    *out = *t;
    out->rank--;
    out->data = at;
    out->n_bytes = (size_t)n * sizeof *at;
    for (int64_t i = 0; i < n; i++) {
        at[i] = 0;
        for (int64_t k = 0; k < columns; k++) {
            int64_t index;
            memcpy(&index, (const char *)t->data + 8 * (i * columns + k), sizeof index);
            index += index < 0 ? x->dim[k] : 0;
            if (index < 0 || index >= x->dim[k])
                return td_import_wrong(im, "an index is out of range");
            at[i] = at[i] * x->dim[k] + index;
        }
    }
    return TD_OK;
}

/* elements or parts of x by indices of its first dimensions */
td_status td_import_gather_nd(td_importer *im, td_value **y)
{
    td_value *x;
    const td_tensor *t;
    td_tensor flat;
    int64_t dim[TD_RANK_MAX];
    int rank = 1;
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_must(im, "batch_dims", 0));
    if (!has_indices(im, &t))
        return td_import_refuse(im, "indices that are not constants");
    const td_type type = td_value_type(x);
    const int64_t columns = t->rank < 1 ? 0 : t->dim[t->rank - 1];
    if (columns < 1 || columns > type.rank)
        return td_import_wrong(im, "indices of other dimensions than the tensor has");
    TD_TRY(flat_indices(im, &type, t, &flat));
    dim[0] = 1;
    for (int d = 0; d < type.rank; d++)
        if (d < columns)
            dim[0] *= type.dim[d];
        else
            dim[rank++] = type.dim[d];
    if (columns > 1 && type.dim[0] % TD_IMPORT_PROBE == 0 && im->is_probe)
        return td_import_refuse(im, "indices of images");
    if (columns > 1)
        x = td_import_reshaped(im, x, rank, dim);
    return td_build_ok(im->b) ? gather_as(im, x, 0, &flat, flat.rank, y) : TD_OK;
}

/* --- dimensions ------------------------------------------------------------------------------- */

unsigned td_import_batch_dims(td_importer *im, int rank, const int64_t *dim)
{
    uint8_t *bits = im->batch_dims ? &im->batch_dims[im->node - im->m->nodes] : NULL;
    if (!bits)
        return 0;
    for (int d = 0; d < rank && im->is_probe; d++)
        if (dim[d] % TD_IMPORT_PROBE == 0)
            *bits = (uint8_t)(*bits | 1u << d);
    return im->is_probe ? 0 : *bits;
}

bool td_import_repeats_batch(const td_importer *im)
{
    const td_onnx_node *n = im->node;
    const td_tensor *shape = n->n_in > 1 ? td_map_get(&im->tensors, n->in[1]) : NULL;
    const td_tensor *x = n->n_in > 1 ? td_map_get(&im->tensors, n->in[0]) : NULL;
    bool is_found = false;
    if (!im->batch_dims || strcmp(n->op, "Expand") != 0 || !x || x->dtype != TD_DT_F32 || !shape ||
        shape->dtype != TD_DT_I64)
        return false;
    if (!im->is_probe)
        return im->batch_dims[n - im->m->nodes];
    for (size_t i = 0; i < shape->n_bytes / 8; i++) {
        int64_t dim;
        memcpy(&dim, (const char *)shape->data + 8 * i, sizeof dim);
        is_found = is_found || (dim && dim % TD_IMPORT_PROBE == 0);
    }
    return is_found;
}

td_value *td_import_reshaped(td_importer *im, td_value *x, int rank, const int64_t *dim)
{
    int64_t open[TD_RANK_MAX];
    const unsigned batch = td_import_batch_dims(im, rank, dim);
    for (int d = 0; d < rank; d++)
        open[d] = batch == 1u << d ? -1 : dim[d];
    return td_reshape(im->b, x, rank, open);
}

td_status td_import_reshape(td_importer *im, td_value **y)
{
    td_value *x = NULL;
    const td_wide *w = td_import_wide_at(im);
    int n, open = -1;
    int64_t dim[TD_WIDE_RANK_MAX], known = 1, zero;
    if (!w)
        TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_int(im, "allowzero", 0, &zero));
    TD_TRY(td_import_ints_at(im, 1, TD_WIDE_RANK_MAX, &n, dim));
    const td_type t = w ? (td_type){ 0 } : td_value_type(x);
    for (int i = 0; i < n; i++) {
        if (dim[i] == 0 && !zero)
            dim[i] = w ? td_import_wide_dim(w, i) : i < t.rank ? t.dim[i] : 0;
        if (dim[i] == -1 && open < 0)
            open = i;
        else if (dim[i] < 1 || dim[i] > TD_TYPE_BYTES_MAX)
            return td_import_wrong(im, "an invalid shape");
        else
            known = td_mul_capped(known, dim[i]);
    }
    if (open >= 0)
        dim[open] = (w ? td_import_wide_count(w) : td_type_count(&t)) / known;
    if (w)
        TD_TRY(td_import_narrow(im, w, &x));
    if (n > TD_RANK_MAX)
        return td_import_widen(im, x, n, dim);
    *y = td_import_reshaped(im, x, n, dim);
    return TD_OK;
}

td_status td_import_flatten(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t axis, dim[2] = { 1, 1 };
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    TD_TRY(td_import_attr_int(im, "axis", 1, &axis));
    const td_type t = td_value_type(x);
    axis += axis < 0 ? t.rank : 0;
    if (axis < 0 || axis > t.rank)
        return td_import_wrong(im, "an axis is out of range");
    for (int d = 0; d < t.rank; d++)
        dim[d >= axis] *= t.dim[d];
    *y = td_import_reshaped(im, x, 2, dim);
    return TD_OK;
}

static td_status squeeze_wide(td_importer *im, const td_wide *w, td_value **y)
{
    int n;
    int64_t axes[TD_RANK_MAX];
    TD_TRY(ints_of(im, "axes", 1, &n, axes));
    return n < 0 ? td_import_refuse(im, "no axes") : td_import_wide_squeeze(im, w, n, axes, y);
}

td_status td_import_squeeze(td_importer *im, td_value **y)
{
    td_value *x;
    bool is_axis[TD_RANK_MAX];
    int n, rank = 0;
    int64_t dim[TD_RANK_MAX];
    if (td_import_wide_at(im))
        return squeeze_wide(im, td_import_wide_at(im), y);
    TD_TRY(td_import_value_at(im, 0, &x));
    const td_type t = td_value_type(x);
    TD_TRY(td_import_axes(im, 1, t.rank, &n, is_axis));
    if (n < 0)
        return td_import_refuse(im, "no axes");
    for (int d = 0; d < t.rank; d++) {
        if (is_axis[d] && t.dim[d] != 1)
            return td_import_wrong(im, "a dimension that is not 1");
        if (!is_axis[d])
            dim[rank++] = t.dim[d];
    }
    *y = td_import_reshaped(im, x, rank, dim);
    return TD_OK;
}

td_status td_import_unsqueeze(td_importer *im, td_value **y)
{
    td_value *x;
    bool is_axis[TD_RANK_MAX];
    int64_t axes[TD_RANK_MAX], dim[TD_RANK_MAX];
    int n, k = 0;
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(ints_of(im, "axes", 1, &n, axes));
    const td_type t = td_value_type(x);
    if (n < 0 || t.rank + n > TD_RANK_MAX)
        return td_import_refuse(im, "no axes, or too many dimensions");
    TD_TRY(td_import_axes(im, 1, t.rank + n, &n, is_axis));
    for (int d = 0; d < t.rank + n; d++)
        dim[d] = is_axis[d] ? 1 : t.dim[k++];
    *y = td_import_reshaped(im, x, t.rank + n, dim);
    return TD_OK;
}

td_status td_import_transpose(td_importer *im, td_value **y)
{
    const td_wide *w = td_import_wide_at(im);
    if (w)
        return td_import_wide_transpose(im, w);
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "perm");
    td_value *x;
    int perm[TD_RANK_MAX];
    unsigned seen = 0;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const td_type t = td_value_type(x);
    if (a && (a->kind != TD_ONNX_INTS || a->n != t.rank))
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    for (int d = 0; d < t.rank; d++) {
        const int64_t k = a ? a->ints[d] : t.rank - 1 - d;
        if (k < 0 || k >= t.rank || (seen >> k & 1))
            return td_import_wrong(im, "perm is not an order of the dimensions");
        seen |= 1u << k;
        perm[d] = (int)k;
    }
    *y = t.rank ? td_transpose(im->b, x, perm) : x;
    return TD_OK;
}

td_status td_import_expand(td_importer *im, td_value **y)
{
    td_value *x;
    int n;
    int64_t dim[TD_RANK_MAX];
    bool is_same = true;
    td_text text = { 0 };
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_ints_at(im, 1, TD_RANK_MAX, &n, dim));
    const td_type t = td_value_type(x);
    const int rank = n > t.rank ? n : t.rank;
    const unsigned batch = td_import_batch_dims(im, n, dim);
    for (int d = 0; d < rank; d++) {
        const int64_t from = d < rank - t.rank ? 1 : t.dim[d - (rank - t.rank)];
        int64_t to = d < rank - n || (batch >> (d - (rank - n)) & 1) ? 1 : dim[d - (rank - n)];
        to = to == 1 ? from : to;
        is_same = is_same && to == from && rank == t.rank;
        const bool is_kept = d >= rank - t.rank && to == from; /* whatever the batch */
        td_text_add(&text, d ? ":%lld" : "shape=%lld", is_kept ? -1 : (long long)to);
    }
    td_status st = td_text_status(&text);
    if (st == TD_OK)
        *y = is_same ? x
                     : td_emit(im->b, &td_op_broadcast_to,
                               td_build_attr(im->b, &td_op_broadcast_to, td_text_get(&text)), x);
    td_text_release(&text);
    return st;
}
