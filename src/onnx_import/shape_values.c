/*
 * shape_values.c -- see shape_values.h
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include "onnx_import/shape_values.h"

#include "onnx_import/index_values.h"

#include <math.h>
#include <string.h>

/* a list of integers, or one integer of no dimension */
typedef struct {
    int rank, n;
    int64_t at[TD_ONNX_FOLD_MAX];
} list;

static td_status bad(const char *what)
{
    return td_error(TD_EFORMAT, "%s", what);
}

static bool list_of(const td_tensor *t, list *out)
{
    if (!t || t->dtype != TD_DT_I64 || t->rank > 1 || t->n_bytes > sizeof out->at)
        return false;
    out->rank = t->rank;
    out->n = (int)(t->n_bytes / sizeof *out->at);
    if (t->n_bytes)
        memcpy(out->at, t->data, t->n_bytes);
    return true;
}

static const td_tensor *operand(const td_onnx_folder *f, const td_onnx_node *n, int i)
{
    return i < n->n_in ? td_map_get(f->tensors, n->in[i]) : NULL;
}

/* is it computed, or a Constant, so that no training changes it? */
static bool is_fixed(const td_onnx_folder *f, const td_tensor *t)
{
    return t && td_map_has(&f->fixed, t->name);
}

static td_status add_list(td_onnx_folder *f, const td_onnx_node *n, const list *l)
{
    int64_t *at = td_arena_alloc(&f->arena, (size_t)l->n + 1, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    memcpy(at, l->at, (size_t)l->n * sizeof *at);
    const td_tensor t = { .name = n->out[0],
                          .dtype = TD_DT_I64,
                          .rank = l->rank,
                          .dim = { l->n },
                          .data = at,
                          .n_bytes = (size_t)l->n * sizeof *at };
    return td_onnx_folder_add(f, n, &t);
}

static int64_t attr_of(const td_onnx_node *n, const char *name, int64_t otherwise)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, name);
    return a && a->kind == TD_ONNX_INT ? a->i : otherwise;
}

/* i32 becomes i64 and f64 f32: few numbers, whose types no more than an axis or a limit needs */
static td_status usual_type(td_onnx_folder *f, td_tensor *t)
{
    const size_t n = t->n_bytes / td_dtype_bytes(t->dtype);
    if ((t->dtype != TD_DT_I32 && t->dtype != TD_DT_F64) || n > TD_ONNX_FOLD_MAX)
        return TD_OK;
    int64_t *whole = td_arena_alloc(&f->arena, n + 1, sizeof *whole);
    float *real = (float *)whole;
    if (!whole)
        return TD_ENOMEM;
    const char *from = t->data; /* need not be aligned */
    for (size_t i = 0; i < n; i++) {
        int32_t small;
        double wide;
        if (t->dtype == TD_DT_I32) {
            memcpy(&small, from + i * sizeof small, sizeof small);
            whole[i] = small;
        } else {
            memcpy(&wide, from + i * sizeof wide, sizeof wide);
            real[i] = (float)wide;
        }
    }
    t->data = whole;
    t->dtype = t->dtype == TD_DT_I32 ? TD_DT_I64 : TD_DT_F32;
    t->n_bytes = n * td_dtype_bytes(t->dtype);
    return TD_OK;
}

/* --- operators: each returns whether it applies ----------------------------------------------- */

static td_status constant(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    const td_onnx_attr *a = n->n_attr == 1 ? &n->attr[0] : NULL;
    if (!a || n->n_in)
        return bad("a constant has one attribute and no operand");
    if (a->kind == TD_ONNX_TENSOR) {
        td_tensor t = *a->tensor;
        t.name = n->out[0];
        *done = true;
        TD_TRY(usual_type(f, &t));
        return td_onnx_folder_add(f, n, &t);
    }
    list l = { 0 };
    if (a->kind == TD_ONNX_INT && strcmp(a->name, "value_int") == 0) {
        l.n = 1;
        l.at[0] = a->i;
    } else if (a->kind == TD_ONNX_INTS && strcmp(a->name, "value_ints") == 0 &&
               a->n <= TD_ONNX_FOLD_MAX) {
        l.rank = 1;
        l.n = a->n;
        memcpy(l.at, a->ints, (size_t)a->n * sizeof *l.at);
    } else if (a->kind == TD_ONNX_FLOAT && strcmp(a->name, "value_float") == 0) {
        const td_tensor t = {
            .name = n->out[0], .dtype = TD_DT_F32, .data = &a->f, .n_bytes = sizeof a->f
        };
        *done = true;
        return td_onnx_folder_add(f, n, &t);
    } else if (a->kind == TD_ONNX_FLOATS && strcmp(a->name, "value_floats") == 0) {
        const td_tensor t = { .name = n->out[0],
                              .dtype = TD_DT_F32,
                              .rank = 1,
                              .dim = { a->n },
                              .data = a->floats,
                              .n_bytes = (size_t)a->n * sizeof *a->floats };
        *done = true;
        return td_onnx_folder_add(f, n, &t);
    } else {
        return TD_OK;
    }
    *done = true;
    return add_list(f, n, &l);
}

static td_status shape(td_onnx_folder *f, const td_onnx_node *n, const td_type *x, bool *done)
{
    list l = { .rank = 1 };
    int64_t start = attr_of(n, "start", 0), end = attr_of(n, "end", x->rank);
    start += start < 0 ? x->rank : 0;
    end += end < 0 ? x->rank : 0;
    for (int64_t i = start < 0 ? 0 : start; i < end && i < x->rank; i++)
        l.at[l.n++] = x->dim[i];
    *done = true;
    return add_list(f, n, &l);
}

/* the list itself with another rank: Squeeze, Unsqueeze, Cast to i64 */
static td_status same(td_onnx_folder *f, const td_onnx_node *n, const list *x, int rank, bool *done)
{
    list l = *x;
    l.rank = rank;
    if (rank == 0 && l.n != 1)
        return bad("more than one number is squeezed to one");
    *done = true;
    return add_list(f, n, &l);
}

static td_status gather(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list at, l;
    if (!list_of(operand(f, n, 1), &at) || x->rank != 1 || attr_of(n, "axis", 0) != 0)
        return TD_OK;
    l = (list){ .rank = at.rank, .n = at.n };
    for (int i = 0; i < at.n; i++) {
        const int64_t k = at.at[i] < 0 ? at.at[i] + x->n : at.at[i];
        if (k < 0 || k >= x->n)
            return bad("an index is outside its list");
        l.at[i] = x->at[k];
    }
    *done = true;
    return add_list(f, n, &l);
}

static td_status concat(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    list l = { .rank = 1 }, x;
    for (int i = 0; i < n->n_in; i++) {
        if (!list_of(operand(f, n, i), &x) || x.rank != 1 || l.n + x.n > TD_ONNX_FOLD_MAX)
            return TD_OK;
        memcpy(l.at + l.n, x.at, (size_t)x.n * sizeof *x.at);
        l.n += x.n;
    }
    *done = true;
    return add_list(f, n, &l);
}

static int64_t clamped(int64_t i, int64_t n)
{
    i += i < 0 ? n : 0;
    return i < 0 ? 0 : i > n ? n : i;
}

static td_status slice(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list start, end, axis, step, l = { .rank = 1 };
    if (x->rank != 1 || !list_of(operand(f, n, 1), &start) || !list_of(operand(f, n, 2), &end) ||
        start.n != 1 || end.n != 1)
        return TD_OK;
    if (n->n_in > 3 && *n->in[3] &&
        (!list_of(operand(f, n, 3), &axis) || axis.n != 1 || (axis.at[0] != 0 && axis.at[0] != -1)))
        return TD_OK;
    if (n->n_in > 4 && (!list_of(operand(f, n, 4), &step) || step.n != 1 || step.at[0] != 1))
        return TD_OK;
    for (int64_t i = clamped(start.at[0], x->n); i < clamped(end.at[0], x->n); i++)
        l.at[l.n++] = x->at[i];
    *done = true;
    return add_list(f, n, &l);
}

static td_status arithmetic(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list y, l;
    if (!list_of(operand(f, n, 1), &y) || (x->n != y.n && x->n != 1 && y.n != 1))
        return TD_OK;
    l = (list){ .rank = x->rank | y.rank, .n = x->n == 1 ? y.n : x->n };
    for (int i = 0; i < l.n; i++)
        if (!td_onnx_compute(n->op, x->at[x->n == 1 ? 0 : i], y.at[y.n == 1 ? 0 : i], &l.at[i]))
            return bad("integers overflow, or are divided by 0");
    *done = true;
    return add_list(f, n, &l);
}

/* a list of one number, or of as many as there are */
static td_status reshape(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list to;
    if (!list_of(operand(f, n, 1), &to) || to.rank != 1 || to.n > 1)
        return TD_OK;
    if (to.n == 1 && to.at[0] != -1 && to.at[0] != x->n)
        return bad("a list is reshaped to another length");
    return same(f, n, x, to.n, done);
}

/* ConstantOfShape: a list of equal numbers */
static td_status repeat(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "value");
    list l = { .rank = 1 }, value;
    if (!a || a->kind != TD_ONNX_TENSOR || !list_of(a->tensor, &value) || value.n != 1 ||
        x->rank != 1 || x->n != 1 || x->at[0] < 0 || x->at[0] > TD_ONNX_FOLD_MAX)
        return TD_OK;
    for (; l.n < x->at[0]; l.n++)
        l.at[l.n] = value.at[0];
    *done = true;
    return add_list(f, n, &l);
}

static td_status where(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list y, z, l = { .rank = 1, .n = x->n };
    if (x->rank != 1 || !list_of(operand(f, n, 1), &y) || !list_of(operand(f, n, 2), &z) ||
        (y.n != x->n && y.n != 1) || (z.n != x->n && z.n != 1))
        return TD_OK;
    for (int i = 0; i < l.n; i++)
        l.at[i] = x->at[i] ? y.at[y.n == 1 ? 0 : i] : z.at[z.n == 1 ? 0 : i];
    *done = true;
    return add_list(f, n, &l);
}

/* --- lists of pairs: PyTorch writes the operand of Pad as Reshape, Slice, Transpose, Reshape -- */

/* rows of `columns` integers */
typedef struct {
    int rows, columns;
    int64_t at[TD_ONNX_FOLD_MAX];
} table;

static bool table_of(const td_tensor *t, table *out)
{
    if (!t || t->dtype != TD_DT_I64 || t->rank != 2 || t->n_bytes > sizeof out->at ||
        t->n_bytes == 0)
        return false;
    out->rows = (int)t->dim[0];
    out->columns = (int)t->dim[1];
    memcpy(out->at, t->data, t->n_bytes);
    return true;
}

static td_status add_table(td_onnx_folder *f, const td_onnx_node *n, const table *x, bool *done)
{
    const size_t count = (size_t)(x->rows * x->columns);
    int64_t *at = td_arena_alloc(&f->arena, count, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    memcpy(at, x->at, count * sizeof *at);
    const td_tensor t = { .name = n->out[0],
                          .dtype = TD_DT_I64,
                          .rank = 2,
                          .dim = { x->rows, x->columns },
                          .data = at,
                          .n_bytes = count * sizeof *at };
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* a list as rows: Reshape to [-1, columns] */
static td_status fold_rows(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    list to;
    table y;
    if (!list_of(operand(f, n, 1), &to) || to.n != 2 || to.at[0] != -1 || to.at[1] < 1 ||
        to.at[1] > x->n || x->n % to.at[1])
        return TD_OK;
    y = (table){ .rows = (int)(x->n / to.at[1]), .columns = (int)to.at[1] };
    memcpy(y.at, x->at, (size_t)x->n * sizeof *y.at);
    return add_table(f, n, &y, done);
}

/* is operand i the number `value` alone? */
static bool is_one(const td_onnx_folder *f, const td_onnx_node *n, int i, int64_t value)
{
    list l;
    return list_of(operand(f, n, i), &l) && l.n == 1 && l.at[0] == value;
}

/* the rows in reverse order */
static td_status fold_reverse(td_onnx_folder *f, const td_onnx_node *n, const table *x, bool *done)
{
    list end;
    table y = { .rows = x->rows, .columns = x->columns };
    if (!is_one(f, n, 1, -1) || !list_of(operand(f, n, 2), &end) || end.n != 1 ||
        end.at[0] >= -x->rows || !is_one(f, n, 3, 0) || !is_one(f, n, 4, -1))
        return TD_OK;
    for (int i = 0; i < x->rows; i++)
        memcpy(y.at + i * x->columns, x->at + (x->rows - 1 - i) * x->columns,
               (size_t)x->columns * sizeof *y.at);
    return add_table(f, n, &y, done);
}

static td_status fold_table(td_onnx_folder *f, const td_onnx_node *n, const table *x, bool *done)
{
    const td_onnx_attr *perm = td_onnx_attr_find(n, "perm");
    if (strcmp(n->op, "Slice") == 0)
        return fold_reverse(f, n, x, done);
    if (strcmp(n->op, "Reshape") == 0 && is_one(f, n, 1, -1)) {
        list l = { .rank = 1, .n = x->rows * x->columns };
        memcpy(l.at, x->at, (size_t)l.n * sizeof *l.at);
        *done = true;
        return add_list(f, n, &l);
    }
    if (strcmp(n->op, "Transpose") != 0 ||
        (perm && (perm->kind != TD_ONNX_INTS || perm->n != 2 || perm->ints[0] != 1)))
        return TD_OK;
    table y = { .rows = x->columns, .columns = x->rows };
    for (int i = 0; i < y.rows; i++)
        for (int k = 0; k < y.columns; k++)
            y.at[i * y.columns + k] = x->at[k * x->columns + i];
    return add_table(f, n, &y, done);
}

/* --- float32 numbers ------------------------------------------------------------------------- */

/* lists one behind the other: the scales of a Resize */
static td_status fold_floats(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    float *at = td_arena_alloc(&f->arena, TD_ONNX_FOLD_MAX, sizeof *at);
    int64_t count = 0;
    if (!at)
        return TD_ENOMEM;
    for (int i = 0; i < n->n_in; i++) {
        const td_tensor *x = operand(f, n, i);
        if (!is_fixed(f, x) || x->dtype != TD_DT_F32 || x->rank != 1 ||
            count + x->dim[0] > TD_ONNX_FOLD_MAX)
            return TD_OK;
        if (x->n_bytes)
            memcpy(at + count, x->data, x->n_bytes);
        count += x->dim[0];
    }
    const td_tensor t = { .name = n->out[0],
                          .dtype = TD_DT_F32,
                          .rank = 1,
                          .dim = { count },
                          .data = at,
                          .n_bytes = (size_t)count * sizeof *at };
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* --- one float32 number ----------------------------------------------------------------------- */

static bool number_of(const td_onnx_folder *f, const td_tensor *t, float *out)
{
    list l;
    if (is_fixed(f, t) && t->dtype == TD_DT_F32 && t->rank <= 1 && t->n_bytes == sizeof *out) {
        memcpy(out, t->data, sizeof *out);
        return true;
    }
    if (!is_fixed(f, t) || !list_of(t, &l) || l.n != 1)
        return false;
    *out = (float)l.at[0];
    return true;
}

/* a scale that is computed from a shape: 1 / sqrt(columns) */
static td_status fold_number(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    const td_tensor *first = operand(f, n, 0), *second = operand(f, n, 1);
    float x, y = 1;
    const bool is_cast =
        strcmp(n->op, "Cast") == 0 && td_onnx_dtype_of(attr_of(n, "to", 0)) == TD_DT_F32;
    const bool is_div = strcmp(n->op, "Div") == 0, is_mul = strcmp(n->op, "Mul") == 0;
    if (!number_of(f, first, &x) || (!is_cast && first->dtype != TD_DT_F32))
        return TD_OK;
    if ((is_div || is_mul) && (!number_of(f, second, &y) || second->dtype != TD_DT_F32))
        return TD_OK;
    if (strcmp(n->op, "Sqrt") == 0)
        x = sqrtf(x);
    else if (is_div || is_mul)
        x = is_div ? x / y : x * y;
    else if (!is_cast)
        return TD_OK;
    float *at = td_arena_alloc(&f->arena, 1, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    *at = x;
    const td_tensor t = { .name = n->out[0],
                          .dtype = TD_DT_F32,
                          .rank = first->rank,
                          .dim = { 1 },
                          .data = at,
                          .n_bytes = sizeof *at };
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* --- entry point ------------------------------------------------------------------------------ */

static td_status fold_list(td_onnx_folder *f, const td_onnx_node *n, const list *x, bool *done)
{
    const char *op = n->op;
    if (strcmp(op, "Gather") == 0)
        return gather(f, n, x, done);
    if (strcmp(op, "Slice") == 0)
        return slice(f, n, x, done);
    if (strcmp(op, "Unsqueeze") == 0)
        return x->rank == 0 ? same(f, n, x, 1, done) : TD_OK;
    if (strcmp(op, "Squeeze") == 0)
        return same(f, n, x, 0, done);
    if (strcmp(op, "Cast") == 0)
        return td_onnx_dtype_of(attr_of(n, "to", 0)) == TD_DT_I64 ? same(f, n, x, x->rank, done)
                                                                  : TD_OK;
    if (strcmp(op, "Concat") == 0)
        return attr_of(n, "axis", 0) == 0 ? concat(f, n, done) : TD_OK;
    if (strcmp(op, "Reshape") == 0) {
        TD_TRY(fold_rows(f, n, x, done));
        return *done ? TD_OK : reshape(f, n, x, done);
    }
    if (strcmp(op, "ConstantOfShape") == 0)
        return repeat(f, n, x, done);
    if (strcmp(op, "Where") == 0)
        return where(f, n, x, done);
    if (strcmp(op, "Add") == 0 || strcmp(op, "Sub") == 0 || strcmp(op, "Mul") == 0 ||
        strcmp(op, "Div") == 0 || strcmp(op, "Mod") == 0 || strcmp(op, "Equal") == 0)
        return arithmetic(f, n, x, done);
    return TD_OK;
}

td_status td_onnx_fold(td_onnx_folder *f, const td_onnx_node *n, const td_type *x, bool *done)
{
    const td_tensor *first = operand(f, n, 0);
    list l;
    table pairs;
    *done = false;
    if (n->n_out != 1)
        return TD_OK;
    if (strcmp(n->op, "Constant") == 0)
        return constant(f, n, done);
    if (strcmp(n->op, "Shape") == 0 && (x || (first && first->rank <= TD_RANK_MAX))) {
        const td_type t = x ? *x : td_type_of(first->dtype, first->rank, first->dim);
        return shape(f, n, &t, done);
    }
    if (strcmp(n->op, "Identity") == 0 && first) {
        td_tensor t = *first;
        t.name = n->out[0];
        *done = true;
        return td_onnx_folder_add(f, n, &t);
    }
    if (list_of(first, &l))
        TD_TRY(fold_list(f, n, &l, done));
    else if (table_of(first, &pairs))
        TD_TRY(fold_table(f, n, &pairs, done));
    else if (strcmp(n->op, "Concat") == 0 && is_fixed(f, first) && attr_of(n, "axis", 0) == 0)
        TD_TRY(fold_floats(f, n, done));
    if (!*done)
        TD_TRY(fold_number(f, n, done));
    return *done ? TD_OK : td_onnx_fold_tensors(f, n, done);
}

void td_onnx_folder_release(td_onnx_folder *f)
{
    td_map_release(&f->fixed);
    td_map_release(&f->computed);
    td_arena_release(&f->arena);
}
