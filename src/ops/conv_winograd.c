/*
 * winograd_filter(w) {grad_x, tile} -> u   filters transformed for Winograd's F(4 x 4, 3 x 3)
 *
 *   w  [K, C, 3, 3]        any float    K a multiple of 16
 *   u  [K/16, 36, C, 16]   wide         u[k/16, 6 i + j, c, k%16] = (G w[k, c] G')[i, j]
 *
 *   wide: float64 for f64, float32 for all other types
 *
 *   {stride=2}: G has 6 rows, too: 5 for the outer taps, and the middle one as it is
 *
 *   {tile=2}: for F(2 x 2, 3 x 3), for images in bfloat16, C is even
 *   u  [K/16, 16, C/2, 32] bf16   u[k/16, 4 i + j, c/2, 2 (k%16) + c%2] = (G w[k, c] G')[i, j]
 *
 *   With grad_x the filter of the gradient for the image, which is w with K and C exchanged and
 *   every 3 x 3 rotated by 180 degrees: with stride 1 conv2d_grad_x(dy, w) {pad} is
 *   conv2d_winograd(dy, u) {2 - pad}.  Then C is a multiple of 16, and u is [C/16, 36, K, 16].
 *
 * conv2d_winograd(x, u, bias, residual) -> y         y = relu?(conv2d(x, w) + bias + residual)
 *
 *   x         [N, C, H, W]     any float; stride is 1 or 2, dilation and groups are 1
 *   u, bias   [K]              wide; bias may be omitted, like the residual
 *   residual  [N, K, P, Q]     same as x
 *   y         [N, K, P, Q]     same as x; P = H + 2 pad - 2; 4 x 4 results make a tile:
 *
 *       y tile = A' [ sum over c of u[k, c] . (B' x[c] B) ] A       x: the 6 x 6 inputs of the tile
 *
 *   Tiles cover a side that 4 does not divide with 3 results each at the end: 14 are 4 + 4 + 3 + 3
 *   (td_winograd_side_of).  Only the fourth result depends on the point at infinity.
 *
 *   With {stride=2} P = (H + 2 pad - 3) / 2 + 1, and a tile has 9 x 9 inputs.  Along a side, 5 of
 *   them meet the outer taps, a convolution of 2 taps and stride 1, which F(4, 2) computes at 5
 *   points; 4 meet the middle tap, and are 4 points of their own:
 *
 *       y[i] = (w[0] x[2i] + w[2] x[2i+2]) + w[1] x[2i+1]
 *
 *   The 4 have the same filter, so u has 6 x 6 points for 9 x 9 products.
 *
 *   With {tile=2} x and u are bf16, and 2 x 2 results of 4 x 4 inputs make a tile; a kernel may
 *   round B' x B to bf16.
 *
 * conv2d_winograd_scaled(x, u, scale, bias) -> y     y = relu?(conv2d(x, w) * scale + bias)
 *
 *   scale     [K]              wide; of a norm after the convolution, whose filter others use too
 *
 * conv2d_winograd_grad_x(dy, u, x) -> dx               conv2d_grad_x with stride 2 and pad 1
 *
 *   dy        [N, K, P, Q]     any float; u of winograd_filter {grad_x, stride=2}
 *   dx        [N, C, H, W]     same as dy; x for its shape only; 5 x 5 pixels of dy make a tile of
 *                              8 x 8: its odd pixels depend on the outer taps, the even on the
 *                              middle one
 *
 * conv2d_winograd_grad_w(dy, x, w) {pad, stride, wide} -> dw       conv2d_grad_w, stride 1 or 2
 *
 *   dy        [N, K, P, Q]     any float, same as x; w [K, C, 3, 3] for its shape only
 *   dw        [K, C, 3, 3]     same as x, or wide; K and C multiples of 16
 *
 *       dw[k, c] = G' [ sum over tiles of (A dy[k] A') . (B' x[c] B) ] G
 *
 * 36 multiplications replace 144, 25 replace 81; with {stride=2} 81 and 49; with {tile=2} 16
 * replace 36.  Passes `winograd` and `unfold` create these ops.
 *
 * The points are 0, 5/8, -5/8, 3/2, -3/2 and infinity: A' and B' are exact in float32, and the
 * error is half that of the points 0, 1, -1, 2, -2 (docs/numerics.md).  With {stride=2} they are
 * 1/2, -1/2, 5/4, -5/4 and infinity, as exact, and the error is about that of direct sums.  With
 * {tile=2} they are 0, 1, -1 and infinity: transforms of images add and subtract only, which loses
 * less than the larger tile when their results are rounded to bf16.
 * Source: Lavin and Gray 2016; Toom 1963 and Cook 1966 for the matrices.
 */
#include "ir/build.h"
#include "ops/ops.h"

#define LANES TD_WINO_LANES

/* --- the matrices ----------------------------------------------------------------------------- */

/* finite points; the last one is infinity */
typedef struct {
    int n;
    double at[TD_WINO_SIDE - 1];
} points;

static const points large_points = { 5, { 0, TD_WINO_P, -TD_WINO_P, TD_WINO_Q, -TD_WINO_Q } };
static const points small_points = { 3, { 0, 1, -1 } };
static const points strided_points = {
    4, { TD_WINO_STRIDED_P, -TD_WINO_STRIDED_P, TD_WINO_STRIDED_Q, -TD_WINO_STRIDED_Q }
};

/* coefficients, lowest first, of the product of (x - point) over all finite points but `out` */
static void product_without(int out, const points *by, double *c)
{
    int degree = 0;
    for (int i = 0; i <= by->n; i++)
        c[i] = i == 0;
    for (int p = 0; p < by->n; p++) {
        if (p == out)
            continue;
        degree++;
        for (int i = degree; i >= 0; i--)
            c[i] = (i ? c[i - 1] : 0) - by->at[p] * c[i];
    }
}

/* row i of g and bt, column i of at, for a convolution of `taps` taps */
static void point_matrices(int i, const points *by, int taps, td_winograd *m)
{
    const bool is_last = i == by->n; /* infinity */
    double scale = 1, power = 1;
    product_without(i, by, m->bt[i]);
    for (int p = 0; p < by->n && !is_last; p++)
        scale *= p == i ? 1 : by->at[i] - by->at[p];
    for (int k = 0; k < TD_WINO_TILE; k++) {
        if (k < m->results)
            m->at[k][i] = is_last ? k == m->results - 1 : power;
        if (k < taps)
            m->g[i][k] = is_last ? k == taps - 1 : power / scale;
        power *= is_last ? 1 : by->at[i];
    }
}

/* the matrices of stride 1 */
static td_winograd matrices_at(const points *by, int taps)
{
    const int side = by->n + 1;
    td_winograd m = { .results = side - taps + 1, .inputs = side, .side = side, .filters = side };
    for (int i = 0; i < side; i++)
        point_matrices(i, by, taps, &m);
    return m;
}

/* those of the outer taps, and the middle one's */
static void strided_matrices(bool is_transposed, td_winograd *m)
{
    enum { OUTER = TD_WINO_TILE + 1 };
    const td_winograd o = matrices_at(&strided_points, 2);
    *m = (td_winograd){ .results = is_transposed ? 2 * TD_WINO_TILE : TD_WINO_TILE,
                        .inputs = is_transposed ? OUTER : TD_WINO_STRIDED_SIDE,
                        .side = TD_WINO_STRIDED_SIDE,
                        .filters = TD_WINO_SIDE };
    m->g[OUTER][1] = 1;
    for (int i = 0; i < OUTER; i++) {
        m->g[i][0] = o.g[i][0];
        m->g[i][2] = o.g[i][1];
        for (int k = 0; k < OUTER; k++)
            m->bt[i][is_transposed ? k : 2 * k] = o.bt[i][k];
        for (int k = 0; k < TD_WINO_TILE; k++)
            m->at[is_transposed ? 2 * k + 1 : k][i] = o.at[k][i];
    }
    for (int k = 0; k < TD_WINO_TILE; k++) {
        m->bt[OUTER + k][is_transposed ? k : 2 * k + 1] = 1;
        m->at[is_transposed ? 2 * k : k][OUTER + k] = 1;
    }
}

void td_winograd_matrices(td_winograd_form form, td_winograd *m)
{
    if (form == TD_WINO_STRIDED || form == TD_WINO_TRANSPOSED)
        strided_matrices(form == TD_WINO_TRANSPOSED, m);
    else
        *m = matrices_at(form == TD_WINO_SMALL ? &small_points : &large_points, 3);
}

/* --- types ------------------------------------------------------------------------------------ */

/* the type of filters and vectors for images of this type */
static td_dtype wide_dtype(td_dtype d)
{
    return d == TD_DT_F64 ? TD_DT_F64 : TD_DT_F32;
}

static td_status check_tile(const td_node *n, int tile, int stride)
{
    if (tile != TD_WINO_TILE && tile != TD_WINO_SMALL_TILE)
        return td_error(TD_ESHAPE, "%s: tile is %d, wanted %d or %d", n->op->name, tile,
                        TD_WINO_SMALL_TILE, TD_WINO_TILE);
    return tile == TD_WINO_TILE || stride == 1
               ? TD_OK
               : td_error(TD_ESHAPE, "%s: stride is %d, wanted 1 with tile=2", n->op->name, stride);
}

static td_winograd_form form_of(int tile, int stride)
{
    return stride == 2 ? TD_WINO_STRIDED : tile == TD_WINO_TILE ? TD_WINO_LARGE : TD_WINO_SMALL;
}

td_winograd_form td_winograd_form_of(const td_node *n)
{
    const td_winograd_attr *a = n->attr; /* NULL: none */
    const td_winograd_filter_attr *filter = n->attr;
    if (n->op == &td_op_winograd_filter)
        return form_of(filter->tile, filter->stride);
    return n->op == &td_op_conv2d_winograd_grad_x   ? TD_WINO_TRANSPOSED
           : n->op == &td_op_conv2d_winograd_grad_w ? form_of(TD_WINO_TILE, a->stride)
                                                    : form_of(a->tile, a->stride);
}

td_type td_winograd_filter_type(td_winograd_form form, int64_t k, int64_t c, td_dtype wide)
{
    return form != TD_WINO_SMALL
               ? td_type_4d(wide, k / LANES, TD_WINO_POINTS, c, LANES)
               : td_type_4d(TD_DT_BF16, k / LANES, TD_WINO_SMALL_POINTS, c / 2, 2 * LANES);
}

static td_status filter_infer(const td_node *n, td_type *y)
{
    const td_winograd_filter_attr *a = n->attr;
    const td_type *w = td_in_type(n, 0);
    const int64_t k = w->dim[a->grad_x ? 1 : 0], c = w->dim[a->grad_x ? 0 : 1];
    if (w->dim[2] != 3 || w->dim[3] != 3)
        return td_error(TD_ESHAPE, "winograd_filter: the filter is %lldx%lld, wanted 3x3",
                        (long long)w->dim[2], (long long)w->dim[3]);
    if (k % LANES)
        return td_error(TD_ESHAPE, "winograd_filter: %lld %s are not a multiple of %d",
                        (long long)k, a->grad_x ? "channels" : "filters", LANES);
    TD_TRY(check_tile(n, a->tile, a->stride));
    if (a->tile == TD_WINO_SMALL_TILE && c % 2)
        return td_error(TD_ESHAPE, "winograd_filter: with tile=2 an odd number of %s, %lld",
                        a->grad_x ? "filters" : "channels", (long long)c);
    *y = td_winograd_filter_type(td_winograd_form_of(n), k, c, wide_dtype(w->dtype));
    return TD_OK;
}

static td_status check_vector(const td_node *n, int i, const char *what, int64_t k)
{
    const td_type *t = td_in_type(n, i);
    return t->dim[0] == k ? TD_OK
                          : td_error(TD_ESHAPE, "%s: %s has %lld elements, wanted %lld",
                                     n->op->name, what, (long long)t->dim[0], (long long)k);
}

static td_status check_dtypes(const td_node *n, const td_type *x)
{
    const bool is_small = td_winograd_form_of(n) == TD_WINO_SMALL;
    if (is_small && x->dtype != TD_DT_BF16)
        return td_error(TD_ESHAPE, "%s: with tile=2 the input is %s, wanted bf16", n->op->name,
                        td_dtype_name(x->dtype));
    for (int i = 1; i < n->n_in; i++) {
        if (td_is_shape_only(n, i))
            continue;
        const bool is_image = i == 1 ? is_small : td_in_type(n, i)->rank == 4;
        const td_dtype d = is_image ? x->dtype : wide_dtype(x->dtype);
        if (td_in_type(n, i)->dtype != d)
            return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted %s", n->op->name, i,
                            td_dtype_name(td_in_type(n, i)->dtype), td_dtype_name(d));
    }
    return TD_OK;
}

/* u is the filters of a node whose images have so many channels */
static td_status check_filters(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *u = td_in_type(n, 1);
    const bool is_small = td_winograd_form_of(n) == TD_WINO_SMALL;
    const int64_t together = is_small ? 2 : 1; /* channels */
    if (u->dim[1] != (is_small ? TD_WINO_SMALL_POINTS : TD_WINO_POINTS) ||
        u->dim[3] != together * LANES)
        return td_error(TD_ESHAPE, "%s: operand 1 is not the result of winograd_filter",
                        n->op->name);
    if (x->dim[1] != td_mul_capped(u->dim[2], together))
        return td_error(TD_ESHAPE, "%s: input has %lld channels, filter needs %lld", n->op->name,
                        (long long)x->dim[1], (long long)td_mul_capped(u->dim[2], together));
    return TD_OK;
}

/* the type of the convolution of x with k filters; its sides may be less than 1 */
static td_type result_of(const td_type *x, int64_t k, const td_winograd_attr *a)
{
    return td_type_4d(x->dtype, x->dim[0], k, td_windows(x->dim[2], 3, a->stride, 2 * a->pad, 1),
                      td_windows(x->dim[3], 3, a->stride, 2 * a->pad, 1));
}

/* the result of x and u */
static td_status image_infer(const td_node *n, td_type *y)
{
    const td_winograd_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    TD_TRY(check_tile(n, a->tile, a->stride));
    TD_TRY(check_filters(n));
    *y = result_of(x, td_mul_capped(td_in_type(n, 1)->dim[0], LANES), a);
    if (y->dim[2] < 1 || y->dim[3] < 1)
        return td_error(TD_ESHAPE, "%s: a 3x3 filter does not fit a %lldx%lld image with pad %d",
                        n->op->name, (long long)x->dim[2], (long long)x->dim[3], a->pad);
    return check_dtypes(n, x);
}

static td_status grad_x_infer(const td_node *n, td_type *dx)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 2);
    const td_winograd_attr a = { .pad = 1, .stride = 2 };
    TD_TRY(check_filters(n));
    const td_type y = result_of(x, dy->dim[1], &a);
    if (x->dim[1] != td_mul_capped(td_in_type(n, 1)->dim[0], LANES) || !td_type_same_shape(dy, &y))
        return td_error(TD_ESHAPE, "%s: dy does not have the convolution's type", n->op->name);
    *dx = td_type_4d(dy->dtype, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
    return check_dtypes(n, dy);
}

static td_status conv_infer(const td_node *n, td_type *y)
{
    TD_TRY(image_infer(n, y));
    if (n->n_in > 2)
        TD_TRY(check_vector(n, 2, "bias", y->dim[1]));
    if (n->n_in > 3 && !td_type_same_shape(td_in_type(n, 3), y))
        return td_error(TD_ESHAPE,
                        "conv2d_winograd: the residual does not have the result's shape");
    return TD_OK;
}

static td_status grad_w_infer(const td_node *n, td_type *dw)
{
    const td_winograd_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1), *w = td_in_type(n, 2);
    if (w->dim[2] != 3 || w->dim[3] != 3 || w->dim[0] % LANES || w->dim[1] % LANES)
        return td_error(TD_ESHAPE,
                        "conv2d_winograd_grad_w: the filter is %lldx%lldx%lldx%lld, wanted 3x3 and "
                        "multiples of %d",
                        (long long)w->dim[0], (long long)w->dim[1], (long long)w->dim[2],
                        (long long)w->dim[3], LANES);
    const td_type y = result_of(x, w->dim[0], a);
    if (x->dim[1] != w->dim[1] || !td_type_same_shape(dy, &y) || dy->dtype != x->dtype)
        return td_error(TD_ESHAPE,
                        "conv2d_winograd_grad_w: dy does not have the convolution's type");
    const td_type result = td_type_as(w, a->wide ? wide_dtype(x->dtype) : x->dtype);
    *dw = td_type_plain(&result);
    return TD_OK;
}

static td_status scaled_infer(const td_node *n, td_type *y)
{
    TD_TRY(image_infer(n, y));
    TD_TRY(check_vector(n, 2, "scale", y->dim[1]));
    return check_vector(n, 3, "bias", y->dim[1]);
}

td_winograd_side td_winograd_side_of(int64_t results, td_winograd_form form)
{
    const int tile = td_winograd_tile(form);
    const int64_t tiles = results / tile + (results % tile != 0), lack = tiles * tile - results;
    if (form == TD_WINO_SMALL)
        return (td_winograd_side){ tiles, tiles };
    return (td_winograd_side){ tiles, lack < tiles ? tiles - lack : 0 };
}

int64_t td_winograd_tiles(const td_type *y, td_winograd_form form)
{
    const int64_t rows = td_winograd_side_of(y->dim[2], form).tiles;
    const int64_t cols = td_winograd_side_of(y->dim[3], form).tiles;
    return td_mul_capped(y->dim[0], td_mul_capped(rows, cols));
}

/* points of all tiles along a side */
static int64_t points_along(int64_t results, td_winograd_form form)
{
    const td_winograd_side s = td_winograd_side_of(results, form);
    const int side = td_winograd_points(form), last = side == TD_WINO_STRIDED_SIDE ? 2 : 1;
    return td_mul_capped(s.tiles, side) - (s.tiles - s.whole) * last;
}

int64_t td_winograd_products(const td_type *y, td_winograd_form form)
{
    const int64_t rows = points_along(y->dim[2], form), cols = points_along(y->dim[3], form);
    return td_mul_capped(y->dim[0], td_mul_capped(rows, cols));
}

/* counts the products only; operand 1 has all points of each filter */
static int64_t conv_macs(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const td_winograd_form form = td_winograd_form_of(n);
    return td_mul_capped(td_winograd_products(form == TD_WINO_TRANSPOSED ? x : y, form),
                         td_mul_capped(x->dim[1], y->dim[1]));
}

static int64_t grad_w_macs(const td_node *n)
{
    const td_type *w = td_in_type(n, 2);
    return td_mul_capped(td_winograd_products(td_in_type(n, 0), td_winograd_form_of(n)),
                         td_mul_capped(w->dim[0], w->dim[1]));
}

/* --- ops -------------------------------------------------------------------------------------- */

/* clang-format off */
static const td_field filter_fields[] = {
    TD_BOOL(td_winograd_filter_attr, grad_x, false, "for the gradient of the image"),
    TD_INT(td_winograd_filter_attr, tile, 4, 2, 4, "results on a side of a tile: 2 or 4"),
    TD_INT(td_winograd_filter_attr, stride, 1, 1, 2, "of the convolution"),
    TD_END,
};

static const td_field grad_w_fields[] = {
    TD_INT(td_winograd_attr, pad,   0, 0, 64, "zeros added on every side"),
    TD_INT(td_winograd_attr, stride, 1, 1, 2, "pixels between windows"),
    TD_BOOL(td_winograd_attr, wide, false, "the result is f32 whatever half the operands are"),
    TD_END,
};

static const td_field winograd_fields[] = {
    TD_INT(td_winograd_attr, pad,   0, 0, 64, "zeros added on every side"),
    TD_BOOL(td_winograd_attr, relu, false, "clip the result at zero"),
    TD_BOOL(td_winograd_attr, relu6, false, "with relu: clip it at six too"),
    TD_INT(td_winograd_attr, tile,  4, 2, 4, "results on a side of a tile: 2 or 4"),
    TD_INT(td_winograd_attr, stride, 1, 1, 2, "pixels between windows"),
    TD_END,
};
/* clang-format on */

const td_op td_op_winograd_filter = {
    .name = "winograd_filter",
    .summary = "3x3 filters made ready for conv2d_winograd",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .fields = filter_fields,
    .attr_bytes = sizeof(td_winograd_filter_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .infer = filter_infer,
};

const td_op td_op_conv2d_winograd = {
    .name = "conv2d_winograd",
    .summary = "relu?(3x3 convolution + bias + residual) in tiles",
    .n_in = 2,
    .n_in_max = 4,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 4 },
    .fields = winograd_fields,
    .attr_bytes = sizeof(td_winograd_attr),
    .wide_in = 1u << 1 | 1u << 2,
    .layout = TD_LAYOUT_CHOOSES,
    .may_overwrite = 1u << 3,
    .infer = conv_infer,
    .macs = conv_macs,
};

const td_op td_op_conv2d_winograd_grad_w = {
    .name = "conv2d_winograd_grad_w",
    .summary = "gradient of a 3x3 convolution for its filter, in tiles of 4x4",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 4 },
    .fields = grad_w_fields,
    .attr_bytes = sizeof(td_winograd_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 2,
    .infer = grad_w_infer,
    .macs = grad_w_macs,
};

const td_op td_op_conv2d_winograd_grad_x = {
    .name = "conv2d_winograd_grad_x",
    .summary = "gradient of a 3x3 convolution of stride 2 for its image, in tiles",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 4, 4 },
    .wide_in = 1u << 1,
    .layout = TD_LAYOUT_CHOOSES,
    .shape_only = 1u << 2,
    .infer = grad_x_infer,
    .macs = conv_macs,
};

const td_op td_op_conv2d_winograd_scaled = {
    .name = "conv2d_winograd_scaled",
    .summary = "relu?(3x3 convolution * scale + bias) in tiles, for inference",
    .n_in = 4,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 1 },
    .fields = winograd_fields,
    .attr_bytes = sizeof(td_winograd_attr),
    .wide_in = 1u << 1 | 1u << 2 | 1u << 3,
    .layout = TD_LAYOUT_CHOOSES,
    .infer = scaled_infer,
    .macs = conv_macs,
};
