/*
 * resize_operators.c -- ONNX operators that resize and pad images, and norms of channel groups
 *
 * A nearest resize is a selection of rows and of columns: their indices are computed here in
 * float32, as runtimes do, and become the op resize_nearest or slices.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <math.h>
#include <string.h>

#include "onnx_import/importer.h"

/* --- Resize ----------------------------------------------------------------------------------- */

/* for height and width: rows of the result, and for one of x */
typedef struct {
    int64_t side[2];
    double scale[2];
} target;

static bool is_given(const td_importer *im, int i)
{
    const td_tensor *t = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    return i < im->node->n_in && *im->node->in[i] && !(t && t->n_bytes == 0);
}

/* the dimensions that operands `scales` and `sizes` speak of: all four, or attribute `axes` */
static td_status resize_axes(const td_importer *im, int *n, int64_t *axis)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "axes");
    *n = 4;
    for (int d = 0; d < 4; d++)
        axis[d] = d;
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n < 1 || a->n > 4)
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    *n = a->n;
    for (int i = 0; i < a->n; i++) {
        axis[i] = a->ints[i] + (a->ints[i] < 0 ? 4 : 0);
        if (axis[i] < 0 || axis[i] > 3)
            return td_import_wrong(im, "an axis is out of range");
    }
    return TD_OK;
}

static td_status read_scales(const td_importer *im, int n, float *out)
{
    const td_tensor *t;
    TD_TRY(td_import_tensor_at(im, 2, TD_DT_F32, 1, &t));
    if (t->dim[0] != n)
        return td_import_wrong(im, "scales or sizes are not one number for each dimension");
    memcpy(out, t->data, (size_t)n * sizeof *out);
    return TD_OK;
}

static td_status resize_target(const td_importer *im, const td_type *x, target *to)
{
    int n, n_sizes = 0;
    int64_t axis[4], size[4];
    float scale[4];
    const bool has_sizes = is_given(im, 3);
    *to = (target){ .side = { x->dim[2], x->dim[3] }, .scale = { 1, 1 } };
    TD_TRY(resize_axes(im, &n, axis));
    if (has_sizes == is_given(im, 2))
        return td_import_wrong(im, "neither or both of scales and sizes are given");
    if (has_sizes)
        TD_TRY(td_import_ints_at(im, 3, 4, &n_sizes, size));
    else
        TD_TRY(read_scales(im, n, scale));
    if (has_sizes && n_sizes != n)
        return td_import_wrong(im, "scales or sizes are not one number for each dimension");
    for (int i = 0; i < n; i++) {
        const int64_t from = x->dim[axis[i]];
        if (!has_sizes && !(scale[i] > 0 && scale[i] <= 65536))
            return td_import_wrong(im, "a scale is out of range");
        const double by = has_sizes ? (double)size[i] / (double)from : (double)scale[i];
        const int64_t side = has_sizes ? size[i] : (int64_t)floorf((float)from * scale[i]);
        if (axis[i] < 2 && side != from && !(has_sizes && axis[i] == 0 && im->batch_dims))
            return td_import_refuse(im, "resizing of images or channels");
        if (axis[i] < 2)
            continue;
        if (side < 1 || side > 65536 || by < 1.0 / 65536)
            return td_import_wrong(im, "a side is out of range");
        to->side[axis[i] - 2] = side;
        to->scale[axis[i] - 2] = by;
    }
    return TD_OK;
}

/* the pixel of the source for pixel i of the result */
static float place_of(const td_importer *im, int64_t i, int64_t from, int64_t to, float scale)
{
    const float at = (float)i;
    const char *name = "coordinate_transformation_mode";
    if (td_import_attr_is(im, name, "align_corners"))
        return to > 1 ? at * (float)(from - 1) / ((float)from * scale - 1) : 0;
    if (td_import_attr_is(im, name, "asymmetric"))
        return at / scale;
    if (td_import_attr_is(im, name, "tf_half_pixel_for_nn"))
        return (at + 0.5F) / scale;
    if (td_import_attr_is(im, name, "pytorch_half_pixel") && to == 1)
        return 0;
    return (at + 0.5F) / scale - 0.5F;
}

static int64_t nearest_of(const td_importer *im, float x, int64_t from)
{
    const char *name = "nearest_mode";
    const float y = td_import_attr_is(im, name, "floor")               ? floorf(x)
                    : td_import_attr_is(im, name, "ceil")              ? ceilf(x)
                    : td_import_attr_is(im, name, "round_prefer_ceil") ? floorf(x + 0.5F)
                                                                       : ceilf(x - 0.5F);
    return y < 0 ? 0 : y >= (float)from ? from - 1 : (int64_t)y;
}

static td_status select_along(td_importer *im, int axis, const target *to, td_value **x)
{
    const int64_t from = td_value_type(*x).dim[axis], n = to->side[axis - 2];
    if (from == n && to->scale[axis - 2] >= 1 && to->scale[axis - 2] <= 1)
        return TD_OK;
    int64_t *at = td_alloc((size_t)n, sizeof *at);
    if (!at)
        return TD_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        at[i] = nearest_of(im, place_of(im, i, from, n, (float)to->scale[axis - 2]), from);
    const td_status st = td_import_gather_at(im, *x, axis, (int)n, at, x);
    td_free(at);
    return st;
}

/* both sides at once if rows and columns are those of resize_nearest */
static td_status nearest(td_importer *im, td_value *x, const target *to, td_value **y)
{
    const td_type t = td_value_type(x);
    bool is_plain = true;
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < to->side[i] && is_plain; k++) {
            const float at = place_of(im, k, t.dim[2 + i], to->side[i], (float)to->scale[i]);
            is_plain = nearest_of(im, at, t.dim[2 + i]) == k * t.dim[2 + i] / to->side[i];
        }
    if (is_plain) {
        *y = td_resize_nearest(im->b, x, (int)to->side[0], (int)to->side[1]);
        return TD_OK;
    }
    TD_TRY(select_along(im, 2, to, &x));
    if (td_build_ok(im->b))
        TD_TRY(select_along(im, 3, to, &x));
    *y = x;
    return TD_OK;
}

static td_status interpolated(td_importer *im, td_value *x, const target *to, td_value **y)
{
    static const char name[] = "coordinate_transformation_mode";
    const bool is_cubic = td_import_attr_is(im, "mode", "cubic");
    td_interpolate_attr a = { .height = (int)to->side[0],
                              .width = (int)to->side[1],
                              .mode = is_cubic ? TD_RESIZE_CUBIC : TD_RESIZE_LINEAR,
                              .height_scale = is_given(im, 3) ? 0 : to->scale[0],
                              .width_scale = is_given(im, 3) ? 0 : to->scale[1],
                              .cubic = td_import_attr_float(im, "cubic_coeff_a", -0.75) };
    const td_type t = td_value_type(x);
    const double whole[2] = { (double)to->side[0] / (double)t.dim[2],
                              (double)to->side[1] / (double)t.dim[3] };
    if (!(fabs(whole[0] - to->scale[0]) > 0) && !(fabs(whole[1] - to->scale[1]) > 0))
        a.height_scale = a.width_scale = 0;
    if (!(fabs(a.cubic) <= 16))
        return td_import_wrong(im, "cubic_coeff_a is not a number of at most 16");
    if (td_onnx_attr_find(im->node, name)) {
        while (a.coordinates <= TD_RESIZE_ASYMMETRIC &&
               !td_import_attr_is(im, name, td_resize_coordinates_name(a.coordinates)))
            a.coordinates++;
        if (a.coordinates > TD_RESIZE_ASYMMETRIC)
            return td_import_refuse(im, "an unsupported coordinate_transformation_mode");
    }
    *y = td_emit(im->b, &td_op_resize, &a, x);
    return TD_OK;
}

td_status td_import_resize(td_importer *im, td_value **y)
{
    td_value *x;
    target to;
    const bool is_nearest =
        !td_onnx_attr_find(im->node, "mode") || td_import_attr_is(im, "mode", "nearest");
    if (im->node->n_in < 3 || im->node->n_in > 4)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &x));
    const td_type t = td_value_type(x);
    if (t.rank != 4)
        return td_import_refuse(im, "images that have not four dimensions");
    TD_TRY(td_import_attr_must(im, "antialias", 0));
    TD_TRY(td_import_attr_must(im, "exclude_outside", 0));
    if (td_onnx_attr_find(im->node, "keep_aspect_ratio_policy") &&
        !td_import_attr_is(im, "keep_aspect_ratio_policy", "stretch"))
        return td_import_refuse(im, "a keep_aspect_ratio_policy other than stretch");
    if (td_import_attr_is(im, "coordinate_transformation_mode", "tf_crop_and_resize") ||
        td_import_attr_is(im, "coordinate_transformation_mode", "half_pixel_symmetric"))
        return td_import_refuse(im, "an unsupported coordinate_transformation_mode");
    TD_TRY(resize_target(im, &t, &to));
    if (is_nearest)
        return nearest(im, x, &to, y);
    if (!td_import_attr_is(im, "mode", "linear") && !td_import_attr_is(im, "mode", "cubic"))
        return td_import_refuse(im, "a mode other than nearest, linear and cubic");
    return interpolated(im, x, &to, y);
}

/* --- Pad -------------------------------------------------------------------------------------- */

static td_status pad_mode(const td_importer *im, int *mode)
{
    *mode = TD_PAD_CONSTANT;
    if (!td_onnx_attr_find(im->node, "mode"))
        return TD_OK;
    while (*mode <= TD_PAD_WRAP && !td_import_attr_is(im, "mode", td_pad_mode_name(*mode)))
        ++*mode;
    return *mode > TD_PAD_WRAP ? td_import_refuse(im, "an unsupported mode") : TD_OK;
}

/* the axes that operand `pads` speaks of, all without operand `axes` */
static td_status pad_axes(const td_importer *im, int rank, int *n, int64_t *axis)
{
    *n = rank;
    for (int d = 0; d < rank; d++)
        axis[d] = d;
    if (!is_given(im, 3))
        return TD_OK;
    TD_TRY(td_import_ints_at(im, 3, TD_RANK_MAX, n, axis));
    unsigned seen = 0;
    for (int i = 0; i < *n; i++) {
        axis[i] += axis[i] < 0 ? rank : 0;
        if (axis[i] < 0 || axis[i] >= rank || (seen >> axis[i] & 1))
            return td_import_wrong(im, "an axis is out of range, or named twice");
        seen |= 1u << axis[i];
    }
    return TD_OK;
}

/* one axis; negative amounts remove elements */
static td_status pad_along(td_importer *im, int axis, int64_t before, int64_t after, int mode,
                           double value, td_value **x)
{
    const int64_t size = td_value_type(*x).dim[axis];
    if (before < -size || before > TD_PAD_MAX || after < -size || after > TD_PAD_MAX)
        return td_import_wrong(im, "padding is out of range");
    const int64_t from = before < 0 ? -before : 0, less = after < 0 ? -after : 0;
    if (size - from - less < 1)
        return td_import_wrong(im, "the padding removes all elements");
    if (from + less > 0) {
        const td_slice_attr a = { axis, from, size - from - less, 1 };
        *x = td_emit(im->b, &td_op_slice, &a, *x);
    }
    *x =
        td_import_padded(im, *x, axis, before > 0 ? before : 0, after > 0 ? after : 0, mode, value);
    return TD_OK;
}

td_status td_import_pad(td_importer *im, td_value **y)
{
    td_value *x;
    int mode, n, n_pads;
    int64_t axis[TD_RANK_MAX], pads[2 * TD_RANK_MAX];
    double value = 0;
    if (im->node->n_in < 2 || im->node->n_in > 4)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &x));
    const td_type t = td_value_type(x);
    TD_TRY(pad_mode(im, &mode));
    TD_TRY(pad_axes(im, t.rank, &n, axis));
    TD_TRY(td_import_ints_at(im, 1, 2 * TD_RANK_MAX, &n_pads, pads));
    if (n_pads != 2 * n)
        return td_import_wrong(im, "pads are not two numbers for each dimension");
    if (is_given(im, 2) && !td_import_is_number(im, 2, &value))
        TD_TRY(td_import_scalar_at(im, 2, t.dtype, &value));
    if (!(value >= -3.4028234663852886e38))
        value = -3.4028234663852886e38;
    if (value > 3.4028234663852886e38)
        value = 3.4028234663852886e38;
    for (int i = 0; i < n && td_build_ok(im->b); i++)
        TD_TRY(pad_along(im, (int)axis[i], pads[i], pads[n + i], mode, value, &x));
    *y = x;
    return TD_OK;
}

/* --- norms of groups -------------------------------------------------------------------------- */

/* x [N, C, ..], gamma and beta [C] */
td_status td_import_group_norm(td_importer *im, td_value **y)
{
    td_value *in[3];
    td_group_norm_attr a = { .eps = td_import_attr_float(im, "epsilon", 1e-5) };
    int64_t groups = 0;
    TD_TRY(td_import_values_of(im, 3, 3, in));
    const td_type x = td_value_type(in[0]);
    if (x.rank < 3)
        return td_import_refuse(im, "images that have less than three dimensions");
    if (strcmp(im->node->op, "InstanceNormalization") == 0) {
        groups = x.dim[1];
    } else {
        TD_TRY(td_import_attr_int(im, "num_groups", 0, &groups));
        TD_TRY(td_import_attr_must(im, "stash_type", 1));
        if (im->m->opset < 21)
            return td_import_refuse(im, "its scale has one number for each group before opset 21");
    }
    if (groups < 1 || groups > 65536)
        return td_import_wrong(im, "an invalid number of groups");
    if (!(a.eps >= 0 && a.eps <= 1))
        return td_import_wrong(im, "epsilon is not between 0 and 1");
    a.groups = (int)groups;
    *y = td_emit(im->b, &td_op_group_norm, &a, in[0], in[1], in[2]);
    return TD_OK;
}
