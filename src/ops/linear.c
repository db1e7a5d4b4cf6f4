/*
 * linear(x, w, bias) -> y        y[n, k] = sum_c x[n, c] w[k, c] + bias[k]
 *
 *   x     [N, C]   any float
 *   w     [K, C]   same as x
 *   bias  [K]      same as x, or float32 with half; may be omitted
 *   y     [N, K]
 *
 * linear_fused(x, w, bias, residual) {gelu} -> y        linear, then gelu if set, then + residual
 *
 *   residual  [N, K]   same as x; may be omitted, or bias too; inference only
 *   w                  may be bf16 with x in float32: it is widened, nothing else is rounded
 *
 * linear_grad_x(dy, w) -> dx[N, C]
 * linear_grad_w(dy, x) {wide} -> dw[K, C], float32 with half operands if `wide`
 * The bias's gradient is sum_to(dy, bias).
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
#define TF32_ROW TD_BOOL(td_linear_attr, tf32, false, "round the factors to TF32 first; f32 only")

static const td_field linear_fields[] = { TF32_ROW, TD_END };

static const td_field fused_fields[] = {
    TD_BOOL(td_linear_fused_attr, gelu, false, "gelu before the residual is added"),
    TD_END,
};

static const td_field grad_w_fields[] = {
    TF32_ROW,
    TD_BOOL(td_linear_attr, wide, false, "the result is f32 whatever half the operands are"),
    TD_END,
};
/* clang-format on */

/* a weight rounded to bf16, everything else float32 */
static bool has_half_weight(const td_node *n)
{
    return n->op == &td_op_linear_fused && td_in_type(n, 0)->dtype == TD_DT_F32 &&
           td_in_type(n, 1)->dtype == TD_DT_BF16;
}

/* of x, w and bias */
static td_status product_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1);
    const char *op = n->op->name;
    if (x->dtype != w->dtype && !has_half_weight(n))
        return td_error(TD_ESHAPE, "%s: input is %s, weight is %s, wanted one float type", op,
                        td_dtype_name(x->dtype), td_dtype_name(w->dtype));
    if (x->dim[1] != w->dim[1])
        return td_error(TD_ESHAPE, "%s: input has %lld features, weight needs %lld", op,
                        (long long)x->dim[1], (long long)w->dim[1]);
    if (n->n_in > 2 && td_in_type(n, 2)->dim[0] != w->dim[0])
        return td_error(TD_ESHAPE, "%s: bias has %lld elements, wanted %lld", op,
                        (long long)td_in_type(n, 2)->dim[0], (long long)w->dim[0]);
    if (n->n_in > 2 && td_in_type(n, 2)->dtype != x->dtype && !td_is_wide_operand(n, 2))
        return td_error(TD_ESHAPE, "%s: bias is %s, wanted %s", op,
                        td_dtype_name(td_in_type(n, 2)->dtype), td_dtype_name(x->dtype));
    *y = td_type_2d(x->dtype, x->dim[0], w->dim[0]);
    return TD_OK;
}

static td_status linear_infer(const td_node *n, td_type *y)
{
    TD_TRY(td_check_tf32(n, ((const td_linear_attr *)n->attr)->tf32));
    return product_infer(n, y);
}

static td_status fused_infer(const td_node *n, td_type *y)
{
    TD_TRY(product_infer(n, y));
    const td_type *residual = n->n_in > 3 ? td_in_type(n, 3) : y;
    if (!td_type_same_shape(residual, y) || residual->dtype != y->dtype)
        return td_error(TD_ESHAPE, "linear_fused: the residual does not have the result's type");
    return TD_OK;
}

static td_status check_dtypes(const td_node *n)
{
    if (td_in_type(n, 0)->dtype != td_in_type(n, 1)->dtype)
        return td_error(TD_ESHAPE, "%s: operands are %s and %s, wanted one float type", n->op->name,
                        td_dtype_name(td_in_type(n, 0)->dtype),
                        td_dtype_name(td_in_type(n, 1)->dtype));
    return td_check_tf32(n, ((const td_linear_attr *)n->attr)->tf32);
}

static td_status grad_x_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0), *w = td_in_type(n, 1);
    TD_TRY(check_dtypes(n));
    if (dy->dim[1] != w->dim[0])
        return td_error(TD_ESHAPE, "linear_grad_x: dy has %lld columns, weight %lld rows",
                        (long long)dy->dim[1], (long long)w->dim[0]);
    *y = td_type_2d(dy->dtype, dy->dim[0], w->dim[1]);
    return TD_OK;
}

static td_status grad_w_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1);
    TD_TRY(check_dtypes(n));
    if (dy->dim[0] != x->dim[0])
        return td_error(TD_ESHAPE, "linear_grad_w: dy has %lld rows, x %lld", (long long)dy->dim[0],
                        (long long)x->dim[0]);
    *y = td_type_2d(dy->dtype, dy->dim[1], x->dim[1]);
    if (((const td_linear_attr *)n->attr)->wide && y->dtype != TD_DT_F64)
        y->dtype = TD_DT_F32;
    return TD_OK;
}

static void linear_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_linear_grad_x, NULL, dy[0], n->in[1]);
    dx[1] = td_emit(b, &td_op_linear_grad_w, NULL, dy[0], n->in[0]);
    if (n->n_in > 2)
        dx[2] = td_cast(b, td_emit(b, &td_op_sum_to, NULL, dy[0], n->in[2]),
                        td_in_type(n, 2)->dtype); /* the bias may be float32 with half operands */
}

static int64_t linear_macs(const td_node *n)
{
    const td_type *w = td_in_type(n, 1);
    return td_mul_capped(td_in_type(n, 0)->dim[0], w->dim[0] * w->dim[1]);
}

static int64_t grad_w_macs(const td_node *n)
{
    return td_mul_capped(td_type_count(td_in_type(n, 0)), td_in_type(n, 1)->dim[1]);
}

const td_op td_op_linear = {
    .name = "linear",
    .summary = "fully connected layer",
    .n_in = 2,
    .n_in_max = 3,
    .n_out = 1,
    .in_rank = { 2, 2, 1 },
    .tf_op = "MatMul",
    .wide_in = 1u << 2,
    .attr_bytes = sizeof(td_linear_attr),
    .fields = linear_fields,
    .layout = TD_LAYOUT_PLAIN,
    .infer = linear_infer,
    .grad = linear_grad,
    .macs = linear_macs,
};

const td_op td_op_linear_fused = {
    .name = "linear_fused",
    .summary = "fully connected layer with gelu or a residual, for inference",
    .n_in = 2,
    .n_in_max = 4,
    .n_out = 1,
    .in_rank = { 2, 2, 1, 2 },
    .tf_op = "MatMul",
    .wide_in = 1u << 2,
    .attr_bytes = sizeof(td_linear_fused_attr),
    .fields = fused_fields,
    .layout = TD_LAYOUT_CHOOSES,
    .infer = fused_infer,
    .macs = linear_macs,
};

const td_op td_op_linear_grad_x = {
    .name = "linear_grad_x",
    .summary = "gradient of linear for its input",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 2, 2 },
    .tf_op = "MatMul",
    .attr_bytes = sizeof(td_linear_attr),
    .fields = linear_fields,
    .layout = TD_LAYOUT_PLAIN,
    .infer = grad_x_infer,
    .macs = linear_macs,
};

const td_op td_op_linear_grad_w = {
    .name = "linear_grad_w",
    .summary = "gradient of linear for its weight",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 2, 2 },
    .fields = grad_w_fields,
    .attr_bytes = sizeof(td_linear_attr),
    .tf_op = "MatMul",
    .layout = TD_LAYOUT_PLAIN,
    .infer = grad_w_infer,
    .macs = grad_w_macs,
};

td_value *td_linear(td_builder *b, td_value *x, td_value *w, td_value *bias)
{
    return td_emit(b, &td_op_linear, NULL, x, w, bias);
}
