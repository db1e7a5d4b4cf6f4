/*
 * bias_add(x, bias) -> y        y = x + bias, one number per channel
 *
 *   x, y [N, C, H, W]  any float       bias [C]  may be float32 with half
 *
 * bias_add_grad(dy) -> dbias    the sum of dy over all dimensions but C; may be float32 with half
 *
 * join_heads(x1, b1, x2, b2, ...) {columns, order} -> y      a detector's heads as one table
 *
 *   xi [N, Ci, Hi, Wi]  any float      bi [Ci]  may be float32 with half; added to xi
 *   y  [N, A, columns]  A = sum of Ai Hi Wi, where Ci = Ai columns: one row for each anchor
 *
 *   order pixel    channel a columns + k of pixel p is column k of row p Ai + a        (SSD320)
 *   order channel  channel k Ai + a      of pixel p is column k of row a Hi Wi + p     (SSD300)
 *
 *   followed by the rows of the next head.  wide: y is float32.
 *
 * join_heads_grad(dy, xi) {columns, order, start} -> dxi, dbi    from row `start` on; xi for its
 * shape only.  narrow: dy is float32 and dxi of xi's dtype.
 */
#include "ir/build.h"
#include "ops/ops.h"

static const char *const orders[] = { "pixel", "channel", NULL };

/* clang-format off */
static const td_field join_fields[] = {
    TD_INT (td_join_attr, columns, 1, 1, 1 << 20, "numbers in a row of the result"),
    TD_ENUM(td_join_attr, order, TD_JOIN_PIXEL, orders, "what is outermost in rows and channels"),
    TD_BOOL(td_join_attr, wide, false, "float32 result"),
    TD_END,
};

static const td_field join_grad_fields[] = {
    TD_INT (td_join_attr, columns, 1, 1, 1 << 20, "numbers in a row of dy"),
    TD_ENUM(td_join_attr, order, TD_JOIN_PIXEL, orders, "what is outermost in rows and channels"),
    TD_LONG(td_join_attr, start, 0, 0, 1e15, "the head's first row"),
    TD_BOOL(td_join_attr, narrow, false, "dy is f32 whatever half the head is"),
    TD_END,
};
/* clang-format on */

static td_status check_bias(const td_node *n, int i, const td_type *x)
{
    const td_type *bias = td_in_type(n, i);
    if (bias->dim[0] != x->dim[1])
        return td_error(TD_ESHAPE, "%s: operand %d has %lld elements, the head has %lld channels",
                        n->op->name, i, (long long)bias->dim[0], (long long)x->dim[1]);
    if (bias->dtype != x->dtype && bias->dtype != TD_DT_F32)
        return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted %s or f32", n->op->name, i,
                        td_dtype_name(bias->dtype), td_dtype_name(x->dtype));
    return TD_OK;
}

/* the type that sums are kept in */
static td_dtype wide_of(td_dtype d)
{
    return d == TD_DT_F64 ? TD_DT_F64 : TD_DT_F32;
}

static td_status bias_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    return check_bias(n, 1, y);
}

static td_status bias_grad_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0);
    *y = td_type_1d(wide_of(dy->dtype), dy->dim[1]);
    return TD_OK;
}

int64_t td_join_rows(const td_join_attr *a, const td_type *x)
{
    return x->dim[1] / a->columns * x->dim[2] * x->dim[3];
}

static td_status check_columns(const td_node *n, int i)
{
    const td_join_attr *a = n->attr;
    const td_type *x = td_in_type(n, i);
    if (x->dim[1] % a->columns)
        return td_error(TD_ESHAPE, "%s: the %lld channels of operand %d do not make rows of %d",
                        n->op->name, (long long)x->dim[1], i, a->columns);
    return TD_OK;
}

static td_status join_infer(const td_node *n, td_type *y)
{
    const td_join_attr *a = n->attr;
    const td_type *first = td_in_type(n, 0);
    int64_t dim[3] = { first->dim[0], 0, a->columns };
    if (n->n_in % 2)
        return td_error(TD_ESHAPE, "join_heads: %d operands, wanted pairs of a head and its bias",
                        n->n_in);
    for (int i = 0; i < n->n_in; i += 2) {
        const td_type *x = td_in_type(n, i);
        if (x->dtype != first->dtype || x->dim[0] != dim[0])
            return td_error(TD_ESHAPE, "join_heads: operands 0 and %d differ in dtype or N", i);
        TD_TRY(check_columns(n, i));
        TD_TRY(check_bias(n, i + 1, x));
        dim[1] += td_join_rows(a, x);
    }
    *y = td_type_of(a->wide ? wide_of(first->dtype) : first->dtype, 3, dim);
    return TD_OK;
}

static td_status join_grad_infer(const td_node *n, td_type *y)
{
    const td_join_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1);
    TD_TRY(check_columns(n, 1));
    if (dy->dim[0] != x->dim[0] || dy->dim[2] != a->columns)
        return td_error(TD_ESHAPE, "join_heads_grad: dy has not the shape of the joined heads");
    if (a->start + td_join_rows(a, x) > dy->dim[1])
        return td_error(TD_ESHAPE, "join_heads_grad: rows [%lld, %lld) are outside dy",
                        (long long)a->start, (long long)(a->start + td_join_rows(a, x)));
    if (a->narrow && (dy->dtype != TD_DT_F32 || !td_dtype_is_half(x->dtype)))
        return td_error(TD_ESHAPE, "join_heads_grad: narrow, but dy is %s and the head %s",
                        td_dtype_name(dy->dtype), td_dtype_name(x->dtype));
    y[0] = td_type_as(x, a->narrow ? x->dtype : dy->dtype);
    y[1] = td_type_1d(wide_of(dy->dtype), x->dim[1]);
    return TD_OK;
}

static void bias_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = dy[0];
    dx[1] = td_cast(b, td_emit(b, &td_op_bias_add_grad, NULL, dy[0]), n->in[1]->type.dtype);
}

static void join_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_join_attr a = *(const td_join_attr *)n->attr;
    a.narrow = a.wide && td_dtype_is_half(td_in_type(n, 0)->dtype);
    a.wide = false;
    for (int i = 0; i < n->n_in; i += 2) {
        td_value *out[2];
        td_emit_n(b, &td_op_join_heads_grad, &a, 2, TD_ARGS(dy[0], n->in[i]), out);
        dx[i] = out[0];
        dx[i + 1] = td_cast(b, out[1], n->in[i + 1]->type.dtype);
        a.start += td_join_rows(&a, td_in_type(n, i));
    }
}

const td_op td_op_bias_add = {
    .name = "bias_add",
    .summary = "x plus a number for each channel",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 1 },
    .tf_op = "BiasAdd",
    .wide_in = 2u,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u,
    .infer = bias_infer,
    .grad = bias_grad,
};

const td_op td_op_bias_add_grad = {
    .name = "bias_add_grad",
    .summary = "gradient of bias_add with respect to the bias",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .tf_op = "BiasAddGrad",
    .wide_out = 1u,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = bias_grad_infer,
};

const td_op td_op_join_heads = {
    .name = "join_heads",
    .summary = "heads of a detector, biases added, as one table of anchors",
    .n_in = 2,
    .n_in_max = TD_IN_MAX,
    .n_out = 1,
    .in_rank = { 4, 1, 4, 1, 4, 1, 4, 1, 4, 1, 4, 1, 4, 1, 4, 1 },
    .fields = join_fields,
    .attr_bytes = sizeof(td_join_attr),
    .tf_op = "ConcatV2",
    .wide_in = 0xaaaau,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = join_infer,
    .grad = join_grad,
};

const td_op td_op_join_heads_grad = {
    .name = "join_heads_grad",
    .summary = "gradient of join_heads with respect to one head and its bias",
    .n_in = 2,
    .n_out = 2,
    .in_rank = { 3, 4 },
    .fields = join_grad_fields,
    .attr_bytes = sizeof(td_join_attr),
    .tf_op = "Slice",
    .wide_out = 2u,
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 1,
    .infer = join_grad_infer,
};
