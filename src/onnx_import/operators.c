/*
 * operators.c -- ONNX operators that compute: convolutions, norms, pools, products
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "onnx_import/importer.h"

td_status td_import_conv(td_importer *im, td_value **y)
{
    td_value *in[3];
    int64_t groups;
    const td_onnx_attr *k = td_onnx_attr_find(im->node, "kernel_shape");
    td_conv_attr a = { 0 };
    TD_TRY(td_import_values_of(im, 2, 3, in));
    TD_TRY(td_import_attr_same(im, "strides", 2, 1, &a.stride));
    TD_TRY(td_import_attr_same(im, "dilations", 2, 1, &a.dilation));
    TD_TRY(td_import_attr_int(im, "group", 1, &groups));
    const td_type x = td_value_type(in[0]), w = td_value_type(in[1]);
    TD_TRY(td_import_check_square(im, &x));
    if (w.rank != 4)
        return td_import_wrong(im, "the filter has not four dimensions");
    TD_TRY(td_import_attr_auto_pads(im, x.dim[2], (w.dim[2] - 1) * a.dilation + 1, a.stride, &a.pad,
                                    &a.pad_extra));
    if (groups < 1 || groups > 1 << 20)
        return td_import_wrong(im, "an invalid number of groups");
    if (k && (k->n != 2 || w.rank != 4 || k->ints[0] != w.dim[2] || k->ints[1] != w.dim[3]))
        return td_import_wrong(im, "kernel_shape differs from the filter's");
    a.groups = (int)groups;
    if (im->o->is_model) { /* conv2d_fused has no gradient */
        *y = td_emit(im->b, &td_op_conv2d, &a, in[0], in[1]);
        if (im->node->n_in > 2)
            *y = td_emit(im->b, &td_op_bias_add, NULL, *y, in[2]);
        return TD_OK;
    }
    *y = td_emit_n(im->b, im->node->n_in > 2 ? &td_op_conv2d_fused : &td_op_conv2d, &a,
                   im->node->n_in, in, NULL);
    return TD_OK;
}

/* with the momentum of its running statistics, which the form for inference does not have */
static td_status model_norm(td_importer *im, td_value **in, td_norm_attr *a, td_value **y)
{
    td_value *out[3];
    const td_type x = td_value_type(in[0]);
    const double kept = td_import_attr_float(im, "momentum", 0.9F);
    if (!(kept >= 0 && kept <= 1))
        return td_import_wrong(im, "the momentum is not between 0 and 1");
    a->momentum = round((1 - kept) * 1e6) / 1e6; /* kept is a float: 1 - 0.9 is not 0.1 */
    a->count = x.dim[0] * x.dim[2] * x.dim[3];
    td_emit_n(im->b, &td_op_batch_norm, a, 3, in, out);
    td_emit(im->b, &td_op_batch_norm_update, a, in[3], in[4], out[1], out[2]);
    *y = out[0];
    return TD_OK;
}

td_status td_import_norm(td_importer *im, td_value **y)
{
    td_value *in[5];
    const td_onnx_attr *eps = td_onnx_attr_find(im->node, "epsilon");
    td_norm_attr a;
    TD_TRY(td_import_values_of(im, 5, 5, in));
    if (!im->o->is_model)
        TD_TRY(td_import_attr_must(im, "training_mode", 0));
    if (eps && eps->kind != TD_ONNX_FLOAT)
        return td_import_wrong(im, "epsilon is not a float");
    td_fields_default(td_op_batch_norm_infer.fields, &a);
    a.eps = eps ? (double)eps->f : 1e-5;
    if (im->o->is_model) {
        const td_type x = td_value_type(in[0]);
        TD_TRY(td_import_check_square(im, &x));
        return model_norm(im, in, &a, y);
    }
    *y = td_emit_n(im->b, &td_op_batch_norm_infer, &a, 5, in, NULL);
    return TD_OK;
}

/* ceil_mode: padding at the end until the last window fits, unless that would start outside */
static td_status round_up(const td_importer *im, const td_type *x, td_pool_attr *a)
{
    int64_t extra[2];
    if (a->stride < 1 || a->pad_extra)
        return td_import_refuse(im, "ceil_mode with uneven padding");
    for (int i = 0; i < 2; i++) {
        const int64_t side = x->dim[2 + i], over = (side + 2 * a->pad - a->kernel) % a->stride;
        const int64_t last = side + 2 * a->pad - a->kernel - over + a->stride; /* starts here */
        extra[i] = over > 0 && last < side + a->pad ? a->stride - over : 0;
    }
    if (extra[0] != extra[1])
        return td_import_refuse(im, "ceil_mode that pads height and width differently");
    a->pad_extra = (int)extra[0];
    return TD_OK;
}

td_status td_import_pool(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t include, ceil_mode;
    int dilation;
    bool is_max = strcmp(im->node->op, "MaxPool") == 0;
    td_pool_attr a = { 0 };
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const td_type t = td_value_type(x);
    TD_TRY(td_import_check_square(im, &t));
    TD_TRY(td_import_attr_same(im, "kernel_shape", 2, 0, &a.kernel));
    TD_TRY(td_import_attr_same(im, "strides", 2, 1, &a.stride));
    TD_TRY(td_import_attr_same(im, "dilations", 2, 1, &dilation));
    TD_TRY(td_import_attr_must(im, "storage_order", 0));
    TD_TRY(td_import_attr_auto_pads(im, t.dim[2], a.kernel, a.stride, &a.pad, &a.pad_extra));
    TD_TRY(td_import_attr_int(im, "count_include_pad", 0, &include));
    TD_TRY(td_import_attr_int(im, "ceil_mode", 0, &ceil_mode));
    if (dilation != 1)
        return td_import_refuse(im, "dilated windows");
    if (ceil_mode)
        TD_TRY(round_up(im, &t, &a));
    a.count_include_pad = include != 0;
    if (!is_max && a.pad_extra)
        return td_import_refuse(im, "uneven padding for an average is not supported");
    *y = td_emit(im->b, is_max ? &td_op_max_pool2d : &td_op_avg_pool2d, &a, x);
    return TD_OK;
}

td_status td_import_means(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    *y = td_global_avg_pool(im->b, x);
    if (td_build_ok(im->b)) {
        const td_type t = td_value_type(*y);
        *y = td_reshape(im->b, *y, 4, (int64_t[]){ t.dim[0], t.dim[1], 1, 1 });
    }
    return TD_OK;
}

td_status td_import_identity(td_importer *im, td_value **y)
{
    return td_import_values_of(im, 1, 1, y);
}

/*
 * Random in training and the identity otherwise, as in graph files: what the verb does decides, not
 * the operand training_mode.
 */
td_status td_import_dropout(td_importer *im, td_value **y)
{
    td_dropout_attr a = { .p = td_import_attr_float(im, "ratio", 0.5) };
    const bool has_ratio = im->node->n_in > 1 && *im->node->in[1];
    td_value *x;
    if (im->node->n_in < 1 || im->node->n_in > 3)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &x));
    if (has_ratio)
        TD_TRY(td_import_scalar_at(im, 1, td_value_type(x).dtype, &a.p));
    if (!(a.p >= 0 && a.p < 1))
        return td_import_wrong(im, "the ratio is not a number from 0 to less than 1");
    *y = im->is_classifier && a.p > 0 ? td_emit(im->b, &td_op_dropout, &a, x) : x;
    return TD_OK;
}

/* is operand i of a model one number? */
bool td_import_is_number(const td_importer *im, int i, double *out)
{
    const td_tensor *t = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    float f;
    if (!im->o->is_model || !t || t->dtype != TD_DT_F32 || t->n_bytes != sizeof f)
        return false;
    memcpy(&f, t->data, sizeof f);
    *out = (double)f;
    return isfinite(f);
}

/* a float scalar */
td_status td_import_scalar_at(const td_importer *im, int i, td_dtype d, double *out)
{
    const td_tensor *t;
    float f = 0;
    uint16_t half;
    TD_TRY(td_import_tensor_at(im, i, d, 0, &t));
    if (d == TD_DT_F32) {
        memcpy(&f, t->data, sizeof f);
        *out = (double)f;
    } else if (d == TD_DT_F64) {
        memcpy(out, t->data, sizeof *out);
    } else if (td_dtype_is_half(d)) {
        memcpy(&half, t->data, sizeof half);
        *out = (double)(d == TD_DT_F16 ? td_f16_to_f32(half) : td_bf16_to_f32(half));
    } else {
        return td_import_refuse(im, "a limit is not a float");
    }
    return TD_OK;
}
