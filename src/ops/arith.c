/*
 * add, sub, mul, div, max, min (x, y)   element by element, numpy broadcasting; act_list.h
 * larger(x, y)                    1 where x > y, 1/2 where they are equal, otherwise 0
 * mul_reduce(x, y, like) -> z     the sum of x y over the dimensions in which `like` is broadcast
 * sum_to(x, like) -> y            the sum of x over the dimensions in which `like` is broadcast
 * broadcast_like(x, like) {by}    by * x, repeated to like's shape
 * scale(x) {by}                   by * x
 *
 *   x, y   any float, one dtype; shapes are aligned at the last dimension, 1 repeats
 *   like   for its shape only
 *
 * Sums are kept in float32 (float64 for f64).
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field scale_fields[] = {
    TD_REAL(td_scale_attr, by, 1, -1e30, 1e30, "factor"),
    TD_END,
};
/* clang-format on */

/* t's size in dimension d when t is aligned to a shape of rank `rank` */
static int64_t aligned_dim(const td_type *t, int rank, int d)
{
    int k = d - (rank - t->rank);
    return k < 0 ? 1 : t->dim[k];
}

static td_status broadcast(const td_node *n, const td_type *a, const td_type *b, td_type *y)
{
    if (a->dtype != b->dtype)
        return td_error(TD_ESHAPE, "%s: operands are %s and %s, wanted one float type", n->op->name,
                        td_dtype_name(a->dtype), td_dtype_name(b->dtype));
    *y = (td_type){ .dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank };
    for (int d = 0; d < y->rank; d++) {
        int64_t p = aligned_dim(a, y->rank, d), q = aligned_dim(b, y->rank, d);
        if (p != q && p != 1 && q != 1)
            return td_error(TD_ESHAPE,
                            "%s: dimension %d is %lld in one operand and %lld in the other",
                            n->op->name, d, (long long)p, (long long)q);
        y->dim[d] = p > q ? p : q;
    }
    return TD_OK;
}

static td_status check_like(const td_node *n, const td_type *x, const td_type *like)
{
    bool fits = like->rank <= x->rank;
    for (int d = 0; fits && d < x->rank; d++) {
        int64_t k = aligned_dim(like, x->rank, d);
        fits = k == 1 || k == x->dim[d];
    }
    return fits ? TD_OK : td_error(TD_ESHAPE, "%s: the shapes do not broadcast", n->op->name);
}

static td_status binary_infer(const td_node *n, td_type *y)
{
    return broadcast(n, td_in_type(n, 0), td_in_type(n, 1), y);
}

static td_status mul_reduce_infer(const td_node *n, td_type *y)
{
    td_type xy;
    TD_TRY(broadcast(n, td_in_type(n, 0), td_in_type(n, 1), &xy));
    TD_TRY(check_like(n, &xy, td_in_type(n, 2)));
    *y = *td_in_type(n, 2);
    y->dtype = xy.dtype;
    return TD_OK;
}

static td_status sum_to_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_like(n, td_in_type(n, 0), td_in_type(n, 1)));
    *y = *td_in_type(n, 1);
    y->dtype = td_in_type(n, 0)->dtype;
    return TD_OK;
}

static td_status broadcast_like_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_like(n, td_in_type(n, 1), td_in_type(n, 0)));
    *y = *td_in_type(n, 1);
    y->dtype = td_in_type(n, 0)->dtype;
    return TD_OK;
}

static td_status scale_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    return TD_OK;
}

/* dy summed to v's shape; dy itself if v was not broadcast */
static td_value *unbroadcast(td_builder *b, td_value *dy, td_value *v)
{
    if (td_type_same_shape(&dy->type, &v->type))
        return dy;
    return td_emit(b, &td_op_sum_to, NULL, dy, v);
}

static void add_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = unbroadcast(b, dy[0], n->in[0]);
    dx[1] = unbroadcast(b, dy[0], n->in[1]);
}

static td_value *mul_side(td_builder *b, td_value *dy, td_value *other, td_value *side)
{
    if (td_type_same_shape(&dy->type, &side->type))
        return td_emit(b, &td_op_mul, NULL, dy, other);
    return td_emit(b, &td_op_mul_reduce, NULL, dy, other, side);
}

static void mul_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = mul_side(b, dy[0], n->in[1], n->in[0]);
    dx[1] = mul_side(b, dy[0], n->in[0], n->in[1]);
}

static td_value *minus(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_scale, &(td_scale_attr){ .by = -1 }, x);
}

static void sub_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = unbroadcast(b, dy[0], n->in[0]);
    dx[1] = minus(b, unbroadcast(b, dy[0], n->in[1]));
}

/* dy / z, and - dy (x / z) / z */
static void div_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *q = td_emit(b, &td_op_div, NULL, dy[0], n->in[1]);
    dx[0] = unbroadcast(b, q, n->in[0]);
    dx[1] = minus(b, mul_side(b, q, n->out[0], n->in[1]));
}

/* of equal operands each gets half, as in PyTorch */
static void extreme_grad(td_builder *b, const td_node *n, td_value *dy, bool is_max, td_value **dx)
{
    for (int i = 0; i < 2; i++) {
        td_value *wins = n->in[is_max ? i : 1 - i], *loses = n->in[is_max ? 1 - i : i];
        dx[i] = mul_side(b, dy, td_emit(b, &td_op_larger, NULL, wins, loses), n->in[i]);
    }
}

static void max_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    extreme_grad(b, n, dy[0], true, dx);
}

static void min_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    extreme_grad(b, n, dy[0], false, dx);
}

/* steps: its result does not depend on small changes */
static void larger_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    (void)b, (void)n, (void)dy;
    dx[0] = dx[1] = NULL;
}

static void sum_to_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_broadcast_like, NULL, dy[0], n->in[0]);
}

static void broadcast_like_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *sum = unbroadcast(b, dy[0], n->in[0]);
    dx[0] = td_emit(b, &td_op_scale, n->attr, sum);
}

static void scale_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_scale, n->attr, dy[0]);
}

#define OPS(K, id, tf, zero, text, formula)                                                        \
    const td_op td_op_##id = {                                                                     \
        .name = #id,                                                                               \
        .summary = text,                                                                           \
        .n_in = 2,                                                                                 \
        .n_out = 1,                                                                                \
        .tf_op = tf,                                                                               \
        .layout = TD_LAYOUT_FOLLOWS,                                                               \
        .may_overwrite = 3u,                                                                       \
        .infer = binary_infer,                                                                     \
        .grad = id##_grad,                                                                         \
    };

TD_BINARY_LIST(OPS, )

const td_op td_op_mul_reduce = {
    .name = "mul_reduce",
    .summary = "sum of x y down to another shape",
    .n_in = 3,
    .n_out = 1,
    .tf_op = "Sum",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 2,
    .infer = mul_reduce_infer,
};

const td_op td_op_sum_to = {
    .name = "sum_to",
    .summary = "sum of x down to another shape",
    .n_in = 2,
    .n_out = 1,
    .tf_op = "BiasAddGrad",
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u << 1,
    .infer = sum_to_infer,
    .grad = sum_to_grad,
};

const td_op td_op_broadcast_like = {
    .name = "broadcast_like",
    .summary = "by x, repeated to another shape",
    .n_in = 2,
    .n_out = 1,
    .fields = scale_fields,
    .attr_bytes = sizeof(td_scale_attr),
    .tf_op = "BroadcastTo",
    .layout = TD_LAYOUT_PLAIN,
    .shape_only = 1u << 1,
    .infer = broadcast_like_infer,
    .grad = broadcast_like_grad,
};

const td_op td_op_scale = {
    .name = "scale",
    .summary = "by x",
    .n_in = 1,
    .n_out = 1,
    .fields = scale_fields,
    .attr_bytes = sizeof(td_scale_attr),
    .tf_op = "Mul",
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u,
    .infer = scale_infer,
    .grad = scale_grad,
};

td_value *td_add(td_builder *b, td_value *x, td_value *y)
{
    return td_emit(b, &td_op_add, NULL, x, y);
}

td_value *td_mul(td_builder *b, td_value *x, td_value *y)
{
    return td_emit(b, &td_op_mul, NULL, x, y);
}
