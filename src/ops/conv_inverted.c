/*
 * inverted_residual(x, w1, b1, w2, b2, w3, b3) {stride, pad, act, expand, residual} -> y
 * expand_depthwise(x, w1, b1, w2, b2) {stride, pad, act, expand}                    -> d, m
 *
 *   e = act(conv2d(x, w1) + b1)      1 x 1, the expansion; without `expand`, e is x
 *   d = act(conv2d(e, w2) + b2)      depthwise, with stride and padding
 *   m = mean of d over P and Q
 *   y = conv2d(d, w3) + b3 [+ x]     1 x 1, the projection
 *
 *   x   [N, C, H, W]    any float, the same for all operands; with a half x biases may be float32
 *   w1  [M, C, 1, 1]    b1 [M]      omitted without `expand`; then M is C
 *   w2  [M, 1, R, R]    b2 [M]
 *   w3  [K, M, 1, 1]    b3 [K]
 *   y   [N, K, P, Q]    P = (H + 2 pad + pad_extra - R) / stride + 1
 *   d   [N, M, P, Q]    m [N, M]
 *
 * With residual y has x's type.  Pass `inverted_residual` creates them, in inference: M is several
 * times C and K, and a kernel that computes some channels of some rows from beginning to end keeps
 * e and, before a projection, d in a core's cache.  Where a squeeze-excite layer stands before the
 * projection, it reads m instead of d.
 *
 * Source: Sandler et al. 2018, section 3.3.
 */
#include "ir/build.h"
#include "ops/ops.h"

static const char *const act_names[] = { "none", "relu", "relu6", "silu", "hardswish", NULL };

/* clang-format off */
#define FIELDS                                                                                     \
    TD_INT(td_inverted_residual_attr, stride, 1, 1, 64, "pixels between windows"),                 \
    TD_INT(td_inverted_residual_attr, pad, 0, 0, 64, "zeros added on every side"),                 \
    TD_INT(td_inverted_residual_attr, pad_extra, 0, 0, 64,                                         \
           "zeros added below and to the right beyond pad"),                                       \
    TD_ENUM(td_inverted_residual_attr, act, TD_BLOCK_LINEAR, act_names,                            \
            "what follows the first two convolutions"),                                            \
    TD_BOOL(td_inverted_residual_attr, expand, true, "begin with the expansion")

static const td_field fields[] = {
    FIELDS,
    TD_BOOL(td_inverted_residual_attr, residual, false, "add the input to the result"),
    TD_END,
};

static const td_field fields_without_projection[] = { FIELDS, TD_END };
/* clang-format on */

int td_block_act_of(const td_conv_attr *a)
{
    if (a->relu)
        return a->relu6 ? TD_BLOCK_RELU6 : TD_BLOCK_RELU;
    return a->act == TD_CONV_SILU        ? TD_BLOCK_SILU
           : a->act == TD_CONV_HARDSWISH ? TD_BLOCK_HARDSWISH
                                         : TD_BLOCK_LINEAR;
}

td_status td_block_check_dtypes(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_dtype_is_float(x->dtype))
        return td_error(TD_ESHAPE, "%s: input is %s, wanted a float type", n->op->name,
                        td_dtype_name(x->dtype));
    for (int i = 1; i < n->n_in; i++) {
        const td_type *t = td_in_type(n, i);
        const bool is_wide = t->rank == 1 && t->dtype == TD_DT_F32 && td_dtype_is_half(x->dtype);
        if (t->dtype != x->dtype && !is_wide)
            return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted %s", n->op->name, i,
                            td_dtype_name(t->dtype), td_dtype_name(x->dtype));
    }
    return TD_OK;
}

/* filter i is [outputs, inputs, side, side] and operand i + 1 is [outputs] */
static td_status check_filter(const td_node *n, int i, int64_t outputs, int64_t inputs,
                              int64_t side)
{
    const td_type *w = td_in_type(n, i), *b = td_in_type(n, i + 1);
    if (w->dim[0] != outputs || w->dim[1] != inputs || w->dim[2] != side || w->dim[3] != side)
        return td_error(TD_ESHAPE,
                        "%s: operand %d is %lldx%lldx%lldx%lld, wanted %lldx%lldx%lldx%lld",
                        n->op->name, i, (long long)w->dim[0], (long long)w->dim[1],
                        (long long)w->dim[2], (long long)w->dim[3], (long long)outputs,
                        (long long)inputs, (long long)side, (long long)side);
    if (b->dim[0] != outputs)
        return td_error(TD_ESHAPE, "%s: operand %d has %lld elements, wanted %lld", n->op->name,
                        i + 1, (long long)b->dim[0], (long long)outputs);
    return TD_OK;
}

static bool has_projection(const td_node *n)
{
    return n->op == &td_op_inverted_residual;
}

/* the shapes of all filters and biases; *channels: those of the result */
static td_status check_filters(const td_node *n, int64_t *channels)
{
    const td_inverted_residual_attr *a = n->attr;
    const int w2 = td_block_depthwise(a), w3 = w2 + 2, wanted = has_projection(n) ? w3 + 2 : w3;
    int64_t M = td_in_type(n, 0)->dim[1];
    if (n->n_in != wanted)
        return td_error(TD_ESHAPE, "%s: %d operands, wanted %d", n->op->name, n->n_in, wanted);
    if (a->expand) {
        M = td_in_type(n, 1)->dim[0];
        TD_TRY(check_filter(n, 1, M, td_in_type(n, 0)->dim[1], 1));
    }
    TD_TRY(check_filter(n, w2, M, 1, td_in_type(n, w2)->dim[2]));
    *channels = has_projection(n) ? td_in_type(n, w3)->dim[0] : M;
    return has_projection(n) ? check_filter(n, w3, *channels, M, 1) : TD_OK;
}

static td_status infer(const td_node *n, td_type *y)
{
    const td_inverted_residual_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    int64_t channels = 0;
    TD_TRY(td_block_check_dtypes(n));
    TD_TRY(check_filters(n, &channels));
    const int64_t side = td_in_type(n, td_block_depthwise(a))->dim[2];
    const int pads = 2 * a->pad + a->pad_extra;
    const int64_t p = td_windows(x->dim[2], side, a->stride, pads, 1);
    const int64_t q = td_windows(x->dim[3], side, a->stride, pads, 1);
    if (p < 1 || q < 1)
        return td_error(TD_ESHAPE,
                        "%s: a %lldx%lld filter is larger than a %lldx%lld image with pad %d",
                        n->op->name, (long long)side, (long long)side, (long long)x->dim[2],
                        (long long)x->dim[3], a->pad);
    y[0] = td_type_4d(x->dtype, x->dim[0], channels, p, q);
    if (!has_projection(n))
        y[1] = td_type_2d(x->dtype, x->dim[0], channels);
    if (a->residual && !td_type_same_shape(x, y))
        return td_error(TD_ESHAPE, "inverted_residual: input and result differ in shape, and "
                                   "residual is set");
    return TD_OK;
}

static int64_t add_capped(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t macs(const td_node *n)
{
    const int w2 = td_block_depthwise(n->attr);
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const int64_t inputs = x->dim[0] * x->dim[2] * x->dim[3];
    const int64_t outputs = y->dim[0] * y->dim[2] * y->dim[3];
    int64_t sum = 0;
    for (int i = 1; i < n->n_in; i += 2)
        sum = add_capped(sum,
                         td_mul_capped(i < w2 ? inputs : outputs, td_type_count(td_in_type(n, i))));
    return sum;
}

const td_op td_op_inverted_residual = {
    .name = "inverted_residual",
    .summary = "1x1, depthwise and 1x1 convolutions of one block, for inference",
    .n_in = 5,
    .n_in_max = 7,
    .n_out = 1,
    .in_rank = { 4, 4, 1, 4, 1, 4, 1 },
    .fields = fields,
    .attr_bytes = sizeof(td_inverted_residual_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .infer = infer,
    .macs = macs,
};

const td_op td_op_expand_depthwise = {
    .name = "expand_depthwise",
    .summary = "1x1 and depthwise convolutions of one block, and channel means, for inference",
    .n_in = 3,
    .n_in_max = 5,
    .n_out = 2,
    .in_rank = { 4, 4, 1, 4, 1 },
    .fields = fields_without_projection,
    .attr_bytes = sizeof(td_inverted_residual_attr),
    .layout = TD_LAYOUT_CHOOSES,
    .infer = infer,
    .macs = macs,
};
