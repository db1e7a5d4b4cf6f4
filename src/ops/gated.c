/*
 * gated_add(x, gate, z) -> y                        y = x gate + by z, then relu if it is set
 * gated_add_relu_grad(dy, y, x[, dy2]) -> dz, dgate
 *
 *   x, y      [N, C, H, W]  any float
 *   gate      [N, C]        same          one factor for each channel of each image
 *   z         [N, C, H, W]  same, or
 *             [N, C]        same or f32   added to all pixels of the channel
 *   dy, dy2   [N, C, H, W]  same          the gradient of y is their sum
 *   dz        [N, C, H, W]  same          that gradient where y > 0, otherwise 0
 *   dgate     [N, C]        same          the sum over pixels of dz x; wide: f32, of half x
 *
 * The end of a residual block with a squeeze-excite layer, in one pass over memory.  Backward, z is
 * the gradient by the channel means: dx = gated_add(dz, gate, dmean) {by = 1 / (H W)}.  Pass
 * `gates` makes both ops on devices that have kernels for them.  Source: Hu et al. 2018, figure 3.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field gated_fields[] = {
    TD_BOOL(td_gated_attr, relu, false, "negative results become 0"),
    TD_REAL(td_gated_attr, by, 1, -1e30, 1e30, "factor of z"),
    TD_END,
};

static const td_field gated_grad_fields[] = {
    TD_BOOL(td_gated_grad_attr, wide, false, "dgate is f32 whatever half the images are"),
    TD_END,
};
/* clang-format on */

static bool is_of_channels(const td_type *v, const td_type *x)
{
    return v->rank == 2 && v->dim[0] == x->dim[0] && v->dim[1] == x->dim[1];
}

static td_status gated_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *gate = td_in_type(n, 1), *z = td_in_type(n, 2);
    const bool is_vector = is_of_channels(z, x);
    if (!is_of_channels(gate, x) || gate->dtype != x->dtype)
        return td_error(TD_ESHAPE, "gated_add: the gate is not [%lld, %lld] of %s",
                        (long long)x->dim[0], (long long)x->dim[1], td_dtype_name(x->dtype));
    if (!is_vector && !td_type_same_shape(z, x))
        return td_error(TD_ESHAPE, "gated_add: z has neither the shape of x nor [%lld, %lld]",
                        (long long)x->dim[0], (long long)x->dim[1]);
    if (z->dtype != x->dtype && !(is_vector && z->dtype == TD_DT_F32))
        return td_error(TD_ESHAPE, "gated_add: z is %s, and x %s", td_dtype_name(z->dtype),
                        td_dtype_name(x->dtype));
    *y = *x;
    return TD_OK;
}

static td_status gated_grad_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 2);
    for (int i = 0; i < n->n_in; i++)
        if (!td_type_same_shape(td_in_type(n, i), x) || td_in_type(n, i)->dtype != x->dtype)
            return td_error(TD_ESHAPE, "gated_add_relu_grad: operands %d and 2 differ in type", i);
    const bool is_wide = ((const td_gated_grad_attr *)n->attr)->wide;
    if (is_wide && x->dtype == TD_DT_F32)
        return td_error(TD_ESHAPE, "gated_add_relu_grad: wide, but x is f32");
    y[0] = *x;
    y[1] = td_type_2d(is_wide && td_dtype_is_half(x->dtype) ? TD_DT_F32 : x->dtype, x->dim[0],
                      x->dim[1]);
    return TD_OK;
}

/* the sum over pixels of dz x, without relu */
static td_value *gate_grad(td_builder *b, const td_node *n, td_value *dz)
{
    const int64_t dim[4] = { n->in[1]->type.dim[0], n->in[1]->type.dim[1], 1, 1 };
    td_value *like = td_reshape(b, n->in[1], 4, dim);
    return td_reshape(b, td_emit(b, &td_op_mul_reduce, NULL, dz, n->in[0], like), 2, dim);
}

/* dz by `by`, summed to the shape and converted to the dtype of z */
static td_value *addend_grad(td_builder *b, const td_node *n, td_value *dz)
{
    const td_type *z = td_in_type(n, 2);
    const double by = ((const td_gated_attr *)n->attr)->by;
    if (z->rank == 2) {
        const int64_t dim[4] = { z->dim[0], z->dim[1], 1, 1 };
        td_value *like = td_reshape(b, n->in[2], 4, dim);
        dz = td_reshape(b, td_emit(b, &td_op_sum_to, NULL, dz, like), 2, dim);
    }
    if (by < 1 || by > 1)
        dz = td_emit(b, &td_op_scale, &(td_scale_attr){ .by = by }, dz);
    return td_cast(b, dz, z->dtype);
}

static void gated_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *out[2] = { dy[0], NULL };
    const int64_t dim[4] = { n->in[1]->type.dim[0], n->in[1]->type.dim[1], 1, 1 };
    if (((const td_gated_attr *)n->attr)->relu)
        td_emit_n(b, &td_op_gated_add_relu_grad, NULL, 3, TD_ARGS(dy[0], n->out[0], n->in[0]), out);
    else
        out[1] = gate_grad(b, n, dy[0]);
    dx[0] = td_mul(b, out[0], td_reshape(b, n->in[1], 4, dim));
    dx[1] = out[1];
    dx[2] = addend_grad(b, n, out[0]);
}

const td_op td_op_gated_add = {
    .name = "gated_add",
    .summary = "x times a gate for each channel, plus z",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 2, 0 },
    .fields = gated_fields,
    .attr_bytes = sizeof(td_gated_attr),
    .tf_op = "Mul",
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 5u,
    .infer = gated_infer,
    .grad = gated_grad,
};

const td_op td_op_gated_add_relu_grad = {
    .name = "gated_add_relu_grad",
    .summary = "gradients of gated_add with relu, of its sum and its gate",
    .n_in = 3,
    .n_in_max = 4,
    .n_out = 2,
    .in_rank = { 4, 4, 4, 4 },
    .fields = gated_grad_fields,
    .attr_bytes = sizeof(td_gated_grad_attr),
    .tf_op = "Mul",
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 0xfu,
    .infer = gated_grad_infer,
};
