/*
 * indexing.c -- elements along an axis, by index
 *
 * gather(x, index) {axis}            y[o, i, c] = x[o, index[i], c], where c runs over the
 *                                    dimensions after the axis; those of index take its place.
 *                                    An index outside of x gives zeros
 * gather_grad(dy, index, x) {axis}   dx[o, r, c] = sum of dy[o, i, c] over all i with
 *                                    index[i] = r; x for its shape only
 *
 * index: i64, of any shape.  Source: ONNX's Gather; an index counts from 0.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field gather_fields[] = {
    TD_INT(td_gather_attr, axis, 0, 0, TD_RANK_MAX - 1, "dimension that index selects from"),
    TD_END,
};
/* clang-format on */

td_gather_shape td_gather_shape_of(const td_node *n, const td_type *x)
{
    const int axis = ((const td_gather_attr *)n->attr)->axis;
    td_gather_shape s = { 1, x->dim[axis], 1, td_type_count(td_in_type(n, 1)) };
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            *(d < axis ? &s.outer : &s.inner) *= x->dim[d];
    return s;
}

/* the type of elements of x */
static td_status selected(const td_node *n, const td_type *x, td_type *y)
{
    const int axis = ((const td_gather_attr *)n->attr)->axis;
    const td_type *index = td_in_type(n, 1);
    if (axis >= x->rank)
        return td_error(TD_ESHAPE, "%s: axis is %d, x has %d dimensions", n->op->name, axis,
                        x->rank);
    if (index->dtype != TD_DT_I64)
        return td_error(TD_ESHAPE, "%s: index is %s, wanted i64", n->op->name,
                        td_dtype_name(index->dtype));
    if (x->rank - 1 + index->rank > TD_RANK_MAX)
        return td_error(TD_ESHAPE, "%s: the result would have %d dimensions, at most %d",
                        n->op->name, x->rank - 1 + index->rank, TD_RANK_MAX);
    *y = (td_type){ .dtype = x->dtype };
    for (int d = 0; d < x->rank; d++) {
        for (int k = 0; d == axis && k < index->rank; k++)
            y->dim[y->rank++] = index->dim[k];
        if (d != axis)
            y->dim[y->rank++] = x->dim[d];
    }
    return TD_OK;
}

static td_status gather_infer(const td_node *n, td_type *y)
{
    return selected(n, td_in_type(n, 0), y);
}

static td_status gather_grad_infer(const td_node *n, td_type *dx)
{
    td_type y;
    TD_TRY(selected(n, td_in_type(n, 2), &y));
    if (!td_type_same_shape(&y, td_in_type(n, 0)))
        return td_error(TD_ESHAPE, "gather_grad: dy does not have the shape of the elements");
    *dx = td_type_as(td_in_type(n, 2), td_in_type(n, 0)->dtype);
    return TD_OK;
}

static void gather_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_gather_grad, n->attr, dy[0], n->in[1], n->in[0]);
}

const td_op td_op_gather = {
    .name = "gather",
    .summary = "elements along an axis, by index",
    .n_in = 2,
    .n_out = 1,
    .fields = gather_fields,
    .attr_bytes = sizeof(td_gather_attr),
    .tf_op = "GatherV2",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u | 1u << 1,
    .infer = gather_infer,
    .grad = gather_op_grad,
};

const td_op td_op_gather_grad = {
    .name = "gather_grad",
    .summary = "gradient of gather",
    .n_in = 3,
    .n_out = 1,
    .fields = gather_fields,
    .attr_bytes = sizeof(td_gather_attr),
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 1,
    .shape_only = 1u << 2,
    .infer = gather_grad_infer,
};
