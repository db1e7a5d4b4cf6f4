/*
 * winograd_filter(w) -> u            filters transformed for Winograd's F(4 x 4, 3 x 3)
 *
 *   w  [K, C, 3, 3]        any float    K a multiple of 16
 *   u  [K/16, 36, C, 16]   same as w    u[k/16, 6 i + j, c, k%16] = (G w[k, c] G')[i, j]
 *
 * conv2d_winograd(x, u, bias, residual) -> y         y = relu?(conv2d(x, w) + bias + residual)
 *
 *   x         [N, C, H, W]     any float, same as u; stride, dilation and groups are 1
 *   bias      [K]              may be omitted, like the residual
 *   residual  [N, K, P, Q]
 *   y         [N, K, P, Q]     P = H + 2 pad - 2; 4 x 4 results make a tile:
 *
 *       y tile = A' [ sum over c of u[k, c] . (B' x[c] B) ] A       x: the 6 x 6 inputs of the tile
 *
 * 36 multiplications replace 144.  Inference only; pass `winograd` creates these ops.
 *
 * The points are 0, 5/8, -5/8, 3/2, -3/2 and infinity: A' and B' are exact in float32, and the
 * error is half that of the points 0, 1, -1, 2, -2 (docs/numerics.md).
 * Source: Lavin and Gray 2016; Toom 1963 and Cook 1966 for the matrices.
 */
#include "ir/build.h"
#include "ops/ops.h"

#define LANES TD_WINO_LANES

/* --- the matrices ----------------------------------------------------------------------------- */

static const double points[TD_WINO_SIDE - 1] = { 0, TD_WINO_P, -TD_WINO_P, TD_WINO_Q, -TD_WINO_Q };

/* coefficients, lowest first, of the product of (x - point) over all points but `out` */
static void product_without(int out, double *c)
{
    int degree = 0;
    for (int i = 0; i < TD_WINO_SIDE; i++)
        c[i] = i == 0;
    for (int p = 0; p < TD_WINO_SIDE - 1; p++) {
        if (p == out)
            continue;
        degree++;
        for (int i = degree; i >= 0; i--)
            c[i] = (i ? c[i - 1] : 0) - points[p] * c[i];
    }
}

void td_winograd_matrices(td_winograd *m)
{
    for (int i = 0; i < TD_WINO_SIDE; i++) {
        const bool is_last = i == TD_WINO_SIDE - 1; /* infinity */
        double scale = 1, power = 1;
        product_without(i, m->bt[i]);
        for (int p = 0; p < TD_WINO_SIDE - 1 && !is_last; p++)
            scale *= p == i ? 1 : points[i] - points[p];
        for (int k = 0; k < TD_WINO_TILE; k++) {
            m->at[k][i] = is_last ? k == TD_WINO_TILE - 1 : power;
            if (k < 3)
                m->g[i][k] = is_last ? k == 2 : power / scale;
            power *= is_last ? 1 : points[i];
        }
    }
}

/* --- types ------------------------------------------------------------------------------------ */

static td_status filter_infer(const td_node *n, td_type *y)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dim[2] != 3 || w->dim[3] != 3)
        return td_error(TD_ESHAPE, "winograd_filter: the filter is %lldx%lld, wanted 3x3",
                        (long long)w->dim[2], (long long)w->dim[3]);
    if (w->dim[0] % LANES)
        return td_error(TD_ESHAPE, "winograd_filter: %lld filters are not a multiple of %d",
                        (long long)w->dim[0], LANES);
    *y = td_type_4d(w->dtype, w->dim[0] / LANES, TD_WINO_POINTS, w->dim[1], LANES);
    return TD_OK;
}

static td_status conv_infer(const td_node *n, td_type *y)
{
    const td_winograd_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *u = td_in_type(n, 1);
    if (u->dim[1] != TD_WINO_POINTS || u->dim[3] != LANES)
        return td_error(TD_ESHAPE,
                        "conv2d_winograd: operand 1 is not the result of winograd_filter");
    if (x->dim[1] != u->dim[2])
        return td_error(TD_ESHAPE, "conv2d_winograd: input has %lld channels, filter needs %lld",
                        (long long)x->dim[1], (long long)u->dim[2]);
    const int64_t k = td_mul_capped(u->dim[0], LANES);
    const int64_t p = td_windows(x->dim[2], 3, 1, 2 * a->pad, 1);
    const int64_t q = td_windows(x->dim[3], 3, 1, 2 * a->pad, 1);
    if (p < 1 || q < 1)
        return td_error(TD_ESHAPE,
                        "conv2d_winograd: a 3x3 filter does not fit a %lldx%lld image with pad "
                        "%d",
                        (long long)x->dim[2], (long long)x->dim[3], a->pad);
    *y = td_type_4d(x->dtype, x->dim[0], k, p, q);
    if (n->n_in > 2 && td_in_type(n, 2)->dim[0] != k)
        return td_error(TD_ESHAPE, "conv2d_winograd: bias has %lld elements, wanted %lld",
                        (long long)td_in_type(n, 2)->dim[0], (long long)k);
    if (n->n_in > 3 && !td_type_same_shape(td_in_type(n, 3), y))
        return td_error(TD_ESHAPE,
                        "conv2d_winograd: the residual does not have the result's shape");
    for (int i = 1; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != x->dtype)
            return td_error(TD_ESHAPE, "conv2d_winograd: operand %d is %s, wanted %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype), td_dtype_name(x->dtype));
    return TD_OK;
}

static int64_t in_tiles(int64_t side)
{
    return side / TD_WINO_TILE + (side % TD_WINO_TILE != 0);
}

int64_t td_winograd_tiles(const td_type *y)
{
    return td_mul_capped(y->dim[0], td_mul_capped(in_tiles(y->dim[2]), in_tiles(y->dim[3])));
}

/* counts the 36 products only */
static int64_t conv_macs(const td_node *n)
{
    return td_mul_capped(td_winograd_tiles(&n->out[0]->type), td_type_count(td_in_type(n, 1)));
}

/* --- ops -------------------------------------------------------------------------------------- */

/* clang-format off */
static const td_field winograd_fields[] = {
    TD_INT(td_winograd_attr, pad,   0, 0, 64, "zeros added on every side"),
    TD_BOOL(td_winograd_attr, relu, false, "clip the result at zero"),
    TD_BOOL(td_winograd_attr, relu6, false, "with relu: clip it at six too"),
    TD_END,
};
/* clang-format on */

const td_op td_op_winograd_filter = {
    .name = "winograd_filter",
    .summary = "3x3 filters made ready for conv2d_winograd",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 4 },
    .layout = TD_LAYOUT_PLAIN,
    .infer = filter_infer,
};

const td_op td_op_conv2d_winograd = {
    .name = "conv2d_winograd",
    .summary = "relu?(3x3 convolution + bias + residual) in tiles of 4x4, for inference",
    .n_in = 2,
    .n_in_max = 4,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 4 },
    .fields = winograd_fields,
    .attr_bytes = sizeof(td_winograd_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .may_overwrite = 1u << 3,
    .infer = conv_infer,
    .macs = conv_macs,
};
