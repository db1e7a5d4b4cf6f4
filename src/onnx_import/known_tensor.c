/*
 * known_tensor.c -- see known_tensor.h, and the functions of shape_values.h that computing needs
 */
#include "onnx_import/known_tensor.h"

#include <string.h>

#define RANK_MAX TD_KNOWN_RANK_MAX

/* --- the folder ------------------------------------------------------------------------------- */

bool td_onnx_is_computed(const td_onnx_folder *f, const char *name)
{
    return td_map_has(&f->computed, name);
}

static bool is_fixed(const td_onnx_folder *f, const char *name)
{
    return td_map_has(&f->fixed, name);
}

td_status td_onnx_folder_add(td_onnx_folder *f, const td_onnx_node *n, const td_tensor *t)
{
    td_tensor *copy = td_arena_alloc(&f->arena, 1, sizeof *copy);
    if (!copy)
        return TD_ENOMEM;
    *copy = *t;
    const bool is_same = strcmp(n->op, "Identity") == 0;
    if (!is_same || is_fixed(f, n->in[0]))
        TD_TRY(td_map_set(&f->fixed, n->out[0], copy));
    if (is_same ? td_onnx_is_computed(f, n->in[0]) : strcmp(n->op, "Constant") != 0)
        TD_TRY(td_map_set(&f->computed, n->out[0], copy));
    return td_map_set(f->tensors, n->out[0], copy);
}

td_status td_onnx_folder_fix(td_onnx_folder *f, const char *name)
{
    return td_map_set(&f->computed, name, td_map_get(f->tensors, name));
}

bool td_onnx_folder_read(td_onnx_folder *f, int64_t count)
{
    if (count > TD_ONNX_KNOWN_MAX - f->n_read)
        return false;
    f->n_read += count;
    return true;
}

/* --- integers --------------------------------------------------------------------------------- */

static bool compare(const char *op, int64_t a, int64_t b, int64_t *out)
{
    const struct {
        const char *op;
        bool is_true;
    } rows[] = {
        { "Equal", a == b },
        { "Less", a < b },
        { "LessOrEqual", a <= b },
        { "Greater", a > b },
        { "GreaterOrEqual", a >= b },
        { "And", a && b },
        { "Or", a || b },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(op, rows[i].op) == 0) {
            *out = rows[i].is_true;
            return true;
        }
    return false;
}

bool td_onnx_compute(const char *op, int64_t a, int64_t b, int64_t *out)
{
    if (strcmp(op, "Add") == 0)
        return !__builtin_add_overflow(a, b, out);
    if (strcmp(op, "Sub") == 0)
        return !__builtin_sub_overflow(a, b, out);
    if (strcmp(op, "Mul") == 0)
        return !__builtin_mul_overflow(a, b, out);
    if (strcmp(op, "Max") == 0 || strcmp(op, "Min") == 0) {
        *out = (a > b) == (op[1] == 'a') ? a : b;
        return true;
    }
    if (compare(op, a, b, out))
        return true;
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    *out = a / b;
    if (strcmp(op, "Mod") == 0) { /* the sign of b */
        *out = a % b;
        *out += *out && (*out < 0) != (b < 0) ? b : 0;
    }
    return true;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* operand i of a type that is computed; floats of at most `most` bytes, or that are fixed */
static bool get(const td_onnx_folder *f, const td_onnx_node *n, int i, size_t most, td_known *out)
{
    const td_tensor *t = i < n->n_in ? td_map_get(f->tensors, n->in[i]) : NULL;
    if (!t || (t->dtype != TD_DT_I64 && t->dtype != TD_DT_F32 && t->dtype != TD_DT_U8))
        return false;
    const bool is_small =
        td_map_has(&f->fixed, t->name) && t->n_bytes <= TD_ONNX_FOLD_MAX * sizeof(float);
    if (t->dtype == TD_DT_F32 && t->n_bytes > most && !is_small && !td_onnx_is_computed(f, t->name))
        return false;
    *out = (td_known){
        .dtype = t->dtype, .rank = t->rank, .each = td_dtype_bytes(t->dtype), .bytes = t->data
    };
    out->count = (int64_t)(t->n_bytes / out->each);
    memcpy(out->dim, t->dim, (size_t)t->rank * sizeof *t->dim);
    return true;
}

bool td_known_get(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out)
{
    return get(f, n, i, 0, out);
}

bool td_known_beside(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out)
{
    return get(f, n, i, sizeof(float), out);
}

bool td_known_any(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out)
{
    return get(f, n, i, SIZE_MAX, out);
}

bool td_known_list(const td_onnx_folder *f, const td_onnx_node *n, int i, int *count, int64_t *out)
{
    td_known x;
    if (!td_known_get(f, n, i, &x) || x.dtype != TD_DT_I64 || x.rank != 1 || x.count > RANK_MAX)
        return false;
    *count = (int)x.count;
    for (int k = 0; k < *count; k++)
        out[k] = td_known_int(&x, k);
    return true;
}

int64_t td_known_int(const td_known *x, int64_t i)
{
    int64_t value;
    if (x->dtype == TD_DT_U8)
        return x->bytes[i] != 0;
    memcpy(&value, x->bytes + 8 * i, sizeof value);
    return value;
}

float td_known_float(const td_known *x, int64_t i)
{
    float value;
    memcpy(&value, x->bytes + 4 * i, sizeof value);
    return value;
}

td_status td_known_new(td_onnx_folder *f, const td_onnx_node *n, td_dtype dtype, int rank,
                       const int64_t *dim, td_tensor *t, void **data)
{
    int64_t count = 1;
    const size_t each = td_dtype_bytes(dtype);
    *data = NULL;
    for (int d = 0; d < rank; d++)
        count = dim[d] < 1 ? 0 : td_mul_capped(count, dim[d]);
    if (count < 1 || count > TD_ONNX_KNOWN_MAX - f->n_known)
        return TD_OK;
    *data = td_arena_alloc(&f->arena, (size_t)count, each);
    if (!*data)
        return TD_ENOMEM;
    f->n_known += count;
    *t = (td_tensor){ .name = n->out[0],
                      .dtype = dtype,
                      .rank = rank,
                      .data = *data,
                      .n_bytes = (size_t)count * each };
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
    return TD_OK;
}

bool td_known_common(const td_known *x, const td_known *y, int *rank, int64_t *dim)
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

int64_t td_known_repeated(const td_known *x, int rank, const int64_t *dim, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int d = rank - 1; d >= rank - x->rank; d--) {
        const int64_t own = x->dim[d - (rank - x->rank)];
        index += own > 1 ? i % dim[d] * step : 0;
        step *= own;
        i /= dim[d];
    }
    return index;
}
