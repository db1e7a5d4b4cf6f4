/*
 * index_values.c -- see index_values.h
 *
 * PyTorch's newer exporter writes as_strided as a Gather whose indices are sums of a Range over the
 * batch and of constants, repeated along each other's dimensions.  Shifted windows have a mask: the
 * numbers of regions, which ScatterND writes into zeros, are compared with each other.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include "onnx_import/index_values.h"

#include <math.h>
#include <string.h>

#include "onnx_import/known_tensor.h"

#define RANK_MAX TD_KNOWN_RANK_MAX
#define BOOL     9 /* TensorProto.DataType */

/* --- numbers ---------------------------------------------------------------------------------- */

static td_status range_of_floats(td_onnx_folder *f, const td_onnx_node *n, const td_known *x,
                                 bool *done)
{
    td_tensor t;
    void *data;
    const float start = td_known_float(&x[0], 0), step = td_known_float(&x[2], 0);
    const double count = ceil(((double)td_known_float(&x[1], 0) - (double)start) / (double)step);
    if (!(count >= 1 && count <= (double)TD_ONNX_KNOWN_MAX))
        return TD_OK;
    TD_TRY(td_known_new(f, n, TD_DT_F32, 1, (int64_t[]){ (int64_t)count }, &t, &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)count; i++)
        ((float *)data)[i] = start + (float)i * step;
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

static td_status range(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x[3];
    td_tensor t;
    void *data;
    bool are_floats = true;
    for (int i = 0; i < 3; i++) {
        if (!td_known_beside(f, n, i, &x[i]) || x[i].count != 1)
            return TD_OK;
        are_floats = are_floats && x[i].dtype == TD_DT_F32;
    }
    if (are_floats)
        return range_of_floats(f, n, x, done);
    for (int i = 0; i < 3; i++)
        if (x[i].dtype != TD_DT_I64)
            return TD_OK;
    const int64_t start = td_known_int(&x[0], 0), limit = td_known_int(&x[1], 0),
                  step = td_known_int(&x[2], 0);
    const int64_t most = TD_ONNX_KNOWN_MAX;
    if (step < 1 || step > most || start < 0 || limit > most * most || limit <= start)
        return TD_OK; /* no exporter counts down */
    TD_TRY(td_known_new(f, n, TD_DT_I64, 1, (int64_t[]){ (limit - start + step - 1) / step }, &t,
                        &data));
    if (!data)
        return TD_OK;
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / 8); i++)
        ((int64_t *)data)[i] = start + i * step;
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

typedef enum { ADD, SUB, MUL, DIV, POW, EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL } of_floats;

static const char *const of_floats_names[] = {
    "Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
};

static float compute_float(of_floats op, float a, float b)
{
    switch (op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case POW:
        return powf(a, b);
    default:
        return a / b;
    }
}

static bool compare_floats(of_floats op, float a, float b)
{
    switch (op) {
    case LESS:
        return a < b;
    case LESS_EQUAL:
        return a <= b;
    case GREATER:
        return a > b;
    case GREATER_EQUAL:
        return a >= b;
    default:
        return a >= b && a <= b;
    }
}

static td_status arithmetic_of_floats(td_onnx_folder *f, const td_onnx_node *n, const td_known *x,
                                      const td_known *y, bool *done)
{
    int rank, op = 0;
    int64_t dim[RANK_MAX];
    td_tensor t;
    void *data;
    while (op <= GREATER_EQUAL && strcmp(n->op, of_floats_names[op]) != 0)
        op++;
    if (op > GREATER_EQUAL || !td_known_common(x, y, &rank, dim))
        return TD_OK;
    const bool is_test = op >= EQUAL;
    TD_TRY(td_known_new(f, n, is_test ? TD_DT_I64 : TD_DT_F32, rank, dim, &t, &data));
    for (int64_t i = 0; data && i < (int64_t)(t.n_bytes / td_dtype_bytes(t.dtype)); i++) {
        const float a = td_known_float(x, td_known_repeated(x, rank, dim, i));
        const float b = td_known_float(y, td_known_repeated(y, rank, dim, i));
        if (is_test)
            ((int64_t *)data)[i] = compare_floats((of_floats)op, a, b);
        else
            ((float *)data)[i] = compute_float((of_floats)op, a, b);
    }
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

static td_status arithmetic(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, y;
    td_tensor t;
    void *data;
    int64_t dim[RANK_MAX];
    int rank;
    if (!td_known_beside(f, n, 0, &x) || !td_known_beside(f, n, 1, &y) ||
        (!td_known_get(f, n, 0, &x) && !td_known_get(f, n, 1, &y)))
        return TD_OK;
    const bool is_float = x.dtype == TD_DT_F32;
    if (is_float != (y.dtype == TD_DT_F32) || !td_known_common(&x, &y, &rank, dim))
        return TD_OK;
    if (is_float)
        return arithmetic_of_floats(f, n, &x, &y, done);
    if (strcmp(n->op, "Pow") == 0)
        return TD_OK;
    TD_TRY(td_known_new(f, n, TD_DT_I64, rank, dim, &t, &data));
    for (int64_t i = 0; data && i < (int64_t)(t.n_bytes / 8); i++)
        if (!td_onnx_compute(n->op, td_known_int(&x, td_known_repeated(&x, rank, dim, i)),
                             td_known_int(&y, td_known_repeated(&y, rank, dim, i)),
                             &((int64_t *)data)[i]))
            return td_error(TD_EFORMAT, "integers overflow, or are divided by 0");
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

/* one of an operator's floats: Neg, Abs, Sqrt, Ceil, Floor, Sin, Cos */
static float float_of(const char *op, float x)
{
    return strcmp(op, "Neg") == 0    ? -x
           : strcmp(op, "Abs") == 0  ? fabsf(x)
           : strcmp(op, "Sqrt") == 0 ? sqrtf(x)
           : strcmp(op, "Ceil") == 0 ? ceilf(x)
           : strcmp(op, "Sin") == 0  ? sinf(x)
           : strcmp(op, "Cos") == 0  ? cosf(x)
                                     : floorf(x);
}

/* these, and Not of integers */
static td_status one_operand(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    td_tensor t;
    void *data;
    const bool is_not = strcmp(n->op, "Not") == 0, is_negative = strcmp(n->op, "Neg") == 0;
    if (!td_known_get(f, n, 0, &x))
        return TD_OK;
    const bool is_float = x.dtype == TD_DT_F32;
    if (is_float ? is_not : !is_not && !is_negative)
        return TD_OK;
    TD_TRY(td_known_new(f, n, is_float ? TD_DT_F32 : TD_DT_I64, x.rank, x.dim, &t, &data));
    for (int64_t i = 0; data && i < x.count; i++) {
        if (is_float)
            ((float *)data)[i] = float_of(n->op, td_known_float(&x, i));
        else if (is_not)
            ((int64_t *)data)[i] = td_known_int(&x, i) == 0;
        else if (!td_onnx_compute("Sub", 0, td_known_int(&x, i), &((int64_t *)data)[i]))
            return td_error(TD_EFORMAT, "integers overflow");
    }
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

/* sums along an axis, of floats in double precision */
static td_status cumulative_sum(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, at;
    td_tensor t;
    void *data;
    int64_t inner = 1;
    if (n->n_attr || !td_known_get(f, n, 0, &x) || x.dtype == TD_DT_U8 ||
        !td_known_get(f, n, 1, &at) || at.count != 1 || at.dtype != TD_DT_I64)
        return TD_OK; /* no exporter writes the attributes, reverse and exclusive */
    const int64_t axis = td_known_int(&at, 0) + (td_known_int(&at, 0) < 0 ? x.rank : 0);
    if (axis < 0 || axis >= x.rank)
        return td_error(TD_EFORMAT, "an axis is out of range");
    for (int64_t d = axis + 1; d < x.rank; d++)
        inner *= x.dim[d];
    TD_TRY(td_known_new(f, n, x.dtype, x.rank, x.dim, &t, &data));
    if (!data)
        return TD_OK;
    const int64_t size = x.dim[axis];
    for (int64_t i = 0; i < x.count / size; i++) {
        double sum = 0;
        int64_t whole = 0;
        for (int64_t k = 0; k < size; k++) {
            const int64_t to = (i / inner * size + k) * inner + i % inner;
            if (x.dtype == TD_DT_F32)
                ((float *)data)[to] = (float)(sum += (double)td_known_float(&x, to));
            else if (!td_onnx_compute("Add", whole, td_known_int(&x, to), &whole))
                return td_error(TD_EFORMAT, "integers overflow");
            else
                ((int64_t *)data)[to] = whole;
        }
    }
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* a float as an integer, truncated; false: it has no such integer */
static bool to_int(float x, int64_t *out)
{
    if (!(x > -0x1p63f && x < 0x1p63f))
        return false;
    *out = (int64_t)x;
    return true;
}

static td_status cast_to(td_onnx_folder *f, const td_onnx_node *n, td_dtype to, bool is_bool,
                         bool *done)
{
    td_known x;
    td_tensor t;
    void *data;
    if (!td_known_get(f, n, 0, &x) || (to != TD_DT_I64 && to != TD_DT_F32))
        return TD_OK;
    TD_TRY(td_known_new(f, n, to, x.rank, x.dim, &t, &data));
    for (int64_t i = 0; data && i < x.count; i++) {
        const float real =
            x.dtype == TD_DT_F32 ? td_known_float(&x, i) : (float)td_known_int(&x, i);
        int64_t *integer = (int64_t *)data + (to == TD_DT_I64 ? i : 0);
        if (to == TD_DT_F32)
            ((float *)data)[i] = real;
        else if (is_bool)
            *integer = real < 0 || real > 0;
        else if (x.dtype != TD_DT_F32)
            *integer = td_known_int(&x, i);
        else if (!to_int(real, integer))
            return td_error(TD_EFORMAT, "a number without an integer becomes one");
    }
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

static td_status cast(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "to");
    const bool is_bool = a && a->kind == TD_ONNX_INT && a->i == BOOL;
    const td_dtype to = a ? td_onnx_dtype_of(a->i) : TD_DT_NONE;
    return cast_to(f, n, is_bool ? TD_DT_I64 : to, is_bool, done);
}

/* to the type of operand 1: a tensor's, or f32, which values of the graph are */
static td_status cast_like(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    const td_tensor *like = n->n_in > 1 ? td_map_get(f->tensors, n->in[1]) : NULL;
    return cast_to(f, n, like ? like->dtype : TD_DT_F32, false, done);
}

/* Clip of floats by one number or two, as operands */
static td_status clip(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x, limit[2];
    td_tensor t;
    void *data;
    float least = -INFINITY, most = INFINITY;
    if (n->n_attr || !td_known_get(f, n, 0, &x) || x.dtype != TD_DT_F32)
        return TD_OK;
    for (int i = 0; i < 2; i++) {
        if (i + 1 >= n->n_in || !*n->in[i + 1])
            continue;
        if (!td_known_beside(f, n, i + 1, &limit[i]) || limit[i].dtype != TD_DT_F32 ||
            limit[i].count != 1)
            return TD_OK;
        *(i ? &most : &least) = td_known_float(&limit[i], 0);
    }
    TD_TRY(td_known_new(f, n, TD_DT_F32, x.rank, x.dim, &t, &data));
    for (int64_t i = 0; data && i < x.count; i++)
        ((float *)data)[i] = fminf(fmaxf(td_known_float(&x, i), least), most);
    *done = data != NULL;
    return data ? td_onnx_folder_add(f, n, &t) : TD_OK;
}

/* --- the same elements with other dimensions -------------------------------------------------- */

static td_status with_dims(td_onnx_folder *f, const td_onnx_node *n, const td_known *x, int rank,
                           const int64_t *dim, bool *done)
{
    int64_t count = 1;
    td_tensor t = {
        .name = n->out[0], .dtype = x->dtype, .rank = rank, .n_bytes = (size_t)x->count * x->each
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

/* Max, Min of one operand, which is the result, or two */
static td_status extreme(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    if (n->n_in == 1 && td_known_get(f, n, 0, &x))
        return with_dims(f, n, &x, x.rank, x.dim, done);
    return n->n_in == 2 ? arithmetic(f, n, done) : TD_OK;
}

/* the list of attribute or operand `axes` as bits of the result's (Unsqueeze) or x's dimensions */
static bool get_axes(const td_onnx_folder *f, const td_onnx_node *n, int rank, unsigned *bits,
                     int *count)
{
    const td_onnx_attr *a = td_onnx_attr_find(n, "axes");
    int64_t list[RANK_MAX];
    *bits = 0;
    if (a && a->kind == TD_ONNX_INTS && a->n <= RANK_MAX)
        memcpy(list, a->ints, (size_t)(*count = a->n) * sizeof *list);
    else if (!td_known_list(f, n, 1, count, list))
        return false;
    for (int i = 0; i < *count; i++) {
        const int r = rank >= 0 ? rank : -1 - rank + *count;
        const int64_t axis = list[i] + (list[i] < 0 ? r : 0);
        if (axis < 0 || axis >= r || r > RANK_MAX || (*bits >> axis & 1))
            return false;
        *bits |= 1u << axis;
    }
    return true;
}

static td_status unsqueeze(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    unsigned bits;
    int count, k = 0;
    int64_t dim[RANK_MAX];
    if (!td_known_get(f, n, 0, &x) || !get_axes(f, n, -1 - x.rank, &bits, &count) ||
        x.rank + count > RANK_MAX)
        return TD_OK;
    for (int d = 0; d < x.rank + count; d++)
        dim[d] = bits >> d & 1 ? 1 : x.dim[k++];
    return with_dims(f, n, &x, x.rank + count, dim, done);
}

static td_status squeeze(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    unsigned bits;
    int count, rank = 0;
    int64_t dim[RANK_MAX];
    if (!td_known_get(f, n, 0, &x) || !get_axes(f, n, x.rank, &bits, &count))
        return TD_OK;
    for (int d = 0; d < x.rank; d++)
        if (!(bits >> d & 1))
            dim[rank++] = x.dim[d];
    return with_dims(f, n, &x, rank, dim, done);
}

static td_status reshape(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    int64_t dim[RANK_MAX], known = 1;
    int open = -1, rank;
    if (!td_known_get(f, n, 0, &x) || !td_known_list(f, n, 1, &rank, dim))
        return TD_OK;
    for (int d = 0; d < rank; d++) {
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
    return with_dims(f, n, &x, rank, dim, done);
}

/* ReduceProd of a list of integers: how many elements dimensions have */
static td_status product_of_all(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    td_known x;
    td_tensor t;
    void *data;
    int64_t product = 1;
    unsigned axes;
    int count = 0;
    const td_onnx_attr *keep = td_onnx_attr_find(n, "keepdims");
    if (!td_known_get(f, n, 0, &x) || x.dtype != TD_DT_I64 || x.rank != 1 || x.count > RANK_MAX)
        return TD_OK;
    if ((n->n_in > 1 && *n->in[1]) || td_onnx_attr_find(n, "axes")) {
        if (!get_axes(f, n, x.rank, &axes, &count) || axes != 1)
            return TD_OK;
    }
    for (int64_t i = 0; i < x.count; i++)
        if (!td_onnx_compute("Mul", product, td_known_int(&x, i), &product))
            return td_error(TD_EFORMAT, "integers overflow");
    const bool is_number = keep && keep->kind == TD_ONNX_INT && keep->i == 0;
    TD_TRY(td_known_new(f, n, TD_DT_I64, !is_number, (int64_t[]){ 1 }, &t, &data));
    if (!data)
        return TD_OK;
    *(int64_t *)data = product;
    *done = true;
    return td_onnx_folder_add(f, n, &t);
}

/* --- entry point ------------------------------------------------------------------------------ */

td_status td_onnx_fold_tensors(td_onnx_folder *f, const td_onnx_node *n, bool *done)
{
    static const struct {
        const char *op;
        td_known_fold *fold;
    } rows[] = {
        { "Range", range },
        { "Add", arithmetic },
        { "Sub", arithmetic },
        { "Mul", arithmetic },
        { "Div", arithmetic },
        { "Pow", arithmetic },
        { "Mod", arithmetic },
        { "Equal", arithmetic },
        { "Less", arithmetic },
        { "LessOrEqual", arithmetic },
        { "Greater", arithmetic },
        { "GreaterOrEqual", arithmetic },
        { "Max", extreme },
        { "Min", extreme },
        { "And", arithmetic },
        { "Or", arithmetic },
        { "Neg", one_operand },
        { "Abs", one_operand },
        { "Sqrt", one_operand },
        { "Not", one_operand },
        { "Ceil", one_operand },
        { "Floor", one_operand },
        { "Sin", one_operand },
        { "Cos", one_operand },
        { "CumSum", cumulative_sum },
        { "Clip", clip },
        { "Cast", cast },
        { "CastLike", cast_like },
        { "Unsqueeze", unsqueeze },
        { "Squeeze", squeeze },
        { "Reshape", reshape },
        { "Expand", td_known_expand },
        { "Tile", td_known_tile },
        { "Transpose", td_known_transpose },
        { "Slice", td_known_slice },
        { "Gather", td_known_gather },
        { "Concat", td_known_concat },
        { "Where", td_known_where },
        { "ScatterND", td_known_scatter },
        { "ConstantOfShape", td_known_fill },
        { "Trilu", td_known_triangle },
        { "ReduceProd", product_of_all },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(n->op, rows[i].op) == 0)
            return rows[i].fold(f, n, done);
    return TD_OK;
}
