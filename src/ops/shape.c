/*
 * concat(x...) {axis}                 operands concatenated along an axis
 * slice(x) {axis, start, size, step}  a part along an axis: every step-th index from `start`
 * slice_grad(dy, x) {..}              dy at its position, zeros elsewhere; x for its shape only
 * reshape(x) {shape}                  the same elements in plain order, with another shape; one
 *                                     dimension may be -1, which is what is left of the elements
 * cast(x) {to}                        another dtype; to nearest even; float -> i64 truncates
 * reorder(x) {layout, dtype}          the same values in another memory layout; "" is plain; floats
 *                                     may be rounded to another dtype on the way
 * resize_nearest(x) {height, width}   y[p, q] = x[floor(p H / P), floor(q W / Q)], as in PyTorch
 * resize_nearest_grad(dy, x)          the sum of dy over the copies of each pixel
 */
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"

const char *const td_cast_names[] = { "f32", "f64", "bf16", "f16", "i64", "i32", "u8", NULL };

td_dtype td_cast_to(const td_cast_attr *a)
{
    return td_dtype_parse(td_cast_names[a->to]);
}

td_cast_attr td_cast_attr_of(td_dtype d)
{
    td_cast_attr a = { 0 };
    while (td_cast_names[a.to + 1] && td_dtype_parse(td_cast_names[a.to]) != d)
        a.to++;
    return a;
}

static const char *const reorder_dtypes[] = { "same", "f32", "f64", "bf16", "f16", NULL };

td_reorder_attr td_reorder_attr_of(const char *layout, td_dtype d)
{
    td_reorder_attr a = { .layout = layout };
    for (int i = 1; reorder_dtypes[i]; i++)
        if (td_dtype_parse(reorder_dtypes[i]) == d)
            a.dtype = i;
    return a;
}

/* clang-format off */
static const td_field concat_fields[] = {
    TD_INT(td_concat_attr, axis, 1, 0, TD_RANK_MAX - 1, "dimension to join along"),
    TD_END,
};

static const td_field slice_fields[] = {
    TD_INT (td_slice_attr, axis,  1, 0, TD_RANK_MAX - 1, "dimension to cut along"),
    TD_LONG(td_slice_attr, start, 0, 0, 1e15, "first index kept"),
    TD_LONG(td_slice_attr, size,  1, 1, 1e15, "how many are kept"),
    TD_LONG(td_slice_attr, step,  1, 1, 1 << 20, "from one index kept to the next"),
    TD_END,
};

static const td_field reshape_fields[] = {
    TD_TEXT(td_reshape_attr, shape, "", "N:N:..", "new dimensions, joined by ':'"),
    TD_END,
};

static const td_field cast_fields[] = {
    TD_ENUM(td_cast_attr, to, 0, td_cast_names, "dtype of the result"),
    TD_END,
};

static const td_field reorder_fields[] = {
    TD_TEXT(td_reorder_attr, layout, "", "LAYOUT", "of the result; empty is plain"),
    TD_ENUM(td_reorder_attr, dtype, 0, reorder_dtypes, "of the result"),
    TD_END,
};

static const td_field resize_fields[] = {
    TD_INT(td_resize_attr, height, 1, 1, 65536, "rows of the result"),
    TD_INT(td_resize_attr, width,  1, 1, 65536, "columns of the result"),
    TD_END,
};
/* clang-format on */

static td_status concat_infer(const td_node *n, td_type *y)
{
    int axis = ((const td_concat_attr *)n->attr)->axis;
    *y = *td_in_type(n, 0);
    if (axis >= y->rank)
        return td_error(TD_ESHAPE, "concat: axis is %d, the operands have %d dimensions", axis,
                        y->rank);
    for (int i = 1; i < n->n_in; i++) {
        td_type t = *td_in_type(n, i);
        if (t.rank == y->rank)
            y->dim[axis] += t.dim[axis];
        t.dim[axis] = y->dim[axis];
        if (!td_type_same_shape(&t, y) || t.dtype != y->dtype)
            return td_error(TD_ESHAPE, "concat: operand %d does not match operand 0", i);
    }
    return TD_OK;
}

static td_status check_slice(const td_node *n, const td_type *x)
{
    const td_slice_attr *a = n->attr;
    const int64_t room = a->axis < x->rank ? x->dim[a->axis] - a->start : 0;
    if (room < 1 || td_mul_capped(a->size - 1, a->step) > room - 1)
        return td_error(TD_ESHAPE, "%s: [%lld, %lld) of axis %d is out of range", n->op->name,
                        (long long)a->start, (long long)(a->start + a->size), a->axis);
    return TD_OK;
}

static td_status slice_infer(const td_node *n, td_type *y)
{
    const td_slice_attr *a = n->attr;
    TD_TRY(check_slice(n, td_in_type(n, 0)));
    *y = *td_in_type(n, 0);
    y->dim[a->axis] = a->size;
    return TD_OK;
}

static td_status slice_grad_infer(const td_node *n, td_type *y)
{
    const td_slice_attr *a = n->attr;
    TD_TRY(check_slice(n, td_in_type(n, 1)));
    *y = td_type_as(td_in_type(n, 1), td_in_type(n, 0)->dtype);
    td_type part = *y;
    part.dim[a->axis] = a->size;
    if (!td_type_same_shape(&part, td_in_type(n, 0)))
        return td_error(TD_ESHAPE, "slice_grad: dy does not have the slice's shape");
    return TD_OK;
}

td_status td_shape_parse(const td_node *n, td_type *out)
{
    const char *shape = ((const td_reshape_attr *)n->attr)->shape, *s = shape ? shape : "";
    bool is_open = false;
    *out = (td_type){ .dtype = td_in_type(n, 0)->dtype };
    while (*s) {
        char *end;
        const bool is_rest = s[0] == '-' && s[1] == '1' && !is_open;
        const bool is_number = (*s >= '0' && *s <= '9') || is_rest;
        long long d = strtoll(s, &end, 10);
        if (!is_number || (d < 1 && d != -1) || d > (1ll << 40) || out->rank == TD_RANK_MAX ||
            (*end && *end != ':') || (*end && !end[1]))
            return td_error(TD_ESHAPE, "%s: '%.80s' is not a shape like 8:64:1:1", n->op->name,
                            shape);
        is_open = is_open || (is_rest && n->op == &td_op_reshape);
        out->dim[out->rank++] = d;
        s = *end ? end + 1 : end;
    }
    return TD_OK;
}

static td_status reshape_infer(const td_node *n, td_type *y)
{
    const int64_t count = td_type_count(td_in_type(n, 0));
    int64_t known = 1, *rest = NULL;
    TD_TRY(td_shape_parse(n, y));
    for (int d = 0; d < y->rank; d++)
        if (y->dim[d] < 0)
            rest = &y->dim[d];
        else
            known = td_mul_capped(known, y->dim[d]);
    if (rest)
        *rest = count / known > 0 ? count / known : 1;
    if (td_type_count(y) != count)
        return td_error(TD_ESHAPE, "reshape: %lld elements do not make %lld", (long long)count,
                        (long long)td_type_count(y));
    return TD_OK;
}

static td_status cast_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    y->dtype = td_cast_to(n->attr);
    return TD_OK;
}

static td_status reorder_infer(const td_node *n, td_type *y)
{
    const td_reorder_attr *a = n->attr;
    const char *layout = a->layout;
    td_blocking bl;
    size_t len = layout ? strlen(layout) : 0;
    *y = td_type_plain(td_in_type(n, 0));
    if (len >= TD_LAYOUT_BYTES)
        return td_error(TD_ESHAPE, "reorder: '%.40s' is not a layout", layout);
    if (len)
        memcpy(y->layout, layout, len + 1);
    if (a->dtype && !td_dtype_is_float(y->dtype))
        return td_error(TD_ESHAPE, "reorder: a dtype was named for operand 0, which is %s",
                        td_dtype_name(y->dtype));
    if (a->dtype)
        y->dtype = td_dtype_parse(reorder_dtypes[a->dtype]);
    if (!td_type_blocking(y, &bl))
        return td_error(TD_ESHAPE, "reorder: layout '%s' does not match operand 0", y->layout);
    return TD_OK;
}

static td_status resize_infer(const td_node *n, td_type *y)
{
    const td_resize_attr *a = n->attr;
    *y = *td_in_type(n, 0);
    y->dim[2] = a->height;
    y->dim[3] = a->width;
    return TD_OK;
}

static td_status resize_grad_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0);
    *y = td_type_as(td_in_type(n, 1), dy->dtype);
    if (dy->dim[0] != y->dim[0] || dy->dim[1] != y->dim[1])
        return td_error(TD_ESHAPE, "resize_nearest_grad: dy and x differ in N or C");
    return TD_OK;
}

static void concat_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_slice_attr a = { .axis = ((const td_concat_attr *)n->attr)->axis, .step = 1 };
    for (int i = 0; i < n->n_in; i++) {
        a.size = td_in_type(n, i)->dim[a.axis];
        dx[i] = td_emit(b, &td_op_slice, &a, dy[0]);
        a.start += a.size;
    }
}

static void slice_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_slice_grad, n->attr, dy[0], n->in[0]);
}

static void reshape_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_reshape(b, dy[0], td_in_type(n, 0)->rank, td_in_type(n, 0)->dim);
}

static void cast_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    if (td_dtype_is_float(td_in_type(n, 0)->dtype))
        dx[0] = td_cast(b, dy[0], td_in_type(n, 0)->dtype);
}

static void resize_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_resize_nearest_grad, NULL, dy[0], n->in[0]);
}

const td_op td_op_concat = {
    .name = "concat",
    .summary = "operands one behind the other along an axis",
    .n_in = 1,
    .n_in_max = TD_IN_MAX,
    .n_out = 1,
    .fields = concat_fields,
    .attr_bytes = sizeof(td_concat_attr),
    .tf_op = "ConcatV2",
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = (1u << TD_IN_MAX) - 1,
    .infer = concat_infer,
    .grad = concat_grad,
};

const td_op td_op_slice = {
    .name = "slice",
    .summary = "a part along an axis",
    .n_in = 1,
    .n_out = 1,
    .fields = slice_fields,
    .attr_bytes = sizeof(td_slice_attr),
    .tf_op = "Slice",
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u,
    .infer = slice_infer,
    .grad = slice_op_grad,
};

const td_op td_op_slice_grad = {
    .name = "slice_grad",
    .summary = "gradient of slice",
    .n_in = 2,
    .n_out = 1,
    .fields = slice_fields,
    .attr_bytes = sizeof(td_slice_attr),
    .tf_op = "Pad",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 1,
    .infer = slice_grad_infer,
};

const td_op td_op_reshape = {
    .name = "reshape",
    .summary = "the same elements with another shape",
    .n_in = 1,
    .n_out = 1,
    .fields = reshape_fields,
    .attr_bytes = sizeof(td_reshape_attr),
    .tf_op = "Reshape",
    .layout = TD_LAYOUT_PLAIN,
    .is_alias = true,
    .any_dtype = 1u,
    .infer = reshape_infer,
    .grad = reshape_grad,
};

const td_op td_op_cast = {
    .name = "cast",
    .summary = "another dtype",
    .n_in = 1,
    .n_out = 1,
    .fields = cast_fields,
    .attr_bytes = sizeof(td_cast_attr),
    .tf_op = "Cast",
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u,
    .infer = cast_infer,
    .grad = cast_grad,
};

const td_op td_op_reorder = {
    .name = "reorder",
    .summary = "the same values in another memory layout",
    .n_in = 1,
    .n_out = 1,
    .fields = reorder_fields,
    .attr_bytes = sizeof(td_reorder_attr),
    .tf_op = "Transpose",
    .layout = TD_LAYOUT_CHOOSES,
    .any_dtype = 1u,
    .infer = reorder_infer,
};

const td_op td_op_resize_nearest = {
    .name = "resize_nearest",
    .summary = "nearest-neighbour resize",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = resize_fields,
    .attr_bytes = sizeof(td_resize_attr),
    .tf_op = "ResizeNearestNeighbor",
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u,
    .infer = resize_infer,
    .grad = resize_op_grad,
};

const td_op td_op_resize_nearest_grad = {
    .name = "resize_nearest_grad",
    .summary = "gradient of resize_nearest",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 4 },
    .tf_op = "ResizeNearestNeighborGrad",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 1,
    .infer = resize_grad_infer,
};

td_value *td_concat(td_builder *b, int n, td_value *const *xs, int axis)
{
    td_concat_attr a = { axis };
    return td_emit_n(b, &td_op_concat, &a, n, xs, NULL);
}

td_value *td_reshape(td_builder *b, td_value *x, int rank, const int64_t *dim)
{
    td_text s = { 0 };
    for (int i = 0; i < rank; i++)
        td_text_add(&s, i ? ":%lld" : "shape=%lld", (long long)dim[i]);
    if (td_text_status(&s) != TD_OK)
        td_build_fail(b, td_text_status(&s));
    void *attr = td_build_attr(b, &td_op_reshape, td_text_get(&s));
    td_text_release(&s);
    return td_emit(b, &td_op_reshape, attr, x);
}

td_value *td_cast(td_builder *b, td_value *x, td_dtype to)
{
    td_cast_attr a = td_cast_attr_of(to);
    if (x->type.dtype == to)
        return x;
    return td_emit(b, &td_op_cast, &a, x);
}

td_value *td_resize_nearest(td_builder *b, td_value *x, int height, int width)
{
    td_resize_attr a = { height, width };
    return td_emit(b, &td_op_resize_nearest, &a, x);
}
