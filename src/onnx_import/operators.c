/*
 * operators.c -- ONNX operators that compute: convolutions, norms, pools, products
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "onnx_import/importer.h"

#define LARGEST 3.4028234663852886e38 /* of f32 */

/* a signal [N, C, L], or a filter of signals, as an image of one row */
static td_value *image_of(td_importer *im, td_value *x)
{
    const td_type t = td_value_type(x);
    return td_import_reshaped(im, x, 4, (int64_t[]){ t.dim[0], t.dim[1], 1, t.dim[2] });
}

/* without the dimension that image_of adds */
static td_value *signal_of(td_importer *im, td_value *y)
{
    const td_type t = td_value_type(y);
    return td_import_reshaped(im, y, 3, (int64_t[]){ t.dim[0], t.dim[1], t.dim[3] });
}

static td_status conv_of_images(td_importer *im, td_value **in, bool is_signal, td_value **y)
{
    int64_t groups;
    td_onnx_window v;
    td_onnx_square s;
    TD_TRY(td_import_attr_int(im, "group", 1, &groups));
    const td_type x = td_value_type(in[0]), w = td_value_type(in[1]);
    if (w.rank != 4)
        return td_import_wrong(im, "the filter has not four dimensions");
    TD_TRY(td_import_window(im, &x, is_signal, &w.dim[2], &v));
    if (groups < 1 || groups > 1 << 20)
        return td_import_wrong(im, "an invalid number of groups");
    TD_TRY(td_import_square(im, &v, 0, &in[0], &s));
    const td_conv_attr a = { .stride = (int)s.stride,
                             .pad = (int)s.pad,
                             .dilation = (int)s.dilation,
                             .groups = (int)groups,
                             .pad_extra = (int)s.pad_extra };
    if (im->o->is_model) { /* conv2d_fused has no gradient */
        *y = td_import_stepped(im, td_emit(im->b, &td_op_conv2d, &a, in[0], in[1]), &s);
        if (im->node->n_in > 2)
            *y = td_emit(im->b, &td_op_bias_add, NULL, *y, in[2]);
        return TD_OK;
    }
    *y = td_emit_n(im->b, im->node->n_in > 2 ? &td_op_conv2d_fused : &td_op_conv2d, &a,
                   im->node->n_in, in, NULL);
    *y = td_import_stepped(im, *y, &s);
    return TD_OK;
}

td_status td_import_conv(td_importer *im, td_value **y)
{
    td_value *in[3];
    TD_TRY(td_import_values_of(im, 2, 3, in));
    const bool is_signal =
        im->o->is_model && td_value_type(in[0]).rank == 3 && td_value_type(in[1]).rank == 3;
    for (int i = 0; i < 2 && is_signal; i++)
        in[i] = image_of(im, in[i]);
    TD_TRY(conv_of_images(im, in, is_signal, y));
    if (is_signal && td_build_ok(im->b))
        *y = signal_of(im, *y);
    return TD_OK;
}

/* the sides that op conv_transpose2d gives, and what the file wants, which may be less */
static td_status crop(td_importer *im, const int64_t *removed, td_value **y)
{
    const td_type t = td_value_type(*y);
    for (int i = 0; i < 2; i++) {
        const td_slice_attr a = { 2 + i, removed[i], t.dim[2 + i] - removed[i] - removed[2 + i],
                                  1 };
        if (a.size < 1)
            return td_import_wrong(im, "the padding removes the whole result");
        if (a.size < t.dim[2 + i])
            *y = td_emit(im->b, &td_op_slice, &a, *y);
    }
    return TD_OK;
}

/* uneven pads, which remove pixels of the result, are slices */
td_status td_import_conv_transpose(td_importer *im, td_value **y)
{
    td_value *in[3];
    td_onnx_window v;
    int64_t groups, removed[4];
    const td_onnx_attr *more = td_onnx_attr_find(im->node, "output_padding");
    TD_TRY(td_import_values_of(im, 2, 3, in));
    TD_TRY(td_import_attr_int(im, "group", 1, &groups));
    const td_type x = td_value_type(in[0]), w = td_value_type(in[1]);
    if (w.rank != 4)
        return td_import_wrong(im, "the filter has not four dimensions");
    if (td_onnx_attr_find(im->node, "auto_pad") && !td_import_attr_is(im, "auto_pad", "NOTSET"))
        return td_import_refuse(im, "auto_pad of a transposed convolution");
    TD_TRY(td_import_window(im, &x, false, &w.dim[2], &v));
    if (groups < 1 || groups > 1 << 16)
        return td_import_wrong(im, "an invalid number of groups");
    if (more && (more->kind != TD_ONNX_INTS || more->n != 2))
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    if (v.stride[0] != v.stride[1] || v.dilation[0] != v.dilation[1] ||
        (more && more->ints[0] != more->ints[1]))
        return td_import_refuse(im, "different strides, dilations or output padding of height and "
                                    "width");
    if (v.stride[0] > 64 || v.dilation[0] > 64)
        return td_import_refuse(im, "strides or dilations above 64");
    if (more && (more->ints[0] < 0 || more->ints[0] >= v.stride[0]))
        return td_import_refuse(im, "output padding that is not less than the stride");
    int64_t least = v.begin[0];
    for (int i = 0; i < 2; i++) {
        least = v.begin[i] < least ? v.begin[i] : least;
        least = v.end[i] < least ? v.end[i] : least;
    }
    const td_conv_transpose_attr a = { .stride = (int)v.stride[0],
                                       .pad = (int)(least > 64 ? 0 : least),
                                       .dilation = (int)v.dilation[0],
                                       .groups = (int)groups,
                                       .output_pad = more ? (int)more->ints[0] : 0 };
    *y = td_emit(im->b, &td_op_conv_transpose2d, &a, in[0], in[1]);
    if (!td_build_ok(im->b))
        return TD_OK;
    for (int i = 0; i < 2; i++) {
        removed[i] = v.begin[i] - a.pad;
        removed[2 + i] = v.end[i] - a.pad;
    }
    TD_TRY(crop(im, removed, y));
    if (im->node->n_in > 2)
        *y = td_emit(im->b, &td_op_bias_add, NULL, *y, in[2]);
    return TD_OK;
}

/* rows or signals [N, C, L] as images [N, C, L, 1], normalized by `a` */
static td_status norm_of_images(td_importer *im, td_value **in, td_norm_attr *a, td_value **y)
{
    const td_type t = td_value_type(in[0]);
    td_value *out[3];
    if (t.rank != 4)
        in[0] = td_import_reshaped(
            im, in[0], 4, (int64_t[]){ t.dim[0], t.dim[1], t.rank == 3 ? t.dim[2] : 1, 1 });
    a->count = td_type_count(&t) / t.dim[1];
    td_emit_n(im->b, &td_op_batch_norm, a, 3, in, out);
    td_emit(im->b, &td_op_batch_norm_update, a, in[3], in[4], out[1], out[2]);
    *y = t.rank == 4 ? out[0] : td_import_reshaped(im, out[0], t.rank, t.dim);
    return TD_OK;
}

/*
 * Statistics that the graph computes from x itself, not those of a data set: how PyTorch writes
 * filters that are standardized, [1, C, L].
 */
static td_status norm_of_itself(td_importer *im, td_value **in, const td_norm_attr *a, td_value **y)
{
    const td_type t = td_value_type(in[0]);
    if (t.dim[0] != 1 || t.dim[1] > 65536)
        return td_import_refuse(im, "running statistics that are not tensors of the file");
    const td_group_norm_attr each = { .groups = (int)t.dim[1], .eps = a->eps };
    *y = td_emit(im->b, &td_op_group_norm, &each, in[0], in[1], in[2]);
    return TD_OK;
}

/* with the momentum of its running statistics, which the form for inference does not have */
static td_status model_norm(td_importer *im, td_value **in, td_norm_attr *a, td_value **y)
{
    int64_t training;
    const td_type x = td_value_type(in[0]);
    TD_TRY(td_import_attr_int(im, "training_mode", 0, &training));
    if (x.rank < 2 || x.rank > 4)
        return td_import_refuse(im, "images that have not two to four dimensions");
    if (training && !td_map_has(&im->tensors, im->node->in[3]) &&
        !td_map_has(&im->tensors, im->node->in[4]))
        return norm_of_itself(im, in, a, y);
    const double kept = td_import_attr_float(im, "momentum", 0.9F);
    if (!(kept >= 0 && kept <= 1))
        return td_import_wrong(im, "the momentum is not between 0 and 1");
    a->momentum = round((1 - kept) * 1e6) / 1e6; /* kept is a float: 1 - 0.9 is not 0.1 */
    return norm_of_images(im, in, a, y);
}

td_status td_import_norm(td_importer *im, td_value **y)
{
    td_value *in[5];
    const td_onnx_attr *eps = td_onnx_attr_find(im->node, "epsilon");
    td_norm_attr a;
    TD_TRY(td_import_norm_operands(im, in));
    if (!im->o->is_model)
        TD_TRY(td_import_attr_must(im, "training_mode", 0));
    if (eps && eps->kind != TD_ONNX_FLOAT)
        return td_import_wrong(im, "epsilon is not a float");
    td_fields_default(td_op_batch_norm_infer.fields, &a);
    a.eps = eps ? (double)eps->f : 1e-5;
    if (im->o->is_model)
        return model_norm(im, in, &a, y);
    *y = td_emit_n(im->b, &td_op_batch_norm_infer, &a, 5, in, NULL);
    return TD_OK;
}

/* ceil_mode: padding at the end until the last window fits, unless that would start outside */
static void round_up(const td_type *x, td_onnx_window *v)
{
    for (int i = 0; i < 2; i++) {
        const int64_t side = x->dim[2 + i], room = side + v->begin[i] + v->end[i] - v->kernel[i];
        const int64_t over = room % v->stride[i], last = room - over + v->stride[i];
        if (room >= 0 && over > 0 && last < side + v->begin[i])
            v->end[i] += v->stride[i] - over;
    }
}

/* one window that is the whole image */
static bool is_whole(const td_type *x, const td_onnx_window *v)
{
    bool is = true;
    for (int i = 0; i < 2; i++)
        is = is && v->kernel[i] == x->dim[2 + i] && v->begin[i] == 0 && v->end[i] == 0;
    return is;
}

/* is an average over pixels that are there, with padding that is not the same on all sides?  It
   would count its padding if that is made first */
static bool is_uneven(const td_onnx_window *v, bool counts_padding, bool is_rounded_up)
{
    const bool is_even =
        v->begin[0] == v->begin[1] && v->end[0] == v->end[1] && v->end[0] == v->begin[0];
    return !is_even && (!counts_padding || is_rounded_up);
}

/* padding of more than half a window */
static bool is_wide(const td_onnx_window *v)
{
    bool is = false;
    for (int i = 0; i < 2; i++)
        is = is || 2 * v->begin[i] > v->kernel[i] || 2 * v->end[i] > v->kernel[i];
    return is;
}

/* x with the window's padding */
static td_value *pad_all(td_importer *im, td_value *x, const td_onnx_window *v, double value)
{
    for (int i = 0; i < 2; i++)
        x = td_import_padded(im, x, 2 + i, v->begin[i], v->end[i], TD_PAD_CONSTANT, value);
    return x;
}

/* the attribute kernel_w: 0 if the window is square */
static int width_of(const td_onnx_window *v)
{
    return v->kernel[1] == v->kernel[0] ? 0 : (int)v->kernel[1];
}

/* the pooling of an image that has its padding */
static td_status pool_unpadded(td_importer *im, bool is_max, td_value *x, const td_onnx_window *v,
                               td_value **y)
{
    td_onnx_window w = *v;
    td_onnx_square s;
    for (int i = 0; i < 2; i++)
        w.begin[i] = w.end[i] = 0;
    TD_TRY(td_import_square(im, &w, 0, &x, &s));
    const td_pool_attr a = { .kernel = (int)v->kernel[0],
                             .kernel_w = width_of(v),
                             .stride = (int)s.stride,
                             .count_include_pad = true };
    *y = td_emit(im->b, is_max ? &td_op_max_pool2d : &td_op_avg_pool2d, &a, x);
    *y = td_import_stepped(im, *y, &s);
    return TD_OK;
}

/* ones for the pixels that an average counts, like the padded image [1, 1, ..] */
static td_value *counted(td_importer *im, const td_type *x, const td_onnx_window *given,
                         const td_onnx_window *v, bool counts_padding)
{
    const td_type t = td_type_4d(x->dtype, 1, 1, x->dim[2], x->dim[3]);
    const td_constant_attr one = { .value = 1, .type = td_build_type_text(im->b, &t) };
    td_onnx_window more = *given;
    for (int i = 0; i < 2; i++) { /* what rounding up adds is never counted */
        more.begin[i] = 0;
        more.end[i] = v->end[i] - given->end[i];
    }
    td_value *y = td_emit_n(im->b, &td_op_constant, &one, 0, NULL, NULL);
    return pad_all(im, pad_all(im, y, given, counts_padding ? 1 : 0), &more, 0);
}

/*
 * Padding that pooling cannot do is a node of its own; the average is then divided by that of ones.
 * `given` is the window before rounding up.
 */
static td_status pool_padded(td_importer *im, bool is_max, td_value *x, const td_onnx_window *given,
                             const td_onnx_window *v, bool counts_padding, td_value **y)
{
    const td_type t = td_value_type(x);
    td_value *share;
    TD_TRY(pool_unpadded(im, is_max, pad_all(im, x, v, is_max ? -LARGEST : 0), v, y));
    if (is_max)
        return TD_OK;
    TD_TRY(pool_unpadded(im, false, counted(im, &t, given, v, counts_padding), v, &share));
    *y = td_emit(im->b, &td_op_div, NULL, *y, share);
    return TD_OK;
}

static td_status means_of(td_importer *im, td_value *x, td_value **y)
{
    *y = td_global_avg_pool(im->b, x);
    if (td_build_ok(im->b)) {
        const td_type t = td_value_type(*y);
        *y = td_reshape(im->b, *y, 4, (int64_t[]){ t.dim[0], t.dim[1], 1, 1 });
    }
    return TD_OK;
}

/* pools images, or signals, which are images of one row */
static td_status pool_images(td_importer *im, td_value *x, bool is_signal, td_value **y)
{
    int64_t include, ceil_mode;
    const bool is_max = strcmp(im->node->op, "MaxPool") == 0;
    td_onnx_window v;
    td_onnx_square s;
    const td_type t = td_value_type(x);
    TD_TRY(td_import_window(im, &t, is_signal, NULL, &v));
    TD_TRY(td_import_attr_int(im, "count_include_pad", 0, &include));
    TD_TRY(td_import_attr_int(im, "ceil_mode", 0, &ceil_mode));
    if (v.dilation[0] != 1 || v.dilation[1] != 1)
        return td_import_refuse(im, "dilated windows");
    if (im->o->is_model && is_whole(&t, &v))
        return is_max ? td_import_global_max(im, x, y) : means_of(im, x, y);
    const td_onnx_window given = v;
    if (ceil_mode)
        round_up(&t, &v);
    const bool uneven = !is_max && is_uneven(&v, include != 0, ceil_mode != 0);
    if (uneven && !im->o->is_model)
        return td_import_refuse(im, "uneven padding for an average is not supported");
    if (v.kernel[0] > 15 || v.kernel[1] > 15)
        return td_import_refuse(im, "windows of more than 15 pixels");
    const bool fits = v.begin[0] < v.kernel[0] && v.begin[1] < v.kernel[1] &&
                      v.end[0] < v.kernel[0] && v.end[1] < v.kernel[1];
    if (!fits)
        return td_import_wrong(im, "padding that is not less than the window");
    if (uneven || (is_wide(&v) && im->o->is_model))
        return pool_padded(im, is_max, x, &given, &v, include != 0, y);
    TD_TRY(td_import_square(im, &v, is_max ? -LARGEST : 0, &x, &s));
    if (2 * s.pad > v.kernel[0] || 2 * s.pad > v.kernel[1])
        return td_import_refuse(im, "padding of more than half a window");
    const td_pool_attr a = { .kernel = (int)v.kernel[0],
                             .kernel_w = width_of(&v),
                             .stride = (int)s.stride,
                             .pad = (int)s.pad,
                             .pad_extra = (int)s.pad_extra,
                             .count_include_pad = include != 0 };
    *y = td_emit(im->b, is_max ? &td_op_max_pool2d : &td_op_avg_pool2d, &a, x);
    *y = td_import_stepped(im, *y, &s);
    return TD_OK;
}

td_status td_import_pool(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const bool is_signal = im->o->is_model && td_value_type(x).rank == 3;
    TD_TRY(pool_images(im, is_signal ? image_of(im, x) : x, is_signal, y));
    if (is_signal && td_build_ok(im->b))
        *y = signal_of(im, *y);
    return TD_OK;
}

td_status td_import_means(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const bool is_signal = im->o->is_model && td_value_type(x).rank == 3;
    TD_TRY(means_of(im, is_signal ? image_of(im, x) : x, y));
    if (is_signal && td_build_ok(im->b))
        *y = signal_of(im, *y);
    return TD_OK;
}

td_status td_import_identity(td_importer *im, td_value **y)
{
    if (td_import_wide_at(im))
        return td_import_wide_same(im, td_import_wide_at(im));
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
