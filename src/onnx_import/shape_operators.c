/*
 * shape_operators.c -- ONNX operators that join, convert and quantize
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include <string.h>

#include "onnx_import/importer.h"

#define BOOL 9 /* TensorProto.DataType */

/* more operands than an op may have are joined in parts */
td_status td_import_concat(td_importer *im, td_value **y)
{
    td_value *in[TD_IN_MAX];
    int64_t axis;
    int n = 0;
    TD_TRY(td_import_attr_int(im, "axis", -1, &axis));
    for (int i = 0; i < im->node->n_in; i++) {
        TD_TRY(td_import_value_at(im, i, &in[n]));
        const int rank = td_value_type(in[n++]).rank;
        axis += i == 0 && axis < 0 ? rank : 0;
        if (axis < 0 || axis >= rank)
            return td_import_wrong(im, "an axis is out of range");
        if (n == TD_IN_MAX && i + 1 < im->node->n_in) {
            in[0] = td_concat(im->b, n, in, (int)axis);
            n = 1;
        }
    }
    if (n == 0)
        return td_import_wrong(im, "an operand is missing");
    *y = n > 1 ? td_concat(im->b, n, in, (int)axis) : in[0];
    return TD_OK;
}

/* copies side by side, at most 64 along an axis */
td_status td_import_tile(td_importer *im, td_value **y)
{
    td_value *x;
    int n;
    int64_t by[TD_RANK_MAX];
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_ints_at(im, 1, TD_RANK_MAX, &n, by));
    if (n != td_value_type(x).rank)
        return td_import_wrong(im, "not a number of repeats for each dimension");
    for (int d = 0; d < n; d++) {
        td_value *in[TD_IN_MAX] = { x };
        if (by[d] < 1 || by[d] > 64)
            return td_import_refuse(im, "less than one copy, or more than 64");
        for (int64_t left = by[d]; left > 1;) {
            int k = 1;
            for (; k < TD_IN_MAX && k < left; k++)
                in[k] = x;
            left -= k - 1;
            in[0] = td_concat(im->b, k, in, d);
        }
        x = in[0];
    }
    *y = x;
    return TD_OK;
}

td_status td_import_cast(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t to;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    TD_TRY(td_import_attr_int(im, "to", 0, &to));
    if (im->o->is_model && to == BOOL)
        return td_import_cast_to_bool(im, x, y);
    const td_dtype d = td_onnx_dtype_of(to);
    if (!d || d == TD_DT_S8) /* the op quantize makes s8, not cast */
        return td_import_refuse(im, "an unsupported element type");
    *y = td_cast(im->b, x, d);
    return TD_OK;
}

/* the scale and the zero point, which must be 0, of the integers `d` */
static td_status scale_at(const td_importer *im, td_dtype d, double *scale)
{
    const td_onnx_attr *axis = td_onnx_attr_find(im->node, "axis");
    const td_tensor *zero;
    TD_TRY(td_import_scalar_at(im, 1, TD_DT_F32, scale));
    TD_TRY(td_import_tensor_at(im, 2, d, 0, &zero));
    if (axis || *(const char *)zero->data)
        return td_import_refuse(im, "a zero point other than 0, or an axis");
    if (!(*scale >= 1e-37 && *scale <= 1e37))
        return td_import_wrong(im, "the scale is not a positive number");
    return TD_OK;
}

/* `tandem convert` makes weights of a quantized file that it wrote */
static td_status check_not_model(const td_importer *im)
{
    return im->o->is_model ? td_import_refuse(im, "a quantized network is not supported") : TD_OK;
}

td_status td_import_quantize(td_importer *im, td_value **y)
{
    td_value *x;
    const td_tensor *zero = im->node->n_in > 2 ? td_map_get(&im->tensors, im->node->in[2]) : NULL;
    td_quantize_attr a = { 0 };
    TD_TRY(check_not_model(im));
    TD_TRY(td_import_value_at(im, 0, &x));
    if (!zero || (zero->dtype != TD_DT_U8 && zero->dtype != TD_DT_S8))
        return td_import_refuse(im, "a result that is not u8 or s8");
    a.to = td_int8_to(zero->dtype);
    TD_TRY(scale_at(im, zero->dtype, &a.scale));
    *y = td_emit(im->b, &td_op_quantize, &a, x);
    return TD_OK;
}

/* a tensor of integers is a parameter of the numbers for which they stand (onnx_weights.c) */
static td_status get_integers(td_importer *im, const td_tensor *t, td_value **y)
{
    const td_onnx_attr *axis = td_onnx_attr_find(im->node, "axis");
    const td_tensor *scale = NULL;
    TD_TRY(td_import_tensor_at(im, 1, TD_DT_F32, 1, &scale));
    if (t->rank < 1 || t->rank > TD_RANK_MAX || scale->dim[0] != t->dim[0] || !axis ||
        axis->kind != TD_ONNX_INT || axis->i != 0 ||
        (t->dtype != TD_DT_S8 && t->dtype != TD_DT_I32))
        return td_import_refuse(im, "integers without a scale for each row");
    if (td_map_has(&im->values, t->name))
        return td_import_refuse(im, "integers that are read twice");
    td_tensor wide = *t;
    wide.dtype = TD_DT_F32;
    return td_import_leaf_of(im, &wide, 0, y);
}

static td_status check_zeros(const td_importer *im, td_dtype d)
{
    const td_tensor *zero;
    if (im->node->n_in < 3)
        return TD_OK;
    TD_TRY(td_import_tensor_at(im, 2, d, 1, &zero));
    for (size_t i = 0; i < zero->n_bytes; i++)
        if (((const char *)zero->data)[i])
            return td_import_refuse(im, "a zero point other than 0");
    return TD_OK;
}

td_status td_import_dequantize(td_importer *im, td_value **y)
{
    td_value *x;
    td_quantize_attr a = { 0 };
    const td_tensor *t = td_map_get(&im->tensors, im->node->n_in ? im->node->in[0] : "");
    TD_TRY(check_not_model(im));
    if (t) {
        TD_TRY(check_zeros(im, t->dtype));
        return get_integers(im, t, y);
    }
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(scale_at(im, td_value_type(x).dtype, &a.scale));
    *y = td_emit(im->b, &td_op_dequantize, &a, x);
    return TD_OK;
}
