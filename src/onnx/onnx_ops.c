/*
 * onnx_ops.c -- converts each op to ONNX; one row of `rows` each
 *
 *     conv2d             Conv                    linear        Gemm, transB
 *     batch_norm_infer   BatchNormalization      relu6         Clip 0 .. 6
 *     global_avg_pool    GlobalAveragePool, Flatten
 *     resize_nearest     Resize if sides grow by whole factors, otherwise Gather of rows and
 *                        columns: indices are exact, unlike float32 scales
 *     squeeze_excite     GlobalAveragePool, Conv, Relu, Conv, Sigmoid, Mul; or Gemm between Flatten
 *                        and Reshape; other activations as onnx_acts.c
 *     activations        onnx_acts.c
 *     bias_add           the third operand of its Conv, or Add
 *     join_heads         Transpose and Reshape of each head; Concat
 */
#include "onnx/onnx_write.h"

#include <string.h>

#include "ops/ops.h"

/* the type [N, c, h, w], or [N, c] if h is 0, with x's N */
static td_onnx_value shape_like(const td_onnx_value *x, int64_t c, int64_t h, int64_t w)
{
    td_onnx_value t = { .dtype = x->dtype, .rank = h ? 4 : 2 };
    t.dim[0] = x->dim[0];
    t.dim[1].value = c;
    t.dim[2].value = h;
    t.dim[3].value = w;
    return t;
}

static const char *clip6(td_onnx_writer *e, const td_node *n, const char *x)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    return TD_WRITER_ADD(e, "Clip", n, &y, x, td_writer_scalar(e, n, "/min", d, 0),
                         td_writer_scalar(e, n, "/max", d, 6));
}

static void put_relu_if(td_onnx_writer *e, const td_node *n, bool has_relu, bool is_relu6,
                        const char *x)
{
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    if (has_relu)
        x = is_relu6 ? clip6(e, n, x) : TD_WRITER_ADD(e, "Relu", n, &y, x);
    td_writer_result(e, n, x);
}

/* top, left, bottom, right */
static void put_pads(td_onnx_writer *e, int pad, int extra)
{
    TD_WRITER_INTS(e, "pads", pad, pad, pad + extra, pad + extra);
}

/* conv2d, conv2d_fused(x, w, bias, residual) {relu} or {act} */
static void put_conv(td_onnx_writer *e, const td_node *n, const char *op)
{
    const char *in[3];
    const td_conv_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    const td_value *bias = e->bias[n->out[0]->id];
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    int n_in = 0;
    for (; n_in < n->n_in && n_in < 3; n_in++)
        in[n_in] = td_writer_operand(e, n, n_in);
    if (bias)
        in[n_in++] = td_writer_value(e, bias);
    const char *v = td_writer_add(e, op, n, &y, n_in, in);
    TD_WRITER_INTS(e, "kernel_shape", w->dim[2], w->dim[3]);
    TD_WRITER_INTS(e, "strides", a->stride, a->stride);
    put_pads(e, a->pad, a->pad_extra);
    TD_WRITER_INTS(e, "dilations", a->dilation, a->dilation);
    td_onnx_attr_int(e->m, "group", a->groups);
    if (n->n_in > 3)
        v = TD_WRITER_ADD(e, "Add", n, &y, v, td_writer_operand(e, n, 3));
    if (n->op == &td_op_conv2d_fused && td_conv_act_op(a->act))
        v = td_writer_act(e, n, td_conv_act_op(a->act), v);
    put_relu_if(e, n, n->op == &td_op_conv2d_fused && a->relu, a->relu6, v);
}

/* batch_norm_infer, batch_norm_relu_infer, batch_norm_add_relu_infer */
static void put_norm(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_norm_attr *a = n->attr;
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    const char *v = TD_WRITER_ADD(e, op, n, &y, td_writer_operand(e, n, 0),
                                  td_writer_operand(e, n, 1), td_writer_operand(e, n, 2),
                                  td_writer_operand(e, n, 3), td_writer_operand(e, n, 4));
    td_onnx_attr_float(e->m, "epsilon", (float)a->eps);
    if (n->n_in > 5)
        v = TD_WRITER_ADD(e, "Add", n, &y, v, td_writer_operand(e, n, 5));
    put_relu_if(e, n, n->op != &td_op_batch_norm_infer, a->relu6, v);
}

/* operand i, [N, C, H, W], plus the bias, operand i + 1, [C] */
static const char *biased(td_onnx_writer *e, const td_node *n, int i)
{
    const char *x = td_writer_operand(e, n, i);
    const int64_t shape[3] = { td_in_type(n, i)->dim[1], 1, 1 };
    td_onnx_value type = { .dtype = td_in_type(n, i + 1)->dtype, .rank = 3 };
    td_onnx_value y = td_writer_shape(e, n->in[i]);
    if (e->bias[n->in[i]->id])
        return x;
    for (int k = 0; k < 3; k++)
        type.dim[k].value = shape[k];
    const char *bias = TD_WRITER_ADD(e, "Reshape", n, &type, td_writer_operand(e, n, i + 1),
                                     td_writer_ints(e, n, "/channels", 3, shape));
    return TD_WRITER_ADD(e, "Add", n, &y, x, bias);
}

static void put_bias(td_onnx_writer *e, const td_node *n, const char *op)
{
    (void)op;
    td_writer_result(e, n, biased(e, n, 0));
}

/* [N, a columns, H, W] -> [N, H, W, a columns] -> [N, H W a, columns] */
static const char *put_head_pixel(td_onnx_writer *e, const td_node *n, int i, td_onnx_value *rows)
{
    const td_onnx_value x = td_writer_shape(e, n->in[i]);
    td_onnx_value last = x;
    last.dim[1] = x.dim[2];
    last.dim[2] = x.dim[3];
    last.dim[3] = x.dim[1];
    const char *v = TD_WRITER_ADD(e, "Transpose", n, &last, biased(e, n, i));
    TD_WRITER_INTS(e, "perm", 0, 2, 3, 1);
    return TD_WRITER_ADD(
        e, "Reshape", n, rows, v,
        td_writer_ints(e, n, "/rows", 3, (int64_t[]){ 0, rows->dim[1].value, rows->dim[2].value }));
}

/* [N, columns a, H, W] -> [N, columns, a H W] -> [N, a H W, columns] */
static const char *put_head_channel(td_onnx_writer *e, const td_node *n, int i, td_onnx_value *rows)
{
    td_onnx_value lines = *rows;
    lines.dim[1] = rows->dim[2];
    lines.dim[2] = rows->dim[1];
    const char *shape =
        td_writer_ints(e, n, "/lines", 3, (int64_t[]){ 0, lines.dim[1].value, lines.dim[2].value });
    const char *v = TD_WRITER_ADD(e, "Reshape", n, &lines, biased(e, n, i), shape);
    v = TD_WRITER_ADD(e, "Transpose", n, rows, v);
    TD_WRITER_INTS(e, "perm", 0, 2, 1);
    return v;
}

static void put_join(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_join_attr *a = n->attr;
    const char *heads[TD_IN_MAX];
    td_onnx_value y = td_writer_shape(e, n->out[0]), rows = y;
    for (int i = 0; i < n->n_in; i += 2) {
        rows.dim[1].value = td_join_rows(a, td_in_type(n, i));
        heads[i / 2] = a->order == TD_JOIN_PIXEL ? put_head_pixel(e, n, i, &rows)
                                                 : put_head_channel(e, n, i, &rows);
    }
    td_writer_result(e, n, td_writer_add(e, op, n, &y, n->n_in / 2, heads));
    td_onnx_attr_int(e->m, "axis", 1);
}

static void put_linear(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "transB", 1);
}

static void put_relu6(td_onnx_writer *e, const td_node *n, const char *op)
{
    (void)op;
    td_writer_result(e, n, clip6(e, n, td_writer_operand(e, n, 0)));
}

static void put_pool(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_pool_attr *a = n->attr;
    const bool is_average = n->op == &td_op_avg_pool2d;
    if (n->n_out > 1 && n->out[1]->n_uses)
        td_writer_stop(e, td_error(TD_EUNSUPPORTED,
                                   "the second result of %s is used, which ONNX does not have",
                                   n->op->name));
    td_writer_same(e, n, op);
    TD_WRITER_INTS(e, "kernel_shape", a->kernel, td_pool_width(a));
    TD_WRITER_INTS(e, "strides", a->stride, a->stride);
    put_pads(e, a->pad, is_average ? 0 : a->pad_extra);
    if (is_average)
        td_onnx_attr_int(e->m, "count_include_pad", a->count_include_pad);
}

/* means over height and width, [N, C, 1, 1] */
static const char *put_means(td_onnx_writer *e, const td_node *n)
{
    td_onnx_value x = td_writer_shape(e, n->in[0]);
    td_onnx_value mean = shape_like(&x, td_in_type(n, 0)->dim[1], 1, 1);
    return TD_WRITER_ADD(e, "GlobalAveragePool", n, &mean, td_writer_operand(e, n, 0));
}

static void put_global(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &y, put_means(e, n)));
    td_onnx_attr_int(e->m, "axis", 1);
}

static void put_softmax(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", -1);
}

static void put_reduce(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "keepdims", 0);
}

/* the shape of operand 1 has 1 where dimensions are summed, and may lack the first ones */
static void put_sum_to(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const int missing = x->rank - y->rank;
    int64_t axes[TD_RANK_MAX];
    int count = 0;
    td_onnx_value type = td_writer_shape(e, n->out[0]);
    for (int d = 0; d < x->rank; d++)
        if (d < missing || !td_writer_same_dim(e, n->in[0], d, n->out[0], d - missing))
            axes[count++] = d;
    if (missing > 0)
        td_writer_stop(
            e, td_error(TD_EUNSUPPORTED, "sum_to '%%%s' removes dimensions", n->out[0]->name));
    const char *in = td_writer_operand(e, n, 0);
    td_writer_result(
        e, n,
        count ? TD_WRITER_ADD(e, op, n, &type, in, td_writer_ints(e, n, "/axes", count, axes))
              : TD_WRITER_ADD(e, "Identity", n, &type, in));
    if (count)
        td_onnx_attr_int(e->m, "keepdims", 1);
}

static void put_scale(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    double by = ((const td_scale_attr *)n->attr)->by;
    td_writer_result(e, n,
                     TD_WRITER_ADD(e, op, n, &y, td_writer_operand(e, n, 0),
                                   td_writer_scalar(e, n, "/by", td_in_type(n, 0)->dtype, by)));
}

/* 1, 1/2 or 0 of the sign of x - y */
static void put_larger(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_onnx_value y = td_writer_shape(e, n->out[0]);
    const char *half = td_writer_scalar(e, n, "/half", td_in_type(n, 0)->dtype, 0.5);
    const char *x =
        TD_WRITER_ADD(e, "Sub", n, &y, td_writer_operand(e, n, 0), td_writer_operand(e, n, 1));
    x = TD_WRITER_ADD(e, "Mul", n, &y, TD_WRITER_ADD(e, op, n, &y, x), half);
    td_writer_result(e, n, TD_WRITER_ADD(e, "Add", n, &y, x, half));
}

static void put_concat(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", ((const td_concat_attr *)n->attr)->axis);
}

/* 0 copies a dimension of x, -1 is computed from the number of elements; more open dimensions are
   those of an earlier value */
static void put_reshape(td_onnx_writer *e, const td_node *n, const char *op)
{
    int n_open = 0;
    int64_t dim[TD_RANK_MAX];
    const td_onnx_value y = td_writer_shape(e, n->out[0]);
    for (int i = 0; i < y.rank; i++) {
        dim[i] = y.dim[i].value;
        if (dim[i] < 0 && i < td_in_type(n, 0)->rank &&
            td_writer_same_dim(e, n->out[0], i, n->in[0], i))
            dim[i] = 0;
        n_open += dim[i] < 0;
    }
    const char *in = td_writer_operand(e, n, 0);
    const char *shape = n_open > 1 ? td_writer_shape_of(e, n, n->out[0])
                                   : td_writer_ints(e, n, "/shape", y.rank, dim);
    td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &y, in, shape));
}

static void put_cast(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(td_cast_to(n->attr)));
}

/* quantize, dequantize: x, the scale, the zero point of the integers' type */
static void put_quantize(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_quantize_attr *a = n->attr;
    const td_dtype integers =
        n->op == &td_op_quantize ? n->out[0]->type.dtype : td_in_type(n, 0)->dtype;
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    td_writer_result(e, n,
                     TD_WRITER_ADD(e, op, n, &y, td_writer_operand(e, n, 0),
                                   td_writer_scalar(e, n, "/scale", TD_DT_F32, a->scale),
                                   td_writer_scalar(e, n, "/zero_point", integers, 0)));
}

/* rows or columns floor(i * from / to) */
static const char *put_gather(td_onnx_writer *e, const td_node *n, const char *x, int axis,
                              td_onnx_value *type)
{
    int64_t from = td_in_type(n, 0)->dim[axis], to = n->out[0]->type.dim[axis];
    if (from == to)
        return x;
    int64_t *at = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, (size_t)to, sizeof *at) : NULL;
    if (!at) {
        td_writer_stop(e, TD_ENOMEM);
        return x;
    }
    for (int64_t i = 0; i < to; i++)
        at[i] = i * from / to;
    type->dim[axis].value = to;
    const char *y =
        TD_WRITER_ADD(e, "Gather", n, type, x,
                      td_writer_ints(e, n, axis == 2 ? "/rows" : "/columns", (int)to, at));
    td_onnx_attr_int(e->m, "axis", axis);
    return y;
}

/* does the quotient of the sides depend on the size of the images?  One that is no whole number is
   that of this size */
static bool has_other_factors(const td_onnx_writer *e, const td_node *n)
{
    const td_value *x = n->in[0], *y = n->out[0];
    bool differs = false;
    for (int d = 2; e->larger && d < 4; d++) {
        const int64_t from = e->larger->values[x->id]->type.dim[d];
        const int64_t to = e->larger->values[y->id]->type.dim[d];
        const bool is_same = from == x->type.dim[d] && to == y->type.dim[d];
        differs |= !is_same && (y->type.dim[d] % x->type.dim[d] || to % from ||
                                to / from != y->type.dim[d] / x->type.dim[d]);
    }
    return differs;
}

static void put_resize(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_onnx_value type = td_writer_shape(e, n->in[0]);
    const char *in = td_writer_operand(e, n, 0);
    if (has_other_factors(e, n)) {
        td_writer_stop(e, td_error(TD_EUNSUPPORTED,
                                   "resize_nearest '%%%s' to %lldx%lld depends on the image size: "
                                   "fix it with --image-size",
                                   n->out[0]->name, (long long)y->dim[2], (long long)y->dim[3]));
        return;
    }
    if (y->dim[2] % x->dim[2] || y->dim[3] % x->dim[3]) {
        const char *rows = put_gather(e, n, in, 2, &type);
        td_writer_result(e, n, put_gather(e, n, rows, 3, &type));
        return;
    }
    float by[4] = { 1, 1, (float)(y->dim[2] / x->dim[2]), (float)(y->dim[3] / x->dim[3]) };
    type = td_writer_shape(e, n->out[0]);
    const char *scales =
        td_writer_constant(e, n, "/scales", TD_DT_F32, 1, (int64_t[]){ 4 }, by, sizeof by);
    td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &type, in, "", scales));
    td_onnx_attr_text(e->m, "mode", "nearest");
    td_onnx_attr_text(e->m, "coordinate_transformation_mode", "asymmetric");
    td_onnx_attr_text(e->m, "nearest_mode", "floor");
}

/* x * gate(fc2(hidden(fc1(means)))) */
static void put_squeeze_excite(td_onnx_writer *e, const td_node *n, const char *op)
{
    bool is_conv = e->o->se_layers == TD_ONNX_SE_CONV;
    int rank = is_conv ? 4 : 2, side = is_conv;
    int64_t c = td_in_type(n, 0)->dim[1], d = td_in_type(n, 1)->dim[0];
    td_onnx_value x = td_writer_shape(e, n->in[0]);
    td_onnx_value hidden = shape_like(&x, d, side, side), gate = shape_like(&x, c, side, side);
    const char *layer = is_conv ? "Conv" : "Gemm";
    const char *v = put_means(e, n);
    if (!is_conv)
        v = TD_WRITER_ADD(e, "Flatten", n, &gate, v); /* its axis is 1 by default */
    v = TD_WRITER_ADD(e, layer, n, &hidden, v, td_writer_weight(e, n, 1, rank),
                      td_writer_operand(e, n, 2));
    if (!is_conv)
        td_onnx_attr_int(e->m, "transB", 1);
    v = td_writer_act_of(e, n, td_squeeze_excite_hidden(n), &hidden, v);
    v = TD_WRITER_ADD(e, layer, n, &gate, v, td_writer_weight(e, n, 3, rank),
                      td_writer_operand(e, n, 4));
    if (!is_conv)
        td_onnx_attr_int(e->m, "transB", 1);
    v = td_writer_act_of(e, n, td_squeeze_excite_gate(n), &gate, v);
    if (!is_conv) {
        const char *shape =
            td_writer_ints(e, n, "/gate", 4, (int64_t[]){ e->other ? 0 : x.dim[0].value, c, 1, 1 });
        gate = shape_like(&x, c, 1, 1);
        v = TD_WRITER_ADD(e, "Reshape", n, &gate, v, shape);
    }
    td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &x, td_writer_operand(e, n, 0), v));
}

/* dropout, which is the identity in inference: the result has its operand's name */
static void put_nothing(td_onnx_writer *e, const td_node *n, const char *op)
{
    (void)op;
    td_writer_result(e, n, td_writer_operand(e, n, 0));
}

/* clang-format off */
static const struct {
    const td_op *op;
    const char *onnx; /* the operator, the last one if there are several */
    void (*put)(td_onnx_writer *e, const td_node *n, const char *onnx);
} rows[] = {
    { &td_op_conv2d,                    "Conv",               put_conv },
    { &td_op_conv2d_fused,              "Conv",               put_conv },
    { &td_op_conv_transpose2d,          "ConvTranspose",      td_writer_conv_transpose },
    { &td_op_resize,                    "Resize",             td_writer_interpolate },
    { &td_op_pad,                       "Pad",                td_writer_pad },
    { &td_op_group_norm,                "InstanceNormalization", td_writer_group_norm },
    { &td_op_batch_norm_infer,          "BatchNormalization", put_norm },
    { &td_op_batch_norm_relu_infer,     "BatchNormalization", put_norm },
    { &td_op_batch_norm_add_relu_infer, "BatchNormalization", put_norm },
    { &td_op_linear,                    "Gemm",               put_linear },
    { &td_op_matmul,                    "MatMul",             td_writer_matmul },
    { &td_op_layer_norm,                "LayerNormalization", td_writer_layer_norm },
    { &td_op_relu6,                     "Clip",               put_relu6 },
    { &td_op_max_pool2d,                "MaxPool",            put_pool },
    { &td_op_avg_pool2d,                "AveragePool",        put_pool },
    { &td_op_global_avg_pool,           "Flatten",            put_global },
    { &td_op_squeeze_excite,            "Mul",                put_squeeze_excite },
    { &td_op_add,                       "Add",                td_writer_same },
    { &td_op_mul,                       "Mul",                td_writer_same },
    { &td_op_sub,                       "Sub",                td_writer_same },
    { &td_op_div,                       "Div",                td_writer_same },
    { &td_op_max,                       "Max",                td_writer_same },
    { &td_op_min,                       "Min",                td_writer_same },
    { &td_op_larger,                    "Sign",               put_larger },
    { &td_op_dropout,                   "none",               put_nothing },
    { &td_op_scale,                     "Mul",                put_scale },
    { &td_op_bias_add,                  "Add",                put_bias },
    { &td_op_join_heads,                "Concat",             put_join },
    { &td_op_concat,                    "Concat",             put_concat },
    { &td_op_slice,                     "Slice",              td_writer_slice },
    { &td_op_gather,                    "Gather",             td_writer_gather },
    { &td_op_reshape,                   "Reshape",            put_reshape },
    { &td_op_transpose,                 "Transpose",          td_writer_transpose },
    { &td_op_broadcast_to,              "Expand",             td_writer_expand },
    { &td_op_cast,                      "Cast",               put_cast },
    { &td_op_resize_nearest,            "Resize",             put_resize },
    { &td_op_sum,                       "ReduceSum",          put_reduce },
    { &td_op_sum_to,                    "ReduceSum",          put_sum_to },
    { &td_op_mean,                      "ReduceMean",         put_reduce },
    { &td_op_softmax,                   "Softmax",            put_softmax },
    { &td_op_quantize,                  "QuantizeLinear",     put_quantize },
    { &td_op_dequantize,                "DequantizeLinear",   put_quantize },
};
/* clang-format on */

void td_writer_put(td_onnx_writer *e, const td_node *n)
{
    for (int i = 1; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != td_in_type(n, 0)->dtype && n->op != &td_op_gather) {
            td_writer_stop(
                e, td_error(TD_EUNSUPPORTED,
                            "%s has operands of types %s and %s, ONNX requires a single type",
                            n->op->name, td_dtype_name(td_in_type(n, 0)->dtype),
                            td_dtype_name(td_in_type(n, i)->dtype)));
            return;
        }
    if (td_writer_is_act(n->op)) {
        td_writer_result(e, n, td_writer_act(e, n, n->op, td_writer_operand(e, n, 0)));
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == n->op) {
            rows[i].put(e, n, rows[i].onnx);
            return;
        }
    td_writer_stop(e, td_error(TD_EUNSUPPORTED, "the op %s ('%%%s') has no counterpart in ONNX",
                               n->op->name, n->n_out ? n->out[0]->name : "nothing"));
}
