/*
 * onnx_eval.c -- evaluates nodes of an ONNX model
 *
 * One function for each operator, one row of `rows` each.  Operands are looked up by name; `result`
 * allocates the results, which the evaluation owns.  All indices are checked.
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include "onnx/onnx_eval.h"

#include <math.h>
#include <string.h>

#include "onnx/onnx_nms.h"

#define COUNT_MAX INT32_MAX

struct td_onnx_eval {
    const td_onnx *m;
    const char *what;
    int batch;
    td_map tensors, declared; /* the model's, by name */
    td_map arrays;            /* name -> td_onnx_array */
    td_onnx_array **owned;
    size_t n_owned, cap_owned;
    const td_onnx_node *node; /* the current node */
};

typedef td_onnx_array array;

static td_status wrong(const td_onnx_eval *e, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': node '%s' (%s): %s", e->what, e->node->name, e->node->op,
                    what);
}

/* --- arrays ----------------------------------------------------------------------------------- */

static int64_t count_from(const array *a, int d)
{
    int64_t n = 1;
    for (; d < a->rank; d++)
        n *= a->dim[d];
    return n;
}

static int64_t count_of(const array *a)
{
    return count_from(a, 0);
}

static td_status new_array(td_onnx_eval *e, const char *name, td_dtype dtype, int rank,
                           const int64_t *dim, array **out)
{
    int64_t n = 1; /* for a part of the dimensions, too, even if another one is 0 */
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || (dim[i] && n > COUNT_MAX / dim[i]))
            return td_error(TD_ELIMIT, "'%s': '%s' has too many elements", e->what, name);
        n *= dim[i] ? dim[i] : 1;
    }
    TD_TRY(td_reserve(&e->owned, &e->cap_owned, e->n_owned + 1, sizeof(array *)));
    array *a = TD_NEW(array);
    if (!a)
        return TD_ENOMEM;
    e->owned[e->n_owned++] = a;
    *a = (array){ .dtype = dtype, .rank = rank };
    memcpy(a->dim, dim, (size_t)rank * sizeof *dim);
    a->data = td_alloc((size_t)n + 1, td_dtype_bytes(dtype)); /* zeros */
    if (!a->data)
        return TD_ENOMEM;
    *out = a;
    return td_map_set(&e->arrays, name, a);
}

static td_status from_tensor(td_onnx_eval *e, const td_tensor *t, array **out)
{
    if (t->dtype != TD_DT_F32 && t->dtype != TD_DT_I64)
        return wrong(e, "a tensor that is neither f32 nor i64");
    TD_TRY(new_array(e, t->name, t->dtype, t->rank, t->dim, out));
    if (t->n_bytes)
        memcpy((*out)->data, t->data, t->n_bytes);
    return TD_OK;
}

/* operand i, which must have the given type; TD_DT_NONE: any */
static td_status operand(td_onnx_eval *e, int i, td_dtype dtype, array **out)
{
    const char *name = i < e->node->n_in ? e->node->in[i] : "";
    const td_tensor *t = td_map_get(&e->tensors, name);
    *out = td_map_get(&e->arrays, name);
    if (!*out && !t)
        return wrong(e, "an operand is missing");
    if (!*out)
        TD_TRY(from_tensor(e, t, out));
    if (dtype && (*out)->dtype != dtype)
        return wrong(e, "an operand has the wrong type");
    return TD_OK;
}

/* allocates result k */
static td_status result(td_onnx_eval *e, int k, td_dtype dtype, int rank, const int64_t *dim,
                        array **out)
{
    if (k >= e->node->n_out)
        return wrong(e, "a result is missing");
    return new_array(e, e->node->out[k], dtype, rank, dim, out);
}

static td_status scalar(td_onnx_eval *e, int i, td_dtype dtype, array **out)
{
    TD_TRY(operand(e, i, dtype, out));
    return count_of(*out) == 1 ? TD_OK : wrong(e, "an operand is not a single number");
}

static int64_t attr_int(const td_onnx_eval *e, const char *name, int64_t otherwise)
{
    const td_onnx_attr *a = td_onnx_attr_find(e->node, name);
    return a && a->kind == TD_ONNX_INT ? a->i : otherwise;
}

/* an axis, counted from the end if negative */
static td_status axis_of(const td_onnx_eval *e, int64_t axis, int rank, int *out)
{
    *out = (int)(axis < 0 ? axis + rank : axis);
    return axis >= -rank && axis < rank ? TD_OK : wrong(e, "an axis is out of range");
}

/* --- element by element ----------------------------------------------------------------------- */

static float sigmoid_of(float x)
{
    return (float)(1 / (1 + exp(-(double)x)));
}

static float sign_of(float x)
{
    return (float)((x > 0) - (x < 0));
}

static td_status run_each(td_onnx_eval *e, float (*of)(float x))
{
    array *x, *y;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, x->dim, &y));
    for (int64_t i = 0; i < count_of(x); i++)
        y->f[i] = of(x->f[i]);
    return TD_OK;
}

static td_status run_exp(td_onnx_eval *e)
{
    return run_each(e, expf);
}

static td_status run_sigmoid(td_onnx_eval *e)
{
    return run_each(e, sigmoid_of);
}

static td_status run_sign(td_onnx_eval *e)
{
    return run_each(e, sign_of);
}

/* numpy's rule; by[d] is the step in x for a step of one in dimension d of y */
static td_status broadcast(const td_onnx_eval *e, const array *a, const array *b, array *y,
                           int64_t (*by)[2])
{
    const array *in[2] = { a, b };
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < y->rank; d++) {
            const int own = d - (y->rank - in[k]->rank);
            const int64_t n = own < 0 ? 1 : in[k]->dim[own];
            by[d][k] = n == 1 ? 0 : count_from(in[k], own + 1);
            if (k == 0 || y->dim[d] == 1)
                y->dim[d] = n;
            else if (n != 1 && n != y->dim[d])
                return wrong(e, "the shapes do not broadcast");
        }
    return TD_OK;
}

static float float_of(char op, float a, float b)
{
    return op == 'A' ? a + b : op == 'S' ? a - b : op == 'M' ? a * b : a / b;
}

static td_status int_of(const td_onnx_eval *e, char op, int64_t a, int64_t b, int64_t *y)
{
    const int64_t most = (int64_t)1 << 31; /* limit of operands: products fit then */
    if (a > most || a < -most || b > most || b < -most || (op == 'D' && b == 0))
        return wrong(e, "integer overflow, or a division by zero");
    *y = op == 'A' ? a + b : op == 'S' ? a - b : op == 'M' ? a * b : a / b;
    return TD_OK;
}

static td_status run_binary(td_onnx_eval *e)
{
    array *a, *b, *y, shape;
    int64_t by[TD_ONNX_RANK_MAX][2];
    const char op = *e->node->op; /* Add, Sub, Mul, Div */
    TD_TRY(operand(e, 0, TD_DT_NONE, &a));
    TD_TRY(operand(e, 1, a->dtype, &b));
    TD_TRY(broadcast(e, a, b, &shape, by));
    TD_TRY(result(e, 0, a->dtype, shape.rank, shape.dim, &y));
    for (int64_t i = 0; i < count_of(y); i++) {
        int64_t at[2] = { 0, 0 }, rest = i;
        for (int d = y->rank - 1; d >= 0; rest /= y->dim[d], d--) {
            at[0] += rest % y->dim[d] * by[d][0];
            at[1] += rest % y->dim[d] * by[d][1];
        }
        if (y->dtype == TD_DT_F32)
            y->f[i] = float_of(op, a->f[at[0]], b->f[at[1]]);
        else
            TD_TRY(int_of(e, op, a->i[at[0]], b->i[at[1]], &y->i[i]));
    }
    return TD_OK;
}

static td_status run_clip(td_onnx_eval *e)
{
    array *x, *low, *high, *y;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(scalar(e, 1, TD_DT_F32, &low));
    TD_TRY(scalar(e, 2, TD_DT_F32, &high));
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, x->dim, &y));
    for (int64_t i = 0; i < count_of(x); i++) {
        const float v = x->f[i] < *low->f ? *low->f : x->f[i];
        y->f[i] = v > *high->f ? *high->f : v;
    }
    return TD_OK;
}

static td_status run_cast(td_onnx_eval *e)
{
    array *x, *y;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    if (td_onnx_dtype_of(attr_int(e, "to", 0)) != TD_DT_I64)
        return wrong(e, "a cast to a type other than i64");
    TD_TRY(result(e, 0, TD_DT_I64, x->rank, x->dim, &y));
    for (int64_t i = 0; i < count_of(x); i++) {
        if (!(fabsf(x->f[i]) < 1e9F))
            return wrong(e, "a number is not representable in the result's integer type");
        y->i[i] = (int64_t)x->f[i];
    }
    return TD_OK;
}

/* over the last axis */
static td_status run_softmax(td_onnx_eval *e)
{
    array *x, *y;
    int axis;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(axis_of(e, attr_int(e, "axis", -1), x->rank, &axis));
    if (axis != x->rank - 1)
        return wrong(e, "the axis is not the last one");
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, x->dim, &y));
    const int64_t n = x->dim[axis];
    for (int64_t row = 0; n && row < count_of(x) / n; row++) {
        const float *in = x->f + row * n;
        float most = in[0];
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = in[i] > most ? in[i] : most;
        for (int64_t i = 0; i < n; i++)
            sum += exp((double)(in[i] - most));
        for (int64_t i = 0; i < n; i++)
            y->f[row * n + i] = (float)(exp((double)(in[i] - most)) / sum);
    }
    return TD_OK;
}

/* --- moving data ------------------------------------------------------------------------------ */

static td_status run_slice(td_onnx_eval *e)
{
    array *x, *start, *end, *of, *y;
    int axis;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(scalar(e, 1, TD_DT_I64, &start));
    TD_TRY(scalar(e, 2, TD_DT_I64, &end));
    TD_TRY(scalar(e, 3, TD_DT_I64, &of));
    TD_TRY(axis_of(e, *of->i, x->rank, &axis));
    const int64_t from = *start->i, n = *end->i - from, all = x->dim[axis];
    if (from < 0 || n < 0 || *end->i > all)
        return wrong(e, "the slice is out of range");
    array shape = *x;
    shape.dim[axis] = n;
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, shape.dim, &y));
    const int64_t each = count_from(x, axis + 1), line = n * each;
    for (int64_t at = 0; at < count_of(y); at += line)
        memcpy(y->f + at, x->f + (at / line * all + from) * each, (size_t)line * sizeof *y->f);
    return TD_OK;
}

static td_status joined_shape(td_onnx_eval *e, int axis, const array *first, array *shape)
{
    *shape = *first;
    shape->dim[axis] = 0;
    for (int i = 0; i < e->node->n_in; i++) {
        array *x;
        TD_TRY(operand(e, i, TD_DT_F32, &x));
        bool fits = x->rank == first->rank;
        for (int d = 0; fits && d < x->rank; d++)
            fits = d == axis || x->dim[d] == first->dim[d];
        if (!fits || x->dim[axis] > COUNT_MAX - shape->dim[axis])
            return wrong(e, "the shapes of the operands do not match");
        shape->dim[axis] += x->dim[axis];
    }
    return TD_OK;
}

static td_status run_concat(td_onnx_eval *e)
{
    array *x, *y, shape;
    int axis;
    int64_t at = 0;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(axis_of(e, attr_int(e, "axis", 0), x->rank, &axis));
    TD_TRY(joined_shape(e, axis, x, &shape));
    TD_TRY(result(e, 0, TD_DT_F32, shape.rank, shape.dim, &y));
    const int64_t line = count_from(y, axis), rows = line ? count_of(y) / line : 0;
    for (int i = 0; i < e->node->n_in; i++) {
        TD_TRY(operand(e, i, TD_DT_F32, &x));
        const int64_t n = count_from(x, axis);
        for (int64_t row = 0; row < rows; row++)
            memcpy(y->f + row * line + at, x->f + row * n, (size_t)n * sizeof *y->f);
        at += n;
    }
    return TD_OK;
}

static td_status run_transpose(td_onnx_eval *e)
{
    array *x, *y, shape;
    const td_onnx_attr *perm = td_onnx_attr_find(e->node, "perm");
    bool seen[TD_ONNX_RANK_MAX] = { 0 };
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    if (!perm || perm->n != x->rank)
        return wrong(e, "the permutation does not match the dimensions");
    shape = *x;
    for (int d = 0; d < x->rank; d++) {
        const int64_t from = perm->ints[d];
        if (from < 0 || from >= x->rank || seen[from])
            return wrong(e, "the permutation does not match the dimensions");
        seen[from] = true;
        shape.dim[d] = x->dim[from];
    }
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, shape.dim, &y));
    for (int64_t i = 0; i < count_of(y); i++) {
        int64_t at = 0, rest = i;
        for (int d = y->rank - 1; d >= 0; rest /= y->dim[d], d--)
            at += rest % y->dim[d] * count_from(x, (int)perm->ints[d] + 1);
        y->f[i] = x->f[at];
    }
    return TD_OK;
}

/* 0 copies a dimension, -1 is computed from the number of elements */
static td_status run_reshape(td_onnx_eval *e)
{
    array *x, *to, *y, shape = { 0 };
    int open = -1;
    int64_t known = 1;
    TD_TRY(operand(e, 0, TD_DT_NONE, &x));
    TD_TRY(operand(e, 1, TD_DT_I64, &to));
    if (to->rank != 1 || to->dim[0] > TD_ONNX_RANK_MAX)
        return wrong(e, "a shape has too many dimensions");
    shape.rank = (int)to->dim[0];
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = to->i[d] == 0 && d < x->rank ? x->dim[d] : to->i[d];
        if (shape.dim[d] == -1 && open < 0)
            open = d;
        else if (shape.dim[d] < 0 || (shape.dim[d] && known > COUNT_MAX / shape.dim[d]))
            return wrong(e, "an invalid shape");
        else
            known *= shape.dim[d];
    }
    if (open >= 0)
        shape.dim[open] = known ? count_of(x) / known : 0;
    if (count_of(&shape) != count_of(x))
        return wrong(e, "a shape with a different number of elements");
    TD_TRY(result(e, 0, x->dtype, shape.rank, shape.dim, &y));
    memcpy(y->data, x->data, (size_t)count_of(x) * td_dtype_bytes(x->dtype));
    return TD_OK;
}

static td_status run_shape(td_onnx_eval *e)
{
    array *x, *y;
    TD_TRY(operand(e, 0, TD_DT_NONE, &x));
    TD_TRY(result(e, 0, TD_DT_I64, 1, (const int64_t[]){ x->rank }, &y));
    memcpy(y->i, x->dim, (size_t)x->rank * sizeof *y->i);
    return TD_OK;
}

static td_status run_zeros(td_onnx_eval *e)
{
    array *shape, *y;
    TD_TRY(operand(e, 0, TD_DT_I64, &shape));
    if (shape->rank != 1 || shape->dim[0] > TD_ONNX_RANK_MAX)
        return wrong(e, "a shape has too many dimensions");
    return result(e, 0, TD_DT_F32, (int)shape->dim[0], shape->i, &y);
}

/* reduces one axis, which is removed */
static td_status run_reduce(td_onnx_eval *e)
{
    array *x, *axes, *y, shape;
    int axis;
    TD_TRY(operand(e, 0, TD_DT_I64, &x));
    TD_TRY(scalar(e, 1, TD_DT_I64, &axes));
    TD_TRY(axis_of(e, *axes->i, x->rank, &axis));
    if (attr_int(e, "keepdims", 1))
        return wrong(e, "keepdims is not supported");
    shape = *x;
    shape.rank--;
    for (int d = axis; d < shape.rank; d++)
        shape.dim[d] = x->dim[d + 1];
    TD_TRY(result(e, 0, TD_DT_I64, shape.rank, shape.dim, &y));
    const int64_t n = x->dim[axis], each = count_from(x, axis + 1);
    for (int64_t i = 0; i < count_of(x); i++)
        y->i[i / (n * each) * each + i % each] += x->i[i];
    return TD_OK;
}

/* --- indexing --------------------------------------------------------------------------------- */

/* the offset of the part of x that `at` [n] selects, as indices of the dimensions from `first` on;
   x is not empty */
static td_status place_of(const td_onnx_eval *e, const array *x, int first, const int64_t *at,
                          int n, int64_t *out)
{
    *out = 0;
    for (int d = 0; d < n; d++) {
        const int64_t size = x->dim[first + d];
        if (at[d] < 0 || at[d] >= size)
            return wrong(e, "an index is out of range");
        *out += at[d] * count_from(x, first + d + 1);
    }
    return TD_OK;
}

/* y[b, i...] = x[b, at[b, i..., :]]: b over batch_dims dimensions */
static td_status run_gather_nd(td_onnx_eval *e)
{
    array *x, *at, *y, shape;
    const int64_t batched = attr_int(e, "batch_dims", 0);
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(operand(e, 1, TD_DT_I64, &at));
    if (at->rank < 1 || batched < 0 || batched >= at->rank || batched >= x->rank)
        return wrong(e, "more batch dimensions than the operand has");
    const int b = (int)batched, n = (int)at->dim[at->rank - 1];
    if (at->dim[at->rank - 1] < 1 || at->dim[at->rank - 1] > x->rank - b ||
        at->rank - 1 + x->rank - b - n > TD_ONNX_RANK_MAX)
        return wrong(e, "indices with more dimensions than the operand has");
    shape = *at;
    shape.rank = at->rank - 1;
    for (int d = b + n; d < x->rank; d++)
        shape.dim[shape.rank++] = x->dim[d];
    for (int d = 0; d < b; d++)
        if (x->dim[d] != at->dim[d])
            return wrong(e, "different batch sizes");
    TD_TRY(result(e, 0, TD_DT_F32, shape.rank, shape.dim, &y));
    const int64_t each = count_from(x, b + n), places = count_of(at) / n;
    const int64_t of_batch = count_from(at, b) / n, batch_size = count_from(x, b);
    for (int64_t i = 0; i < places; i++) {
        int64_t from;
        TD_TRY(place_of(e, x, b, at->i + i * n, n, &from));
        memcpy(y->f + i * each, x->f + i / of_batch * batch_size + from,
               (size_t)each * sizeof *y->f);
    }
    return TD_OK;
}

/* only for single elements: at [M, rank] */
static td_status run_scatter_nd(td_onnx_eval *e)
{
    array *x, *at, *by, *y;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(operand(e, 1, TD_DT_I64, &at));
    TD_TRY(operand(e, 2, TD_DT_F32, &by));
    if (at->rank != 2 || at->dim[1] != x->rank || by->rank != 1 || by->dim[0] != at->dim[0])
        return wrong(e, "only single elements are supported");
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, x->dim, &y));
    memcpy(y->f, x->f, (size_t)count_of(x) * sizeof *y->f);
    for (int64_t i = 0; i < at->dim[0]; i++) {
        int64_t to;
        TD_TRY(place_of(e, x, 0, at->i + i * x->rank, x->rank, &to));
        y->f[to] = by->f[i];
    }
    return TD_OK;
}

/* only along the last axis */
static td_status run_scatter(td_onnx_eval *e)
{
    array *x, *at, *by, *y;
    int axis;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(operand(e, 1, TD_DT_I64, &at));
    TD_TRY(operand(e, 2, TD_DT_F32, &by));
    TD_TRY(axis_of(e, attr_int(e, "axis", 0), x->rank, &axis));
    bool fits = axis == x->rank - 1 && at->rank == x->rank && by->rank == x->rank;
    for (int d = 0; fits && d < x->rank; d++)
        fits = at->dim[d] == by->dim[d] && (d == axis || at->dim[d] == x->dim[d]);
    if (!fits)
        return wrong(e, "only elements along the last axis are supported");
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, x->dim, &y));
    memcpy(y->f, x->f, (size_t)count_of(x) * sizeof *y->f);
    for (int64_t i = 0; i < count_of(at); i++) {
        if (at->i[i] < 0 || at->i[i] >= x->dim[axis])
            return wrong(e, "an index is out of range");
        y->f[i / at->dim[axis] * x->dim[axis] + at->i[i]] = by->f[i];
    }
    return TD_OK;
}

/* the k largest of a row in decreasing order; of equal ones the first */
static void top_of_row(const float *x, int64_t n, int64_t k, float *best, int64_t *at)
{
    int64_t have = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = have < k ? have : k;
        if (have == k && !(x[i] > best[k - 1]))
            continue;
        to = have < k ? have++ : k - 1;
        for (; to > 0 && x[i] > best[to - 1]; to--) {
            best[to] = best[to - 1];
            at[to] = at[to - 1];
        }
        best[to] = x[i];
        at[to] = i;
    }
}

static td_status run_top(td_onnx_eval *e)
{
    array *x, *k, *best, *at, shape;
    TD_TRY(operand(e, 0, TD_DT_F32, &x));
    TD_TRY(scalar(e, 1, TD_DT_I64, &k));
    if (x->rank < 1 || *k->i < 1 || *k->i > x->dim[x->rank - 1])
        return wrong(e, "k is larger than the axis, or less than 1");
    shape = *x;
    shape.dim[x->rank - 1] = *k->i;
    TD_TRY(result(e, 0, TD_DT_F32, x->rank, shape.dim, &best));
    TD_TRY(result(e, 1, TD_DT_I64, x->rank, shape.dim, &at));
    const int64_t n = x->dim[x->rank - 1];
    for (int64_t row = 0; row < count_of(x) / n; row++)
        top_of_row(x->f + row * n, n, *k->i, best->f + row * *k->i, at->i + row * *k->i);
    return TD_OK;
}

/* --- boxes ------------------------------------------------------------------------------------ */

static td_status run_nms(td_onnx_eval *e)
{
    array *boxes, *scores, *most, *iou, *score_min, *y;
    td_onnx_selection s = { 0 };
    TD_TRY(operand(e, 0, TD_DT_F32, &boxes));
    TD_TRY(operand(e, 1, TD_DT_F32, &scores));
    TD_TRY(scalar(e, 2, TD_DT_I64, &most));
    TD_TRY(scalar(e, 3, TD_DT_F32, &iou));
    TD_TRY(scalar(e, 4, TD_DT_F32, &score_min));
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dim[2] != 4 ||
        boxes->dim[0] != scores->dim[0] || boxes->dim[1] != scores->dim[2])
        return wrong(e, "the shapes of boxes and scores do not match");
    const td_onnx_nms_limits limits = { *most->i, *iou->f, *score_min->f };
    td_status st = td_onnx_nms(boxes, scores, &limits, &s);
    if (st == TD_OK)
        st = result(e, 0, TD_DT_I64, 2, (const int64_t[]){ (int64_t)s.n, 3 }, &y);
    if (st == TD_OK && s.n)
        memcpy(y->i, s.at, 3 * s.n * sizeof *y->i);
    td_free(s.at);
    return st;
}

/* --- the table -------------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    const char *op;
    const char *attr;     /* the attributes supported here */
    int n_in, n_out;      /* n_in 0: any number */
    td_status (*run)(td_onnx_eval *e);
} rows[] = {
    { "Add",               NULL,         2, 1, run_binary },
    { "Sub",               NULL,         2, 1, run_binary },
    { "Mul",               NULL,         2, 1, run_binary },
    { "Div",               NULL,         2, 1, run_binary },
    { "Exp",               NULL,         1, 1, run_exp },
    { "Sigmoid",           NULL,         1, 1, run_sigmoid },
    { "Sign",              NULL,         1, 1, run_sign },
    { "Clip",              NULL,         3, 1, run_clip },
    { "Cast",              "to",         1, 1, run_cast },
    { "Softmax",           "axis",       1, 1, run_softmax },
    { "Slice",             NULL,         4, 1, run_slice },
    { "Concat",            "axis",       0, 1, run_concat },
    { "Transpose",         "perm",       1, 1, run_transpose },
    { "Reshape",           NULL,         2, 1, run_reshape },
    { "Shape",             NULL,         1, 1, run_shape },
    { "ConstantOfShape",   NULL,         1, 1, run_zeros },
    { "ReduceSum",         "keepdims",   2, 1, run_reduce },
    { "GatherND",          "batch_dims", 2, 1, run_gather_nd },
    { "ScatterND",         NULL,         3, 1, run_scatter_nd },
    { "ScatterElements",   "axis",       3, 1, run_scatter },
    { "TopK",              NULL,         2, 2, run_top },
    { "NonMaxSuppression", NULL,         5, 1, run_nms },
};
/* clang-format on */

#define N_ROWS (sizeof rows / sizeof *rows)

/* N_ROWS: the operator is not supported here */
static size_t row_of(const td_onnx_node *n)
{
    size_t i = 0;
    while (i < N_ROWS && strcmp(rows[i].op, n->op) != 0)
        i++;
    if (i == N_ROWS || n->n_out != rows[i].n_out || (rows[i].n_in && n->n_in != rows[i].n_in))
        return N_ROWS;
    for (int k = 0; k < n->n_attr; k++)
        if (!rows[i].attr || strcmp(n->attr[k].name, rows[i].attr) != 0)
            return N_ROWS;
    return i;
}

bool td_onnx_eval_knows(const td_onnx_node *n)
{
    return row_of(n) < N_ROWS;
}

/* --- entry points ----------------------------------------------------------------------------- */

static td_status check_declared(const td_onnx_eval *e, const char *name)
{
    const td_onnx_value *v = td_map_get(&e->declared, name);
    const array *a = td_map_get(&e->arrays, name);
    bool same = v && a && v->dtype == a->dtype && v->rank == a->rank;
    for (int d = 0; same && d < a->rank; d++)
        if (v->dim[d].value >= 0)
            same = v->dim[d].value == a->dim[d];
        else if (v->dim[d].param && strcmp(v->dim[d].param, "N") == 0)
            same = a->dim[d] == e->batch;
    return same ? TD_OK
                : td_error(TD_EFORMAT, "'%s': '%s' does not have its declared type and shape",
                           e->what, name);
}

static td_status run_node(td_onnx_eval *e, const td_onnx_node *n)
{
    const size_t row = row_of(n);
    e->node = n;
    if (row == N_ROWS)
        return td_error(TD_EUNSUPPORTED, "'%s': node '%s' (%s) is not supported after a network",
                        e->what, n->name, n->op);
    TD_TRY(rows[row].run(e));
    for (int i = 0; i < n->n_out; i++)
        TD_TRY(check_declared(e, n->out[i]));
    return TD_OK;
}

static td_status index_names(td_onnx_eval *e)
{
    const td_onnx *m = e->m;
    for (size_t i = 0; i < m->n_tensors; i++)
        TD_TRY(td_map_set(&e->tensors, m->tensors[i].name, &m->tensors[i]));
    for (size_t i = 0; i < m->values.n; i++)
        TD_TRY(td_map_set(&e->declared, m->values.at[i].name, &m->values.at[i]));
    for (size_t i = 0; i < m->outputs.n; i++)
        TD_TRY(td_map_set(&e->declared, m->outputs.at[i].name, &m->outputs.at[i]));
    return TD_OK;
}

td_status td_onnx_eval_new(const td_onnx *m, const char *what, int batch, td_onnx_eval **out)
{
    *out = NULL;
    td_onnx_eval *e = TD_NEW(td_onnx_eval);
    if (!e)
        return TD_ENOMEM;
    e->m = m;
    e->what = what;
    e->batch = batch;
    td_status st = index_names(e);
    if (st == TD_OK)
        *out = e;
    else
        td_onnx_eval_free(e);
    return st;
}

void td_onnx_eval_free(td_onnx_eval *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n_owned; i++) {
        td_free(e->owned[i]->data);
        td_free(e->owned[i]);
    }
    td_free(e->owned);
    td_map_release(&e->tensors);
    td_map_release(&e->declared);
    td_map_release(&e->arrays);
    td_free(e);
}

td_status td_onnx_eval_set(td_onnx_eval *e, const char *name, const td_onnx_array *a)
{
    array *copy;
    TD_TRY(new_array(e, name, a->dtype, a->rank, a->dim, &copy));
    memcpy(copy->data, a->data, (size_t)count_of(a) * td_dtype_bytes(a->dtype));
    return TD_OK;
}

td_status td_onnx_eval_run(td_onnx_eval *e, size_t first)
{
    for (size_t i = first; i < e->m->n_nodes; i++)
        TD_TRY(run_node(e, &e->m->nodes[i]));
    return TD_OK;
}

const td_onnx_array *td_onnx_eval_get(const td_onnx_eval *e, const char *name)
{
    return td_map_get(&e->arrays, name);
}
