/*
 * pickle_names.c -- the allowed names, and tensors made from their arguments
 *
 * A tensor is a view of a storage: offset, sizes, strides.  They come from the file, so they are
 * checked here, including for overflow: the last element must be inside the storage.
 *
 * Source: PyTorch 2, torch/_utils.py (_rebuild_*), torch/storage.py; the list of names is a part of
 * torch/_weights_only_unpickler.py.
 */
#include "pth/pickle_names.h"

#include <inttypes.h>
#include <string.h>

#include "base/arena.h"

static bool is_kind(const td_plist *args, size_t i, td_pickle_kind kind)
{
    return i < args->n && args->at[i]->kind == kind;
}

/* --- containers and opaque values ------------------------------------------------------------- */

static td_status call_dict(const td_plist *args, td_pvalue *out)
{
    if (args->n != 0)
        return td_error(TD_EUNSUPPORTED, "OrderedDict with %zu arguments, wanted none", args->n);
    out->kind = TD_PICKLE_DICT;
    return TD_OK;
}

static td_status call_opaque(const td_plist *args, td_pvalue *out)
{
    (void)args;
    out->kind = TD_PICKLE_OPAQUE;
    return TD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static td_status read_ints(const td_pvalue *v, const char *what, int64_t out[TD_PICKLE_RANK_MAX],
                           int *n)
{
    if (v->kind != TD_PICKLE_TUPLE)
        return td_error(TD_EFORMAT, "tensor: its %ss are %s, wanted a tuple", what,
                        td_pickle_kind_name(v->kind));
    if (v->list.n > TD_PICKLE_RANK_MAX)
        return td_error(TD_ELIMIT, "tensor: %zu dimensions, at most %d are read", v->list.n,
                        TD_PICKLE_RANK_MAX);
    for (size_t i = 0; i < v->list.n; i++) {
        const td_pvalue *x = v->list.at[i];
        if (x->kind != TD_PICKLE_INT || x->whole < 0)
            return td_error(TD_EFORMAT, "tensor: %s %zu is %s, wanted an integer of 0 or more",
                            what, i,
                            x->kind == TD_PICKLE_INT ? "negative" : td_pickle_kind_name(x->kind));
        out[i] = x->whole;
    }
    *n = (int)v->list.n;
    return TD_OK;
}

/* computes the number of elements, and the index of the last one; false if either overflows */
static bool measure(const td_ptensor *t, int64_t *n, int64_t *last)
{
    size_t count = 1, at = (size_t)t->offset, step;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] == 0) {
            *n = *last = 0;
            return true;
        }
        if (!td_mul_size(count, (size_t)t->dim[i], &count) ||
            !td_mul_size((size_t)t->dim[i] - 1, (size_t)t->stride[i], &step) ||
            !td_add_size(at, step, &at) || count > INT64_MAX || at > INT64_MAX)
            return false;
    }
    *n = (int64_t)count;
    *last = (int64_t)at;
    return true;
}

static td_status check_extent(td_ptensor *t)
{
    int64_t last, has = t->storage->storage.n;
    if (!measure(t, &t->n, &last))
        return td_error(TD_EFORMAT, "tensor: its sizes and strides exceed any memory");
    if (t->offset > has || (t->n > 0 && last >= has))
        return td_error(TD_EFORMAT,
                        "tensor: element %" PRId64 " of a storage of %" PRId64 " elements",
                        t->n > 0 ? last : t->offset, has);
    return TD_OK;
}

/* (storage, offset, sizes, strides, ...): requires_grad and hooks are ignored */
static td_status call_tensor(const td_plist *args, td_pvalue *out)
{
    int n_strides = 0;
    td_ptensor t = { 0 };
    if (args->n < 4 || args->n > 7 || !is_kind(args, 0, TD_PICKLE_STORAGE) ||
        !is_kind(args, 1, TD_PICKLE_INT) || args->at[1]->whole < 0)
        return td_error(TD_EFORMAT, "tensor: malformed arguments");
    t.storage = args->at[0];
    t.dtype = t.storage->storage.type->dtype;
    t.type = t.storage->storage.type->name;
    t.offset = args->at[1]->whole;
    TD_TRY(read_ints(args->at[2], "size", t.dim, &t.rank));
    TD_TRY(read_ints(args->at[3], "stride", t.stride, &n_strides));
    if (t.rank != n_strides)
        return td_error(TD_EFORMAT, "tensor: %d sizes, %d strides", t.rank, n_strides);
    TD_TRY(check_extent(&t));
    out->kind = TD_PICKLE_TENSOR;
    out->tensor = t;
    return TD_OK;
}

/* types without a storage class: td_dtype lacks them, so their size is not computed */
static td_status call_tensor_v3(const td_plist *args, td_pvalue *out)
{
    if (args->n < 7 || !is_kind(args, 0, TD_PICKLE_STORAGE) || !is_kind(args, 6, TD_PICKLE_NAME))
        return td_error(TD_EFORMAT, "tensor: malformed arguments");
    out->kind = TD_PICKLE_TENSOR;
    out->tensor = (td_ptensor){ .storage = args->at[0], .type = args->at[6]->name->name };
    return TD_OK;
}

/* (tensor, requires_grad, hooks) */
static td_status call_parameter(const td_plist *args, td_pvalue *out)
{
    if (args->n < 1 || !is_kind(args, 0, TD_PICKLE_TENSOR))
        return td_error(TD_EFORMAT, "parameter: wanted a tensor");
    out->kind = TD_PICKLE_TENSOR;
    out->tensor = args->at[0]->tensor;
    return TD_OK;
}

/* --- the table -------------------------------------------------------------------------------- */

/* clang-format off */
#define CALL(m, n, f)       { .module = m, .name = n, .call = f }
#define OPAQUE(m, n)        { .module = m, .name = n, .call = call_opaque, .is_opaque = true }
#define DTYPE(n)            { .module = "torch", .name = n }
#define STORAGE(n, bytes, type)                                                                    \
    { .module = "torch", .name = n "Storage", .dtype = type, .n_bytes = bytes, .is_storage = true }

static const td_pickle_name names[] = {
    CALL("collections", "OrderedDict", call_dict),
    CALL("torch._utils", "_rebuild_tensor", call_tensor),
    CALL("torch._utils", "_rebuild_tensor_v2", call_tensor),
    CALL("torch._utils", "_rebuild_tensor_v3", call_tensor_v3),
    CALL("torch._utils", "_rebuild_parameter", call_parameter),
    CALL("torch._utils", "_rebuild_parameter_with_state", call_parameter),

    STORAGE("Float",        4,  TD_DT_F32),
    STORAGE("Double",       8,  TD_DT_F64),
    STORAGE("Half",         2,  TD_DT_F16),
    STORAGE("BFloat16",     2,  TD_DT_BF16),
    STORAGE("Long",         8,  TD_DT_I64),
    STORAGE("Int",          4,  TD_DT_I32),
    STORAGE("Byte",         1,  TD_DT_U8),
    STORAGE("Char",         1,  TD_DT_S8),
    STORAGE("Bool",         1,  TD_DT_U8), /* one byte per element, 0 or 1 */
    STORAGE("Short",        2,  TD_DT_NONE),
    STORAGE("ComplexFloat", 8,  TD_DT_NONE),
    STORAGE("ComplexDouble",16, TD_DT_NONE),
    { .module = "torch.storage", .name = "UntypedStorage", .n_bytes = 1, .is_storage = true },

    DTYPE("float32"), DTYPE("float64"), DTYPE("float16"), DTYPE("bfloat16"), DTYPE("int64"),
    DTYPE("int32"), DTYPE("int16"), DTYPE("int8"), DTYPE("uint8"), DTYPE("bool"), DTYPE("uint16"),
    DTYPE("uint32"), DTYPE("uint64"), DTYPE("float8_e4m3fn"), DTYPE("float8_e5m2"),

    OPAQUE("builtins", "set"),
    OPAQUE("__builtin__", "set"),
    OPAQUE("torch", "Size"),
    OPAQUE("torch", "device"),
    OPAQUE("argparse", "Namespace"),
    OPAQUE("_codecs", "encode"), /* the bytes of a numpy scalar */
    OPAQUE("numpy", "dtype"),
    OPAQUE("numpy", "ndarray"),
    OPAQUE("numpy.core.multiarray", "scalar"),
    OPAQUE("numpy._core.multiarray", "scalar"),
    OPAQUE("numpy.core.multiarray", "_reconstruct"),
    OPAQUE("numpy._core.multiarray", "_reconstruct"),
};
/* clang-format on */

static bool is_text(td_ptext t, const char *text)
{
    return strlen(text) == t.len && memcmp(t.bytes, text, t.len) == 0;
}

const td_pickle_name *td_pickle_name_find(td_ptext module, td_ptext name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_text(module, names[i].module) && is_text(name, names[i].name))
            return &names[i];
    return NULL;
}
