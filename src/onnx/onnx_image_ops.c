/*
 * onnx_image_ops.c -- ops on images as ONNX
 *
 *     conv_transpose2d   ConvTranspose
 *     resize             Resize by scales if they are given, otherwise to sizes
 *     pad                Pad
 *     group_norm         InstanceNormalization if each channel is a group; otherwise the same of
 *                        [N, groups, ..] between two Reshape, then Mul and Add by channel
 */
#include "onnx/onnx_write.h"

#include "ops/ops.h"

void td_writer_conv_transpose(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_conv_transpose_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    td_writer_same(e, n, op);
    TD_WRITER_INTS(e, "kernel_shape", w->dim[2], w->dim[3]);
    TD_WRITER_INTS(e, "strides", a->stride, a->stride);
    TD_WRITER_INTS(e, "pads", a->pad, a->pad, a->pad + a->pad_extra, a->pad + a->pad_extra);
    TD_WRITER_INTS(e, "dilations", a->dilation, a->dilation);
    TD_WRITER_INTS(e, "output_padding", a->output_pad, a->output_pad);
    td_onnx_attr_int(e->m, "group", a->groups);
}

/* do these scales give y's sides, in both graphs that are compared? */
static bool gives_sides(const td_onnx_writer *e, const td_node *n, const float by[4])
{
    const td_value *x = n->in[0], *y = n->out[0];
    bool is_true = true;
    for (int d = 2; d < 4; d++) {
        is_true = is_true && (int64_t)((float)x->type.dim[d] * by[d]) == y->type.dim[d];
        if (e->larger)
            is_true = is_true && (int64_t)((float)e->larger->values[x->id]->type.dim[d] * by[d]) ==
                                     e->larger->values[y->id]->type.dim[d];
    }
    return is_true;
}

/* scales if they are given or exact, otherwise the sizes of all dimensions */
void td_writer_interpolate(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_interpolate_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_onnx_value type = td_writer_shape(e, n->out[0]);
    const double height =
        a->height_scale > 0 ? a->height_scale : (double)y->dim[2] / (double)x->dim[2];
    const double width =
        a->width_scale > 0 ? a->width_scale : (double)y->dim[3] / (double)x->dim[3];
    const float by[4] = { 1, 1, (float)height, (float)width };
    const char *in = td_writer_operand(e, n, 0);
    if (gives_sides(e, n, by)) {
        const char *scales =
            td_writer_constant(e, n, "/scales", TD_DT_F32, 1, (int64_t[]){ 4 }, by, sizeof by);
        td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &type, in, "", scales));
    } else if (a->height_scale <= 0 && a->width_scale <= 0) {
        const char *sizes = td_writer_shape_of(e, n, n->out[0]);
        td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &type, in, "", "", sizes));
    } else {
        td_writer_stop(e, td_error(TD_EUNSUPPORTED,
                                   "resize '%%%s': its scales do not give %lldx%lld in float32",
                                   n->out[0]->name, (long long)y->dim[2], (long long)y->dim[3]));
        return;
    }
    td_onnx_attr_text(e->m, "mode", a->mode == TD_RESIZE_CUBIC ? "cubic" : "linear");
    td_onnx_attr_text(e->m, "coordinate_transformation_mode",
                      td_resize_coordinates_name(a->coordinates));
    td_onnx_attr_float(e->m, "cubic_coeff_a", (float)a->cubic);
}

void td_writer_pad(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_pad_attr *a = n->attr;
    const int rank = td_in_type(n, 0)->rank;
    int64_t pads[2 * TD_RANK_MAX] = { 0 };
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    pads[a->axis] = a->before;
    pads[rank + a->axis] = a->after;
    const char *x = td_writer_operand(e, n, 0);
    const char *amounts = td_writer_ints(e, n, "/pads", 2 * rank, pads);
    td_writer_result(
        e, n,
        TD_WRITER_ADD(e, op, n, &y, x, amounts,
                      td_writer_scalar(e, n, "/value", td_in_type(n, 0)->dtype, a->value)));
    td_onnx_attr_text(e->m, "mode", td_pad_mode_name(a->mode));
}

/* f32 [count] of equal numbers */
static const char *equal_numbers(td_onnx_writer *e, const td_node *n, const char *what,
                                 int64_t count, float value)
{
    float *v = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, (size_t)count, sizeof *v) : NULL;
    if (!v) {
        td_writer_stop(e, TD_ENOMEM);
        return what;
    }
    for (int64_t i = 0; i < count; i++)
        v[i] = value;
    return td_writer_constant(e, n, what, TD_DT_F32, 1, &count, v, (size_t)count * sizeof *v);
}

/* x by its channels: gamma or beta as [C, 1, 1] */
static const char *by_channel(td_onnx_writer *e, const td_node *n, const char *op, int i,
                              const char *x, const td_onnx_value *y)
{
    const int rank = td_in_type(n, 0)->rank - 1;
    int64_t dim[TD_RANK_MAX] = { td_in_type(n, i)->dim[0], 1, 1, 1, 1 };
    td_onnx_value type = { .dtype = td_in_type(n, i)->dtype, .rank = rank };
    for (int d = 0; d < rank; d++)
        type.dim[d].value = dim[d];
    const char *v = TD_WRITER_ADD(e, "Reshape", n, &type, td_writer_operand(e, n, i),
                                  td_writer_ints(e, n, "/channels", rank, dim));
    return TD_WRITER_ADD(e, op, n, y, x, v);
}

void td_writer_group_norm(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_group_norm_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    td_onnx_value y = td_writer_shape(e, n->out[0]), rows = y;
    if (a->groups == x->dim[1]) {
        td_writer_same(e, n, op);
        td_onnx_attr_float(e->m, "epsilon", (float)a->eps);
        return;
    }
    if (x->dtype != TD_DT_F32)
        td_writer_stop(e, td_error(TD_EUNSUPPORTED, "group_norm '%%%s' is %s, wanted f32",
                                   n->out[0]->name, td_dtype_name(x->dtype)));
    bool is_open = false;
    int64_t whole[TD_RANK_MAX], width = td_type_count(x) / x->dim[0] / a->groups;
    for (int d = 0; d < x->rank; d++) {
        whole[d] = d == 0 ? 0 : x->dim[d];
        is_open = is_open || (d > 0 && td_writer_is_open(e, n->in[0], d));
    }
    width = is_open ? -1 : width;
    rows.rank = 3;
    rows.dim[1] = (td_onnx_dim){ .value = a->groups };
    rows.dim[2] = (td_onnx_dim){ .value = width };
    const char *v =
        TD_WRITER_ADD(e, "Reshape", n, &rows, td_writer_operand(e, n, 0),
                      td_writer_ints(e, n, "/rows", 3, (int64_t[]){ 0, a->groups, width }));
    v = TD_WRITER_ADD(e, op, n, &rows, v, equal_numbers(e, n, "/ones", a->groups, 1),
                      equal_numbers(e, n, "/zeros", a->groups, 0));
    td_onnx_attr_float(e->m, "epsilon", (float)a->eps);
    const char *shape = is_open ? td_writer_shape_of(e, n, n->in[0])
                                : td_writer_ints(e, n, "/whole", x->rank, whole);
    v = TD_WRITER_ADD(e, "Reshape", n, &y, v, shape);
    v = by_channel(e, n, "Mul", 1, v, &y);
    td_writer_result(e, n, by_channel(e, n, "Add", 2, v, &y));
}
