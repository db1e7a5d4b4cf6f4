/*
 * onnx_import.c -- makes a graph from an ONNX model, following ONNX's definitions of its operators
 *
 * The import is independent of the exporter.  Nodes before the network that convert bytes to floats
 * (Cast, Transpose, Sub, Div) do not become part of the graph; td_onnx_prepare computes them in
 * plain loops.  Neither do the nodes from the first operator that no op of ours corresponds to
 * (onnx_eval.h): a detector's post-processing.  The values that these read from the network are
 * outputs of the graph, post_input.0, post_input.1 ... in the order of reading.
 * Every result's type is compared with its declaration in the file.
 *
 * There is no transpose op, but join_heads of one head without a bias moves channels last.
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include "onnx_import/onnx_import.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ir/build.h"
#include "onnx_import/prepost.h"
#include "ops/ops.h"

#define PREPARED_MAX 8 /* limit for nodes before the network */

typedef struct {
    const td_onnx *m;
    const char *what;
    const td_onnx_import_opts *o;
    td_builder *b;
    td_map values;            /* name -> td_value */
    td_map tensors;           /* name -> td_tensor */
    td_map declared;          /* name -> td_onnx_value */
    const td_onnx_node *node; /* the current node */
} importer;

static td_status refuse(const importer *im, const char *what)
{
    return td_error(TD_EUNSUPPORTED, "'%s': node '%s' (%s): %s", im->what, im->node->name,
                    im->node->op, what);
}

static td_status wrong(const importer *im, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': node '%s' (%s): %s", im->what, im->node->name, im->node->op,
                    what);
}

/* --- types ------------------------------------------------------------------------------------ */

static td_status check_type(const importer *im, const td_onnx_value *v, const td_type *t)
{
    bool same = v->dtype == t->dtype && v->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++)
        if (v->dim[i].value >= 0)
            same = v->dim[i].value == t->dim[i];
        else if (v->dim[i].param && strcmp(v->dim[i].param, "N") == 0)
            same = t->dim[i] == im->o->batch;
    if (same)
        return TD_OK;
    td_text text = { 0 };
    td_type_print(t, &text);
    td_status st =
        td_error(TD_EFORMAT, "'%s': '%s' does not have its declared type and shape, but %s",
                 im->what, v->name, td_text_get(&text));
    td_text_release(&text);
    return st;
}

static td_status check_declared(const importer *im, const char *name, const td_type *t)
{
    const td_onnx_value *v = td_map_get(&im->declared, name);
    if (!v)
        return td_error(TD_EFORMAT, "'%s': no type is declared for '%s'", im->what, name);
    return check_type(im, v, t);
}

/* --- operands and attributes ------------------------------------------------------------------ */

/* adds a parameter; half tensors become f32 parameters and a cast, since programs take parameters
   as f32 */
static td_status leaf_of(importer *im, const td_tensor *t, td_value **out)
{
    td_type type = td_type_of(td_dtype_is_half(t->dtype) ? TD_DT_F32 : t->dtype, 0, NULL);
    td_param_attr attr = { .role = TD_ROLE_STAT, .scale = 1 }; /* never trained */
    if (t->rank > TD_RANK_MAX)
        return wrong(im, "a tensor has too many dimensions");
    type.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        type.dim[i] = t->dim[i];
    *out = td_cast(im->b, td_emit_leaf(im->b, &td_op_param, &attr, t->name, &type), t->dtype);
    return td_map_set(&im->values, t->name, *out);
}

/* operand i as a value of the graph; a tensor becomes a parameter when it is first read */
static td_status value_at(importer *im, int i, td_value **out)
{
    const char *name = i < im->node->n_in ? im->node->in[i] : "";
    const td_tensor *t = td_map_get(&im->tensors, name);
    *out = td_map_get(&im->values, name);
    if (*out)
        return TD_OK;
    if (!t)
        return wrong(im, "an operand is missing");
    return leaf_of(im, t, out);
}

static td_status values_of(importer *im, int least, int most, td_value **out)
{
    int n = im->node->n_in;
    if (n < least || n > most || n > TD_IN_MAX)
        return wrong(im, "an unsupported number of operands");
    for (int i = 0; i < n; i++)
        TD_TRY(value_at(im, i, &out[i]));
    return TD_OK;
}

static td_status tensor_at(const importer *im, int i, td_dtype dtype, int rank,
                           const td_tensor **out)
{
    *out = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    if (!*out || (*out)->dtype != dtype || (*out)->rank != rank)
        return refuse(im, "an operand is not a constant of the expected type");
    return TD_OK;
}

/* operand i, a constant i64 [n], n <= room */
static td_status ints_at(const importer *im, int i, int room, int *n, int64_t *out)
{
    const td_tensor *t;
    TD_TRY(tensor_at(im, i, TD_DT_I64, 1, &t));
    if (t->dim[0] > room)
        return refuse(im, "a list of integers is too long");
    *n = (int)t->dim[0];
    if (t->n_bytes)
        memcpy(out, t->data, t->n_bytes);
    return TD_OK;
}

static td_status attr_int(const importer *im, const char *name, int64_t otherwise, int64_t *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *out = a ? a->i : otherwise;
    return a && a->kind != TD_ONNX_INT ? wrong(im, "an attribute is not an integer") : TD_OK;
}

/* a list of n equal numbers; `otherwise` if the attribute is absent */
static td_status attr_same(const importer *im, const char *name, int n, int otherwise, int *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *out = otherwise;
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != n)
        return wrong(im, "an attribute has the wrong number of integers");
    for (int i = 0; i < n; i++)
        if (a->ints[i] != a->ints[0] || a->ints[i] < 0 || a->ints[i] > 1 << 20)
            return refuse(im, "windows, strides, pads or dilations are not square");
    *out = (int)a->ints[0];
    return TD_OK;
}

/* top, left, bottom, right: must be equal in height and width, and at the end not less than at the
   start */
static td_status attr_pads(const importer *im, int *pad, int *extra)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "pads");
    *pad = *extra = 0;
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != 4)
        return wrong(im, "an attribute has the wrong number of integers");
    const int64_t *p = a->ints;
    if (p[0] != p[1] || p[2] != p[3])
        return refuse(im, "windows, strides, pads or dilations are not square");
    if (p[0] < 0 || p[2] < p[0] || p[2] > 1 << 20)
        return refuse(im, "less padding at the end than at the start");
    *pad = (int)p[0];
    *extra = (int)(p[2] - p[0]);
    return TD_OK;
}

static bool attr_is(const importer *im, const char *name, const char *text)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    return a && a->kind == TD_ONNX_TEXT && strcmp(a->text, text) == 0;
}

/* --- operators -------------------------------------------------------------------------------- */

static td_status get_conv(importer *im, td_value **y)
{
    td_value *in[3];
    int64_t groups;
    const td_onnx_attr *k = td_onnx_attr_find(im->node, "kernel_shape");
    td_conv_attr a = { 0 };
    TD_TRY(values_of(im, 2, 3, in));
    TD_TRY(attr_same(im, "strides", 2, 1, &a.stride));
    TD_TRY(attr_pads(im, &a.pad, &a.pad_extra));
    TD_TRY(attr_same(im, "dilations", 2, 1, &a.dilation));
    TD_TRY(attr_int(im, "group", 1, &groups));
    const td_type w = td_value_type(in[1]);
    if (groups < 1 || groups > 1 << 20)
        return wrong(im, "an invalid number of groups");
    if (k && (k->n != 2 || w.rank != 4 || k->ints[0] != w.dim[2] || k->ints[1] != w.dim[3]))
        return wrong(im, "kernel_shape differs from the filter's");
    a.groups = (int)groups;
    *y = td_emit_n(im->b, im->node->n_in > 2 ? &td_op_conv2d_fused : &td_op_conv2d, &a,
                   im->node->n_in, in, NULL);
    return TD_OK;
}

static td_status get_norm(importer *im, td_value **y)
{
    td_value *in[5];
    const td_onnx_attr *eps = td_onnx_attr_find(im->node, "epsilon");
    td_norm_attr a;
    TD_TRY(values_of(im, 5, 5, in));
    if (eps && eps->kind != TD_ONNX_FLOAT)
        return wrong(im, "epsilon is not a float");
    td_fields_default(td_op_batch_norm_infer.fields, &a);
    a.eps = eps ? (double)eps->f : 1e-5;
    *y = td_emit_n(im->b, &td_op_batch_norm_infer, &a, 5, in, NULL);
    return TD_OK;
}

static td_status get_pool(importer *im, td_value **y)
{
    td_value *x;
    int64_t include;
    bool is_max = strcmp(im->node->op, "MaxPool") == 0;
    td_pool_attr a = { 0 };
    TD_TRY(values_of(im, 1, 1, &x));
    TD_TRY(attr_same(im, "kernel_shape", 2, 0, &a.kernel));
    TD_TRY(attr_same(im, "strides", 2, 1, &a.stride));
    TD_TRY(attr_pads(im, &a.pad, &a.pad_extra));
    TD_TRY(attr_int(im, "count_include_pad", 0, &include));
    a.count_include_pad = include != 0;
    if (!is_max && a.pad_extra)
        return refuse(im, "uneven padding for an average is not supported");
    *y = td_emit(im->b, is_max ? &td_op_max_pool2d : &td_op_avg_pool2d, &a, x);
    return TD_OK;
}

static td_status get_means(importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(values_of(im, 1, 1, &x));
    *y = td_global_avg_pool(im->b, x);
    if (td_build_ok(im->b)) {
        const td_type t = td_value_type(*y);
        *y = td_reshape(im->b, *y, 4, (int64_t[]){ t.dim[0], t.dim[1], 1, 1 });
    }
    return TD_OK;
}

static td_status get_flatten(importer *im, td_value **y)
{
    td_value *x;
    int64_t axis;
    TD_TRY(values_of(im, 1, 1, &x));
    TD_TRY(attr_int(im, "axis", 1, &axis));
    const td_type t = td_value_type(x);
    if (axis != 1 || t.rank < 1)
        return refuse(im, "an axis other than 1 is not supported");
    *y = td_reshape(im->b, x, 2, (int64_t[]){ t.dim[0], td_type_count(&t) / t.dim[0] });
    return TD_OK;
}

static td_status get_gemm(importer *im, td_value **y)
{
    td_value *in[3];
    int64_t transposed;
    TD_TRY(values_of(im, 2, 3, in));
    TD_TRY(attr_int(im, "transB", 0, &transposed));
    if (transposed != 1)
        return refuse(im, "a matrix that is not transposed is not supported");
    *y = td_emit_n(im->b, &td_op_linear, NULL, im->node->n_in, in, NULL);
    return TD_OK;
}

static td_status get_unary(importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(values_of(im, 1, 1, &x));
    *y = strcmp(im->node->op, "Relu") == 0 ? td_relu(im->b, x) : td_sigmoid(im->b, x);
    return TD_OK;
}

static td_status get_identity(importer *im, td_value **y)
{
    return values_of(im, 1, 1, y);
}

static td_status get_binary(importer *im, td_value **y)
{
    td_value *in[2];
    TD_TRY(values_of(im, 2, 2, in));
    *y = strcmp(im->node->op, "Add") == 0 ? td_add(im->b, in[0], in[1])
                                          : td_mul(im->b, in[0], in[1]);
    return TD_OK;
}

/* a float scalar */
static td_status scalar_at(const importer *im, int i, td_dtype d, double *out)
{
    const td_tensor *t;
    float f = 0;
    uint16_t half;
    TD_TRY(tensor_at(im, i, d, 0, &t));
    if (d == TD_DT_F32) {
        memcpy(&f, t->data, sizeof f);
        *out = (double)f;
    } else if (d == TD_DT_F64) {
        memcpy(out, t->data, sizeof *out);
    } else if (td_dtype_is_half(d)) {
        memcpy(&half, t->data, sizeof half);
        *out = (double)(d == TD_DT_F16 ? td_f16_to_f32(half) : td_bf16_to_f32(half));
    } else {
        return refuse(im, "a limit is not a float");
    }
    return TD_OK;
}

static td_status get_clip(importer *im, td_value **y)
{
    td_value *x;
    double min, max;
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(scalar_at(im, 1, td_value_type(x).dtype, &min));
    TD_TRY(scalar_at(im, 2, td_value_type(x).dtype, &max));
    if (min < 0 || min > 0 || max < 6 || max > 6)
        return refuse(im, "limits other than 0 and 6 are not supported");
    *y = td_relu6(im->b, x);
    return TD_OK;
}

static td_status get_concat(importer *im, td_value **y)
{
    td_value *in[TD_IN_MAX];
    int64_t axis;
    TD_TRY(values_of(im, 1, TD_IN_MAX, in));
    TD_TRY(attr_int(im, "axis", -1, &axis));
    if (axis < 0 || axis >= TD_RANK_MAX)
        return wrong(im, "an axis is out of range");
    *y = td_concat(im->b, im->node->n_in, in, (int)axis);
    return TD_OK;
}

static td_status get_slice(importer *im, td_value **y)
{
    td_value *x;
    int n[3];
    int64_t start, end, axis;
    if (im->node->n_in != 4)
        return refuse(im, "operands other than x, starts, ends, axes");
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(ints_at(im, 1, 1, &n[0], &start));
    TD_TRY(ints_at(im, 2, 1, &n[1], &end));
    TD_TRY(ints_at(im, 3, 1, &n[2], &axis));
    if (n[0] != 1 || n[1] != 1 || n[2] != 1 || axis < 0 || axis >= TD_RANK_MAX || start < 0 ||
        end <= start)
        return refuse(im, "only one slice along one axis is supported");
    td_slice_attr a = { .axis = (int)axis, .start = start, .size = end - start };
    *y = td_emit(im->b, &td_op_slice, &a, x);
    return TD_OK;
}

static td_status get_reshape(importer *im, td_value **y)
{
    td_value *x;
    int n, open = -1;
    int64_t dim[TD_RANK_MAX], known = 1;
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(ints_at(im, 1, TD_RANK_MAX, &n, dim));
    const td_type t = td_value_type(x);
    for (int i = 0; i < n; i++) {
        if (dim[i] == 0 && i < t.rank)
            dim[i] = t.dim[i];
        if (dim[i] == -1 && open < 0)
            open = i;
        else if (dim[i] < 1 || dim[i] > TD_TYPE_BYTES_MAX)
            return wrong(im, "an invalid shape");
        else
            known = td_mul_capped(known, dim[i]);
    }
    if (open >= 0)
        dim[open] = td_type_count(&t) / known;
    *y = td_reshape(im->b, x, n, dim);
    return TD_OK;
}

static td_status get_cast(importer *im, td_value **y)
{
    td_value *x;
    int64_t to;
    TD_TRY(values_of(im, 1, 1, &x));
    TD_TRY(attr_int(im, "to", 0, &to));
    const td_dtype d = td_onnx_dtype_of(to);
    if (!d || d == TD_DT_S8) /* the op quantize makes s8, not cast */
        return refuse(im, "an unsupported element type");
    *y = td_cast(im->b, x, d);
    return TD_OK;
}

/* [N, C, H, W] -> [N, H W, C] */
static td_value *channels_last(importer *im, td_value *x)
{
    const td_type zeros = td_type_1d(td_value_type(x).dtype, td_value_type(x).dim[1]);
    td_constant_attr none = { .value = 0, .type = td_build_type_text(im->b, &zeros) };
    td_join_attr attr = { .columns = (int)zeros.dim[0], .order = TD_JOIN_CHANNEL };
    td_value *bias = td_emit_n(im->b, &td_op_constant, &none, 0, NULL, NULL);
    return td_emit(im->b, &td_op_join_heads, &attr, x, bias);
}

/* [N, C, M] -> [N, M, C], [N, C, H, W] -> [N, H, W, C] */
static td_status get_transpose(importer *im, td_value **y)
{
    static const int64_t orders[2][4] = { { 0, 2, 1 }, { 0, 2, 3, 1 } };
    const td_onnx_attr *perm = td_onnx_attr_find(im->node, "perm");
    td_value *x;
    TD_TRY(values_of(im, 1, 1, &x));
    const td_type t = td_value_type(x);
    if ((t.rank != 3 && t.rank != 4) || t.dim[1] > 1 << 20 || !perm || perm->n != t.rank ||
        memcmp(perm->ints, orders[t.rank - 3], (size_t)t.rank * sizeof *perm->ints) != 0)
        return refuse(im, "only moving channels to the end is supported");
    if (t.rank == 3) {
        x = td_reshape(im->b, x, 4, (int64_t[]){ t.dim[0], t.dim[1], t.dim[2], 1 });
        *y = td_build_ok(im->b) ? channels_last(im, x) : x;
        return TD_OK;
    }
    *y = td_reshape(im->b, channels_last(im, x), 4,
                    (int64_t[]){ t.dim[0], t.dim[2], t.dim[3], t.dim[1] });
    return TD_OK;
}

/* operands: x, no region, scales [1, 1, a, b] that are whole numbers */
static td_status get_resize(importer *im, td_value **y)
{
    td_value *x;
    float by[4];
    const td_tensor *t;
    if (im->node->n_in != 3 || *im->node->in[1])
        return refuse(im, "operands other than x and scales");
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(tensor_at(im, 2, TD_DT_F32, 1, &t));
    if (t->dim[0] != 4 || td_value_type(x).rank != 4)
        return wrong(im, "the scales are not four numbers for four dimensions");
    memcpy(by, t->data, sizeof by);
    for (int i = 0; i < 4; i++)
        if (!(by[i] >= 1 && by[i] <= 4096) || by[i] > (float)(int)by[i] || (i < 2 && by[i] > 1))
            return refuse(im, "scales that are not whole factors of height and width");
    if (!attr_is(im, "mode", "nearest") || !attr_is(im, "nearest_mode", "floor") ||
        !attr_is(im, "coordinate_transformation_mode", "asymmetric"))
        return refuse(im, "resizing other than nearest is not supported");
    const td_type type = td_value_type(x);
    td_resize_attr a = { (int)(type.dim[2] * (int)by[2]), (int)(type.dim[3] * (int)by[3]) };
    *y = td_emit(im->b, &td_op_resize_nearest, &a, x);
    return TD_OK;
}

/* a Gather of rows or columns floor(i * from / to) is a resize to `to` */
static td_status get_gather(importer *im, td_value **y)
{
    td_value *x;
    int64_t axis, at;
    const td_tensor *t;
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(tensor_at(im, 1, TD_DT_I64, 1, &t));
    TD_TRY(attr_int(im, "axis", 0, &axis));
    const td_type type = td_value_type(x);
    if ((axis != 2 && axis != 3) || type.rank != 4 || t->dim[0] < 1 || t->dim[0] > 1 << 16)
        return refuse(im, "only rows or columns of images are supported");
    for (int64_t i = 0; i < t->dim[0]; i++) {
        memcpy(&at, (const char *)t->data + i * 8, sizeof at);
        if (at != i * type.dim[axis] / t->dim[0])
            return refuse(im, "the rows or columns are not those of a nearest resize");
    }
    td_resize_attr a = { (int)(axis == 2 ? t->dim[0] : type.dim[2]),
                         (int)(axis == 3 ? t->dim[0] : type.dim[3]) };
    *y = td_emit(im->b, &td_op_resize_nearest, &a, x);
    return TD_OK;
}

/* the scale and the zero point, which must be 0, of the integers `d` */
static td_status scale_at(const importer *im, td_dtype d, double *scale)
{
    const td_onnx_attr *axis = td_onnx_attr_find(im->node, "axis");
    const td_tensor *zero;
    TD_TRY(scalar_at(im, 1, TD_DT_F32, scale));
    TD_TRY(tensor_at(im, 2, d, 0, &zero));
    if (axis || *(const char *)zero->data)
        return refuse(im, "a zero point other than 0, or an axis");
    if (!(*scale >= 1e-37 && *scale <= 1e37))
        return wrong(im, "the scale is not a positive number");
    return TD_OK;
}

static td_status get_quantize(importer *im, td_value **y)
{
    td_value *x;
    const td_tensor *zero = im->node->n_in > 2 ? td_map_get(&im->tensors, im->node->in[2]) : NULL;
    td_quantize_attr a = { 0 };
    TD_TRY(value_at(im, 0, &x));
    if (!zero || (zero->dtype != TD_DT_U8 && zero->dtype != TD_DT_S8))
        return refuse(im, "a result that is not u8 or s8");
    a.to = td_int8_to(zero->dtype);
    TD_TRY(scale_at(im, zero->dtype, &a.scale));
    *y = td_emit(im->b, &td_op_quantize, &a, x);
    return TD_OK;
}

/* a tensor of integers is a parameter of the numbers for which they stand (onnx_weights.c) */
static td_status get_integers(importer *im, const td_tensor *t, td_value **y)
{
    const td_onnx_attr *axis = td_onnx_attr_find(im->node, "axis");
    const td_tensor *scale = NULL;
    TD_TRY(tensor_at(im, 1, TD_DT_F32, 1, &scale));
    if (t->rank < 1 || t->rank > TD_RANK_MAX || scale->dim[0] != t->dim[0] || !axis ||
        axis->kind != TD_ONNX_INT || axis->i != 0 ||
        (t->dtype != TD_DT_S8 && t->dtype != TD_DT_I32))
        return refuse(im, "integers without a scale for each row");
    if (td_map_has(&im->values, t->name))
        return refuse(im, "integers that are read twice");
    td_tensor wide = *t;
    wide.dtype = TD_DT_F32;
    return leaf_of(im, &wide, y);
}

static td_status check_zeros(const importer *im, td_dtype d)
{
    const td_tensor *zero;
    if (im->node->n_in < 3)
        return TD_OK;
    TD_TRY(tensor_at(im, 2, d, 1, &zero));
    for (size_t i = 0; i < zero->n_bytes; i++)
        if (((const char *)zero->data)[i])
            return refuse(im, "a zero point other than 0");
    return TD_OK;
}

static td_status get_dequantize(importer *im, td_value **y)
{
    td_value *x;
    td_quantize_attr a = { 0 };
    const td_tensor *t = td_map_get(&im->tensors, im->node->n_in ? im->node->in[0] : "");
    if (t) {
        TD_TRY(check_zeros(im, t->dtype));
        return get_integers(im, t, y);
    }
    TD_TRY(value_at(im, 0, &x));
    TD_TRY(scale_at(im, td_value_type(x).dtype, &a.scale));
    *y = td_emit(im->b, &td_op_dequantize, &a, x);
    return TD_OK;
}

static td_status get_reduce(importer *im, td_value **y)
{
    td_value *x;
    int64_t keep;
    TD_TRY(values_of(im, 1, 1, &x));
    TD_TRY(attr_int(im, "keepdims", 1, &keep));
    if (keep)
        return refuse(im, "keepdims is not supported");
    *y = strcmp(im->node->op, "ReduceSum") == 0 ? td_sum(im->b, x) : td_mean(im->b, x);
    return TD_OK;
}

static td_status get_softmax(importer *im, td_value **y)
{
    td_value *x;
    int64_t axis;
    TD_TRY(values_of(im, 1, 1, &x));
    TD_TRY(attr_int(im, "axis", -1, &axis));
    if (axis != -1 && axis != td_value_type(x).rank - 1)
        return refuse(im, "the axis is not the last one");
    *y = td_softmax(im->b, x);
    return TD_OK;
}

/* clang-format off */
static const struct {
    const char *op;
    const char *attrs; /* supported attributes, each followed by a space */
    td_status (*get)(importer *im, td_value **y);
} rows[] = {
    { "Conv",               "kernel_shape strides pads dilations group ", get_conv },
    { "BatchNormalization", "epsilon ", get_norm },
    { "Relu",               "", get_unary },
    { "Sigmoid",            "", get_unary },
    { "Identity",           "", get_identity },
    { "Clip",               "", get_clip },
    { "MaxPool",            "kernel_shape strides pads ", get_pool },
    { "AveragePool",        "kernel_shape strides pads count_include_pad ", get_pool },
    { "GlobalAveragePool",  "", get_means },
    { "Flatten",            "axis ", get_flatten },
    { "Gemm",               "transB ", get_gemm },
    { "Add",                "", get_binary },
    { "Mul",                "", get_binary },
    { "Concat",             "axis ", get_concat },
    { "Slice",              "", get_slice },
    { "Reshape",            "", get_reshape },
    { "Transpose",          "perm ", get_transpose },
    { "Cast",               "to ", get_cast },
    { "Resize",             "mode nearest_mode coordinate_transformation_mode ", get_resize },
    { "Gather",             "axis ", get_gather },
    { "ReduceSum",          "keepdims ", get_reduce },
    { "ReduceMean",         "keepdims ", get_reduce },
    { "Softmax",            "axis ", get_softmax },
    { "QuantizeLinear",     "axis ", get_quantize },
    { "DequantizeLinear",   "axis ", get_dequantize },
};
/* clang-format on */

static td_status check_attrs(const importer *im, const char *known)
{
    for (int i = 0; i < im->node->n_attr; i++) {
        const char *name = im->node->attr[i].name, *at = strstr(known, name);
        size_t n = strlen(name);
        while (at && !(n && at[n] == ' ' && (at == known || at[-1] == ' ')))
            at = n ? strstr(at + 1, name) : NULL;
        if (!at)
            return refuse(im, "an unsupported attribute");
    }
    return TD_OK;
}

static td_status get_node(importer *im, const td_onnx_node *n)
{
    td_value *y = NULL;
    im->node = n;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(n->op, rows[i].op) != 0)
            continue;
        TD_TRY(check_attrs(im, rows[i].attrs));
        if (n->n_out != 1)
            return refuse(im, "more than one result is not supported");
        TD_TRY(rows[i].get(im, &y));
        if (!td_build_ok(im->b))
            return TD_EFORMAT; /* the builder has set the message */
        const td_type t = td_value_type(y);
        TD_TRY(check_declared(im, n->out[0], &t));
        return td_map_set(&im->values, n->out[0], y);
    }
    return refuse(im, "an unsupported operator");
}

/* --- post-processing -------------------------------------------------------------------------- */

static bool is_of_a_graph(const td_onnx_node *n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(n->op, rows[i].op) == 0)
            return true;
    return false;
}

/* values read after the network become outputs of the graph */
static td_status add_post_input(void *ctx, int i, const char *name)
{
    importer *im = ctx;
    char output[24];
    td_value *v = td_map_get(&im->values, name);
    if (!v)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': '%s' is read after the network, which does not produce it", im->what,
                        name);
    td_onnx_post_input_name(i, output);
    td_output(im->b, output, v);
    return TD_OK;
}

/* are all remaining nodes post-processing?  If not, an unknown operator is an error */
static td_status get_post_processing(importer *im, size_t first)
{
    for (size_t i = first; i < im->m->n_nodes; i++) {
        im->node = &im->m->nodes[i];
        if (!im->o->is_after || !im->o->is_after(im->node))
            return refuse(im, "an unsupported operator");
    }
    return td_onnx_each_post_input(im->m, first, add_post_input, im);
}

/* --- preparation of images ------------------------------------------------------------------ */

static td_status input_type(const importer *im, td_type *t)
{
    const td_onnx_value *v = im->m->inputs.at;
    if (im->m->inputs.n != 1 || v->rank != 4 || (v->dtype != TD_DT_F32 && v->dtype != TD_DT_U8))
        return td_error(TD_EUNSUPPORTED, "'%s' does not have a single 4-D input of type f32 or u8",
                        im->what);
    int64_t n = v->dim[0].value < 0 ? im->o->batch : v->dim[0].value;
    for (int i = 1; i < 4; i++)
        if (v->dim[i].value < 1 || v->dim[i].value > 1 << 16)
            return td_error(TD_EUNSUPPORTED, "'%s': the size of its images is not fixed", im->what);
    if (n != im->o->batch)
        return td_error(TD_EFORMAT, "'%s' has a fixed batch of %lld images, wanted %d", im->what,
                        (long long)n, im->o->batch);
    *t = td_type_4d(v->dtype, n, v->dim[1].value, v->dim[2].value, v->dim[3].value);
    return TD_OK;
}

static td_status get_images(importer *im, td_onnx_graph *out)
{
    td_type t;
    TD_TRY(input_type(im, &t));
    out->images = im->m->inputs.at[0].name;
    while (out->n_prepared < im->m->n_nodes && out->n_prepared < PREPARED_MAX) {
        const td_onnx_node *n = &im->m->nodes[out->n_prepared];
        td_type next = t;
        if (n->n_in < 1 || strcmp(n->in[0], out->images) != 0 ||
            !td_onnx_is_preparation(im->m, n, &next))
            break;
        t = next;
        out->images = n->out[0];
        TD_TRY(check_declared(im, out->images, &t));
        out->n_prepared++;
    }
    if (t.dtype != TD_DT_F32)
        return td_error(TD_EUNSUPPORTED, "'%s': its u8 input is not cast to float", im->what);
    return td_map_set(&im->values, out->images, td_input(im->b, "images", t));
}

/* --- entry point ------------------------------------------------------------------------------ */

static td_status index_names(importer *im)
{
    const td_onnx *m = im->m;
    for (size_t i = 0; i < m->n_tensors; i++)
        TD_TRY(td_map_set(&im->tensors, m->tensors[i].name, &m->tensors[i]));
    for (size_t i = 0; i < m->values.n; i++)
        TD_TRY(td_map_set(&im->declared, m->values.at[i].name, &m->values.at[i]));
    for (size_t i = 0; i < m->outputs.n; i++)
        TD_TRY(td_map_set(&im->declared, m->outputs.at[i].name, &m->outputs.at[i]));
    return TD_OK;
}

/* adds the additional outputs */
static td_status get_also(importer *im)
{
    for (const char *const *also = im->o->also; also && *also; also++) {
        td_value *v = td_map_get(&im->values, *also);
        if (!v)
            return td_error(TD_EFORMAT, "'%s' has no value '%s'", im->what, *also);
        td_output(im->b, *also, v);
    }
    return TD_OK;
}

static td_status get_all(importer *im, td_onnx_graph *out)
{
    TD_TRY(index_names(im));
    TD_TRY(get_images(im, out));
    out->first_post = out->n_prepared;
    for (; out->first_post < im->m->n_nodes && is_of_a_graph(&im->m->nodes[out->first_post]);
         out->first_post++)
        TD_TRY(get_node(im, &im->m->nodes[out->first_post]));
    TD_TRY(get_post_processing(im, out->first_post));
    for (size_t i = 0; i < im->m->outputs.n; i++) {
        const char *name = im->m->outputs.at[i].name;
        td_value *v = td_map_get(&im->values, name);
        if (!v && out->first_post < im->m->n_nodes)
            continue; /* a result of post-processing */
        if (!v)
            return td_error(TD_EUNSUPPORTED, "'%s': output '%s' is a constant", im->what, name);
        td_output(im->b, name, v);
    }
    return get_also(im);
}

td_status td_graph_of_onnx(const td_onnx *m, const char *what, const td_onnx_import_opts *opts,
                           td_onnx_graph *out)
{
    importer im = { .m = m, .what = what, .o = opts, .b = td_build_begin() };
    *out = (td_onnx_graph){ .model = m, .batch = opts->batch };
    td_status st = get_all(&im, out);
    td_map_release(&im.values);
    td_map_release(&im.tensors);
    td_map_release(&im.declared);
    if (st != TD_OK && td_build_ok(im.b)) {
        td_build_abandon(im.b);
        return st;
    }
    st = td_build_end(im.b, &out->graph);
    return st == TD_OK ? st : td_error_context(st, "'%s'", what);
}

void td_onnx_graph_release(td_onnx_graph *g)
{
    td_graph_free(g->graph);
    *g = (td_onnx_graph){ 0 };
}
