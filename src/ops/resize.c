/*
 * resize(x) {height, width, mode, ..} -> y      bilinear or bicubic interpolation
 *
 *   x  [N, C, H, W]           any float
 *   y  [N, C, height, width]  same as x
 *
 *   y[p, q] = the sum over i and j of v_i(p) w_j(q) x[h_i(p), w_j(q)], 2 or 4 rows and columns;
 *   pixels beyond the edge are those at the edge
 *
 *   coordinates           the place of pixel p of the result in x, with s = height_scale
 *   half_pixel            (p + 1/2) / s - 1/2, as in PyTorch with align_corners=False
 *   pytorch_half_pixel    the same; 0 for a result of one pixel
 *   align_corners         p (H - 1) / (s H - 1); 0 for a result of one pixel
 *   asymmetric            p / s
 *
 *   height_scale, width_scale   0: height / H, width / W
 *   cubic                       the parameter a of the bicubic kernel
 *
 * resize_grad(dy, x) {..} -> dx      x for its shape only; dx has dy's dtype
 *
 * Sources: ONNX operator Resize; Keys 1981 (the cubic).
 */
#include "ir/build.h"
#include "ops/ops.h"
#include "ops/resize_taps.h"

static const char *const mode_names[] = { "linear", "cubic", NULL };
static const char *const coordinate_names[] = { "half_pixel", "pytorch_half_pixel", "align_corners",
                                                "asymmetric", NULL };

/* clang-format off */
static const td_field resize_fields[] = {
    TD_INT (td_interpolate_attr, height, 1, 1, 65536, "rows of the result"),
    TD_INT (td_interpolate_attr, width,  1, 1, 65536, "columns of the result"),
    TD_ENUM(td_interpolate_attr, mode, TD_RESIZE_LINEAR, mode_names, "how to interpolate"),
    TD_ENUM(td_interpolate_attr, coordinates, TD_RESIZE_HALF_PIXEL, coordinate_names,
            "where pixels are"),
    TD_REAL(td_interpolate_attr, height_scale, 0, 0, 65536,
            "rows of the result for one of x; 0: the sizes' quotient"),
    TD_REAL(td_interpolate_attr, width_scale,  0, 0, 65536, "columns for one of x"),
    TD_REAL(td_interpolate_attr, cubic, -0.75, -16, 16, "parameter of the bicubic kernel"),
    TD_END,
};
/* clang-format on */

const char *td_resize_coordinates_name(int coordinates)
{
    return coordinate_names[coordinates];
}

td_resize_axis td_resize_axis_of(const td_interpolate_attr *a, const td_type *x, bool is_width)
{
    td_resize_axis axis = { .from = x->dim[is_width ? 3 : 2],
                            .to = is_width ? a->width : a->height,
                            .is_cubic = a->mode == TD_RESIZE_CUBIC,
                            .cubic = a->cubic };
    const double given = is_width ? a->width_scale : a->height_scale;
    const double slope = given > 0 ? 1 / given : (double)axis.from / (double)axis.to;
    if (a->coordinates == TD_RESIZE_ALIGN_CORNERS) {
        const double length = given > 0 ? (double)axis.from * given : (double)axis.to;
        axis.slope = length > 1 && axis.to > 1 ? (double)(axis.from - 1) / (length - 1) : 0;
    } else if (a->coordinates == TD_RESIZE_ASYMMETRIC) {
        axis.slope = slope;
    } else if (a->coordinates == TD_RESIZE_HALF_PIXEL || axis.to > 1) {
        axis.slope = slope;
        axis.offset = 0.5 * slope - 0.5;
    }
    return axis;
}

static td_status check_scale(const td_node *n, double scale)
{
    if (scale > 0 && scale < 1.0 / 65536)
        return td_error(TD_ESHAPE, "%s: scale %g is less than 1/65536", n->op->name, scale);
    return TD_OK;
}

static td_status resize_infer(const td_node *n, td_type *y)
{
    const td_interpolate_attr *a = n->attr;
    TD_TRY(check_scale(n, a->height_scale));
    TD_TRY(check_scale(n, a->width_scale));
    *y = *td_in_type(n, 0);
    y->dim[2] = a->height;
    y->dim[3] = a->width;
    return TD_OK;
}

static td_status resize_grad_infer(const td_node *n, td_type *y)
{
    const td_interpolate_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0);
    TD_TRY(check_scale(n, a->height_scale));
    TD_TRY(check_scale(n, a->width_scale));
    *y = td_type_as(td_in_type(n, 1), dy->dtype);
    if (dy->dim[0] != y->dim[0] || dy->dim[1] != y->dim[1] || dy->dim[2] != a->height ||
        dy->dim[3] != a->width)
        return td_error(TD_ESHAPE, "resize_grad: dy does not have the forward result's shape");
    return TD_OK;
}

static void resize_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_resize_grad, n->attr, dy[0], n->in[0]);
}

const td_op td_op_resize = {
    .name = "resize",
    .summary = "bilinear or bicubic resize",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = resize_fields,
    .attr_bytes = sizeof(td_interpolate_attr),
    .tf_op = "ResizeBilinear",
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = resize_infer,
    .grad = resize_op_grad,
};

const td_op td_op_resize_grad = {
    .name = "resize_grad",
    .summary = "gradient of resize",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 4, 4 },
    .fields = resize_fields,
    .attr_bytes = sizeof(td_interpolate_attr),
    .tf_op = "ResizeBilinearGrad",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 1,
    .infer = resize_grad_infer,
};
