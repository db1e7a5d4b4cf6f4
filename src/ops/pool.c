/*
 * max_pool2d(x) -> y, where       largest value of each window, kernel x kernel_w pixels
 * avg_pool2d(x) -> y              mean of each window
 * global_avg_pool(x) -> y[N, C]   mean over H and W; wide: y is float32, of half x
 *
 *   x      [N, C, H, W]  any float
 *   y      [N, C, P, Q]  P = (H + 2 pad + pad_extra - kernel) / stride + 1
 *   where  [N, C, P, Q]  u8, r * width + s of the maximum in its window; the first one of equal
 *                        maxima
 *
 * Padding is never the maximum; it counts as zeros in an average if count_include_pad is set,
 * otherwise the mean is over the image's pixels.  pad_extra makes uneven padding for max pooling:
 * pad + pad_extra below and to the right.
 *
 * max_pool2d_grad(dy, where, x) -> dx, avg_pool2d_grad(dy, x) -> dx,
 * global_avg_pool_grad(dy, x) -> dx      x for its shape only; dx has dy's dtype
 *   narrow, of the last: dy is float32 and dx has x's dtype, a half one
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
#define POOL_ROWS                                                                                  \
    TD_INT(td_pool_attr, kernel,   2, 1, 15, "side of a window, or its height"),                   \
    TD_INT(td_pool_attr, kernel_w, 0, 0, 15, "width of a window; 0: like its height"),             \
    TD_INT(td_pool_attr, stride,   1, 1, 64, "pixels between windows"),                            \
    TD_INT(td_pool_attr, pad,      0, 0, 7,  "pixels added on every side")

static const td_field max_fields[] = {
    POOL_ROWS,
    TD_INT(td_pool_attr, pad_extra, 0, 0, 14, "pixels added below and to the right beyond pad"),
    TD_END,
};

static const td_field avg_fields[] = {
    POOL_ROWS,
    TD_BOOL(td_pool_attr, count_include_pad, true, "padding counts as zeros"),
    TD_END,
};

static const td_field global_fields[] = {
    TD_BOOL(td_global_pool_attr, wide, false, "float32 means of half images"),
    TD_END,
};

static const td_field global_grad_fields[] = {
    TD_BOOL(td_global_pool_attr, narrow, false, "dy is f32 whatever half the images are"),
    TD_END,
};
/* clang-format on */

int td_pool_width(const td_pool_attr *a)
{
    return a->kernel_w ? a->kernel_w : a->kernel;
}

static td_status pool_shape(const td_node *n, const td_type *x, td_type *y)
{
    const td_pool_attr *a = n->attr;
    const int width = td_pool_width(a), least = width < a->kernel ? width : a->kernel;
    if (2 * a->pad > least)
        return td_error(TD_ESHAPE, "%s: pad %d is more than half of kernel %d", n->op->name, a->pad,
                        least);
    if (a->pad_extra && a->pad + a->pad_extra >= least) /* a window would cover padding only */
        return td_error(TD_ESHAPE, "%s: pad %d and pad_extra %d are not less than kernel %d",
                        n->op->name, a->pad, a->pad_extra, least);
    const int pads = 2 * a->pad + a->pad_extra;
    int64_t p = td_windows(x->dim[2], a->kernel, a->stride, pads, 1);
    int64_t q = td_windows(x->dim[3], width, a->stride, pads, 1);
    if (p < 1 || q < 1)
        return td_error(TD_ESHAPE, "%s: a window of %dx%d does not fit a %lldx%lld image",
                        n->op->name, a->kernel, width, (long long)x->dim[2], (long long)x->dim[3]);
    *y = td_type_4d(x->dtype, x->dim[0], x->dim[1], p, q);
    return TD_OK;
}

static td_status max_infer(const td_node *n, td_type *y)
{
    TD_TRY(pool_shape(n, td_in_type(n, 0), &y[0]));
    y[1] = y[0];
    y[1].dtype = TD_DT_U8;
    return TD_OK;
}

static td_status avg_infer(const td_node *n, td_type *y)
{
    return pool_shape(n, td_in_type(n, 0), y);
}

static td_status global_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0);
    const bool is_wide = ((const td_global_pool_attr *)n->attr)->wide;
    if (is_wide && x->dtype == TD_DT_F32) /* else mixed precision could not narrow the result */
        return td_error(TD_ESHAPE, "global_avg_pool: wide, but x is %s", td_dtype_name(x->dtype));
    *y = td_type_2d(is_wide && td_dtype_is_half(x->dtype) ? TD_DT_F32 : x->dtype, x->dim[0],
                    x->dim[1]);
    return TD_OK;
}

static td_status check_dy(const td_node *n, const td_type *y)
{
    if (!td_type_same_shape(y, td_in_type(n, 0)) || y->dtype != td_in_type(n, 0)->dtype)
        return td_error(TD_ESHAPE, "%s: dy does not have the forward result's type", n->op->name);
    return TD_OK;
}

/* kernels do not check the indices in `where`, so it must come from max_pool2d */
static td_status check_where(const td_node *n, const td_type *y)
{
    const td_node *from = n->in[1]->producer;
    while (from->op == &td_op_reorder)
        from = from->in[0]->producer;
    if (from->op != &td_op_max_pool2d || n->in[1]->type.dtype != TD_DT_U8 ||
        !td_fields_equal(max_fields, from->attr, n->attr) ||
        !td_type_same_shape(td_in_type(from, 0), td_in_type(n, 2)) ||
        !td_type_same_shape(td_in_type(n, 1), y))
        return td_error(TD_ESHAPE, "%s: operand 1 is not the result 'where' of this max_pool2d",
                        n->op->name);
    return TD_OK;
}

static td_status max_grad_infer(const td_node *n, td_type *y)
{
    td_type forward;
    const td_type x = td_type_as(td_in_type(n, 2), td_in_type(n, 0)->dtype);
    TD_TRY(pool_shape(n, &x, &forward));
    TD_TRY(check_dy(n, &forward));
    TD_TRY(check_where(n, &forward));
    *y = x;
    return TD_OK;
}

static td_status avg_grad_infer(const td_node *n, td_type *y)
{
    td_type forward;
    const td_type x = td_type_as(td_in_type(n, 1), td_in_type(n, 0)->dtype);
    TD_TRY(pool_shape(n, &x, &forward));
    TD_TRY(check_dy(n, &forward));
    *y = x;
    return TD_OK;
}

static td_status global_grad_infer(const td_node *n, td_type *y)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1);
    if (dy->dim[0] != x->dim[0] || dy->dim[1] != x->dim[1])
        return td_error(TD_ESHAPE, "global_avg_pool_grad: dy is not [N, C] of x");
    const bool is_narrow = ((const td_global_pool_attr *)n->attr)->narrow;
    if (is_narrow && (dy->dtype != TD_DT_F32 || !td_dtype_is_half(x->dtype)))
        return td_error(TD_ESHAPE, "global_avg_pool_grad: narrow, but dy is %s and x %s",
                        td_dtype_name(dy->dtype), td_dtype_name(x->dtype));
    *y = td_type_plain(x);
    if (!is_narrow)
        y->dtype = dy->dtype;
    return TD_OK;
}

static void max_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_max_pool2d_grad, n->attr, dy[0], n->out[1], n->in[0]);
}

static void avg_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_avg_pool2d_grad, n->attr, dy[0], n->in[0]);
}

static void global_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_global_pool_attr attr = { .narrow = ((const td_global_pool_attr *)n->attr)->wide &&
                                                 td_dtype_is_half(td_in_type(n, 0)->dtype) };
    dx[0] = td_emit(b, &td_op_global_avg_pool_grad, &attr, dy[0], n->in[0]);
}

const td_op td_op_max_pool2d = {
    .name = "max_pool2d",
    .summary = "largest value of each window, and which it was",
    .n_in = 1,
    .n_out = 2,
    .in_rank = { 4 },
    .fields = max_fields,
    .attr_bytes = sizeof(td_pool_attr),
    .tf_op = "MaxPool",
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = max_infer,
    .grad = max_grad,
};

const td_op td_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .summary = "gradient of max_pool2d",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 4 },
    .fields = max_fields,
    .attr_bytes = sizeof(td_pool_attr),
    .tf_op = "MaxPoolGrad",
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u << 1,
    .shape_only = 1u << 2,
    .infer = max_grad_infer,
};

const td_op td_op_avg_pool2d = {
    .name = "avg_pool2d",
    .summary = "mean of each window",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = avg_fields,
    .attr_bytes = sizeof(td_pool_attr),
    .tf_op = "AvgPool",
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = avg_infer,
    .grad = avg_grad,
};

const td_op td_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .summary = "gradient of avg_pool2d",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 4 },
    .fields = avg_fields,
    .attr_bytes = sizeof(td_pool_attr),
    .tf_op = "AvgPoolGrad",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 1,
    .infer = avg_grad_infer,
};

const td_op td_op_global_avg_pool = {
    .name = "global_avg_pool",
    .summary = "mean over height and width",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = global_fields,
    .attr_bytes = sizeof(td_global_pool_attr),
    .tf_op = "Mean",
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = global_infer,
    .grad = global_grad,
};

const td_op td_op_global_avg_pool_grad = {
    .name = "global_avg_pool_grad",
    .summary = "gradient of global_avg_pool",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 2, 4 },
    .fields = global_grad_fields,
    .attr_bytes = sizeof(td_global_pool_attr),
    .tf_op = "RealDiv",
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 1,
    .infer = global_grad_infer,
};

td_value *td_max_pool2d(td_builder *b, td_value *x, const char *attrs)
{
    return td_emit(b, &td_op_max_pool2d, td_build_attr(b, &td_op_max_pool2d, attrs), x);
}

td_value *td_avg_pool2d(td_builder *b, td_value *x, const char *attrs)
{
    return td_emit(b, &td_op_avg_pool2d, td_build_attr(b, &td_op_avg_pool2d, attrs), x);
}

td_value *td_global_avg_pool(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_global_avg_pool, NULL, x);
}
