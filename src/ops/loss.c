/*
 * softmax(x) -> y                              over the last dimension
 * softmax_grad(dy, y) -> dx                    y (dy - sum(dy y))
 * one_hot(labels) {classes, smoothing} -> q    1 - s + s/K at the label, s/K elsewhere
 * softmax_cross_entropy(x, q) -> loss          loss[n] = -sum_k q[n,k] log softmax(x)[n,k]
 * softmax_cross_entropy_grad(dloss, x, q) -> dx   dloss[n] (softmax(x)[n,k] sum_j q[n,j] - q[n,k])
 * sigmoid_cross_entropy(x, q [, p]) {threshold} -> loss   with u = 1 + (p[k] - 1) t[n,k]
 *                                           mean_k((1 - t[n,k]) x[n,k] + u softplus(-x[n,k]))
 * sigmoid_cross_entropy_grad(dloss, x, q [, p]) {threshold} -> dx
 *                                           dloss[n] (1 - t[n,k] - u sigmoid(-x[n,k])) / K
 *
 *   x       [N, K]  any float   logits         labels  [N]  i64, in [0, K); others: row of zeros
 *   q       [N, K]  same        targets; rows need not sum to 1; no gradient flows into them
 *   loss    [N]     same
 *   p       [K]     same        weights of positive targets; without it all are 1
 *   t               q; with a threshold of 0 or more, 1 where q > threshold and 0 elsewhere
 *
 * The maximum logit is subtracted before exponentiation, and softplus(x) is
 * max(x, 0) + log(1 + exp(-|x|)), so logits of +-5000 do not overflow.  Sources: Szegedy et al.
 * 2016, section 7 (smoothing), agrees with NVIDIA's LabelSmoothing class; PyTorch's
 * BCEWithLogitsLoss (p: pos_weight); Wightman et al. 2021, section 2.1 (the threshold).
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field one_hot_fields[] = {
    TD_INT (td_one_hot_attr, classes,   1000, 1, 1 << 24, "columns of the result"),
    TD_REAL(td_one_hot_attr, smoothing, 0, 0, 1, "share spread over all classes"),
    TD_END,
};

static const td_field sigmoid_fields[] = {
    TD_REAL(td_sigmoid_loss_attr, threshold, -1, -1, 1,
            "targets above are 1, others 0; negative: targets as they are"),
    TD_END,
};
/* clang-format on */

static td_status softmax_infer(const td_node *n, td_type *y)
{
    *y = *td_in_type(n, 0);
    if (y->rank < 1)
        return td_error(TD_ESHAPE, "%s: a scalar has no last dimension", n->op->name);
    return TD_OK;
}

static td_status softmax_grad_infer(const td_node *n, td_type *y)
{
    if (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, 1)) ||
        td_in_type(n, 0)->dtype != td_in_type(n, 1)->dtype)
        return td_error(TD_ESHAPE, "softmax_grad: dy and y differ in type");
    return softmax_infer(n, y);
}

static td_status one_hot_infer(const td_node *n, td_type *y)
{
    if (td_in_type(n, 0)->dtype != TD_DT_I64)
        return td_error(TD_ESHAPE, "one_hot: labels are %s, wanted i64",
                        td_dtype_name(td_in_type(n, 0)->dtype));
    *y = td_type_2d(TD_DT_F32, td_in_type(n, 0)->dim[0],
                    ((const td_one_hot_attr *)n->attr)->classes);
    return TD_OK;
}

static td_status check_targets(const td_node *n, const td_type *x, const td_type *q)
{
    if (!td_type_same_shape(x, q) || x->dtype != q->dtype)
        return td_error(TD_ESHAPE, "%s: logits are [%lld,%lld], targets [%lld,%lld]", n->op->name,
                        (long long)x->dim[0], (long long)x->dim[1], (long long)q->dim[0],
                        (long long)q->dim[1]);
    return TD_OK;
}

/* operand i, if there is one: [K] */
static td_status check_positive_weights(const td_node *n, int i, const td_type *x)
{
    const td_type *p = n->n_in > i ? td_in_type(n, i) : NULL;
    if (!p || (p->dim[0] == x->dim[1] && p->dtype == x->dtype))
        return TD_OK;
    return td_error(TD_ESHAPE, "%s: %lld weights of type %s, wanted %lld of type %s", n->op->name,
                    (long long)p->dim[0], td_dtype_name(p->dtype), (long long)x->dim[1],
                    td_dtype_name(x->dtype));
}

static td_status loss_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0);
    TD_TRY(check_targets(n, x, td_in_type(n, 1)));
    TD_TRY(check_positive_weights(n, 2, x));
    *y = td_type_1d(x->dtype, x->dim[0]);
    return TD_OK;
}

static td_status loss_grad_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 1);
    TD_TRY(check_targets(n, x, td_in_type(n, 2)));
    TD_TRY(check_positive_weights(n, 3, x));
    if (td_in_type(n, 0)->dim[0] != x->dim[0] || td_in_type(n, 0)->dtype != x->dtype)
        return td_error(TD_ESHAPE, "%s: dloss is not [N]", n->op->name);
    *y = *x;
    return TD_OK;
}

static void softmax_op_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_softmax_grad, NULL, dy[0], n->out[0]);
}

static void loss_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_op *op = &td_op_softmax_cross_entropy_grad;
    dx[0] = td_emit(b, op, NULL, dy[0], n->in[0], n->in[1]);
}

static void sigmoid_loss_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_op *op = &td_op_sigmoid_cross_entropy_grad;
    td_value *const weights = n->n_in > 2 ? n->in[2] : NULL;
    dx[0] = td_emit(b, op, n->attr, dy[0], n->in[0], n->in[1], weights);
}

const td_op td_op_softmax = {
    .name = "softmax",
    .summary = "softmax over the last dimension",
    .n_in = 1,
    .n_out = 1,
    .tf_op = "Softmax",
    .layout = TD_LAYOUT_PLAIN,
    .infer = softmax_infer,
    .grad = softmax_op_grad,
};

const td_op td_op_softmax_grad = {
    .name = "softmax_grad",
    .summary = "gradient of softmax",
    .n_in = 2,
    .n_out = 1,
    .tf_op = "Sum",
    .layout = TD_LAYOUT_PLAIN,
    .infer = softmax_grad_infer,
};

const td_op td_op_one_hot = {
    .name = "one_hot",
    .summary = "label -> row of targets, with label smoothing",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 1 },
    .fields = one_hot_fields,
    .attr_bytes = sizeof(td_one_hot_attr),
    .tf_op = "OneHot",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u,
    .infer = one_hot_infer,
};

const td_op td_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .summary = "cross-entropy of softmax against soft targets",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 2, 2 },
    .tf_op = "SoftmaxCrossEntropyWithLogits",
    .layout = TD_LAYOUT_PLAIN,
    .infer = loss_infer,
    .grad = loss_grad,
};

const td_op td_op_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .summary = "gradient of softmax_cross_entropy for the logits",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 1, 2, 2 },
    .tf_op = "SoftmaxCrossEntropyWithLogits",
    .layout = TD_LAYOUT_PLAIN,
    .infer = loss_grad_infer,
};

const td_op td_op_sigmoid_cross_entropy = {
    .name = "sigmoid_cross_entropy",
    .summary = "binary cross-entropy of sigmoid against targets, mean over the classes",
    .n_in = 2,
    .n_in_max = 3,
    .n_out = 1,
    .in_rank = { 2, 2, 1 },
    .fields = sigmoid_fields,
    .attr_bytes = sizeof(td_sigmoid_loss_attr),
    .tf_op = "Exp",
    .layout = TD_LAYOUT_PLAIN,
    .infer = loss_infer,
    .grad = sigmoid_loss_grad,
};

const td_op td_op_sigmoid_cross_entropy_grad = {
    .name = "sigmoid_cross_entropy_grad",
    .summary = "gradient of sigmoid_cross_entropy for the logits",
    .n_in = 3,
    .n_in_max = 4,
    .n_out = 1,
    .in_rank = { 1, 2, 2, 1 },
    .fields = sigmoid_fields,
    .attr_bytes = sizeof(td_sigmoid_loss_attr),
    .tf_op = "Exp",
    .layout = TD_LAYOUT_PLAIN,
    .infer = loss_grad_infer,
};

td_value *td_softmax(td_builder *b, td_value *x)
{
    return td_emit(b, &td_op_softmax, NULL, x);
}

td_value *td_one_hot(td_builder *b, td_value *labels, int classes, double smoothing)
{
    td_one_hot_attr a = { classes, smoothing };
    return td_emit(b, &td_op_one_hot, &a, labels);
}

td_value *td_softmax_cross_entropy(td_builder *b, td_value *logits, td_value *target)
{
    return td_emit(b, &td_op_softmax_cross_entropy, NULL, logits, target);
}

td_value *td_sigmoid_cross_entropy(td_builder *b, td_value *logits, td_value *target,
                                   double threshold)
{
    const td_sigmoid_loss_attr a = { threshold };
    return td_emit(b, &td_op_sigmoid_cross_entropy, &a, logits, target);
}
