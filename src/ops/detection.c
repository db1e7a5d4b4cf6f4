/*
 * sigmoid_focal_loss(scores, labels) {alpha, gamma, per_image} -> loss
 *     sum over all anchors and columns of  a (1 - pt)^gamma ce,  divided by max(positives, 1)
 *     ce = -ln pt, pt = sigmoid(x) and a = alpha in the column of the anchor's label, otherwise
 *     pt = 1 - sigmoid(x) and a = 1 - alpha; an anchor with label 0 has no such column.
 *     per_image: each image's sum is divided by max(its positives, 1), and the mean over images
 *     taken; anchors with a negative label do not count
 * huber_box_loss(deltas, target, labels) {delta, per_image} -> loss
 *     sum over positives and four deltas of  q^2 / 2 + delta (|e| - q)  where e = deltas - target,
 *     q = min(|e|, delta), over 4 max(positives, 1); with delta 0 of |e|; a NaN in the target
 *     counts as e = 0
 * multibox_class_loss(scores, labels) {ratio, whole_batch} -> loss
 *     mean over images of  sum of cross-entropies of softmax  over  positives; the sum is over
 *     positives and `ratio` times as many negatives: those with the largest loss, on ties the
 *     first.  An image without positives counts as 0.  whole_batch: the sum over all images over
 *     max(all positives, 1)
 *
 *   scores  [N, A, C]  any float   column 0 is the background
 *   deltas  [N, A, 4]  any float
 *   target  [N, A, 4]  as deltas    no gradient flows into it
 *   labels  [N, A]     i64         class 1 .. C-1 of a positive, otherwise 0 or less
 *   loss    []         as scores, deltas
 *
 * A label of C or more is a positive of a class without a column: the first two losses, which have
 * one divisor, count it (the original's is the sum of the box weights, 1 for each matched anchor),
 * and sigmoid_focal_loss wants 0 in all its columns.  multibox_class_loss takes it for 0.
 *
 * Positives are counted over the batch; huber_box_loss with per_image divides each image's sum by
 * its own number of positives, without the 4, and takes the mean over images, as
 * multibox_class_loss does.  The loss of SSD320 is the first plus the second; of SSD300 the second,
 * per image, plus the third; of SSDLite four times the second plus the third with whole_batch; of
 * RetinaNet the first plus the second with delta 0, both per image.
 *
 * NAME_grad(dloss, operands) -> gradient for scores or deltas.  The selection of negatives has no
 * gradient.
 *
 * Sources: Lin et al. 2017 (focal loss), equation 5; Liu et al. 2016 (SSD), section 2.2.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field focal_fields[] = {
    TD_REAL(td_focal_attr, alpha, 0.25, 0, 1,   "weight of the right column; 1 - alpha of others"),
    TD_REAL(td_focal_attr, gamma, 2,    0, 100, "power that makes easy columns count less"),
    TD_BOOL(td_focal_attr, per_image, 0,        "divide by each image's own positives"),
    TD_END,
};
static const td_field huber_fields[] = {
    TD_REAL(td_huber_attr, delta,       1, 0, 1e6, "error from which the loss grows linearly"),
    TD_BOOL(td_huber_attr, per_image, 0,            "divide by each image's own positives"),
    TD_END,
};
static const td_field multibox_fields[] = {
    TD_INT (td_multibox_attr, ratio, 3, 0, 1000, "negatives mined for each positive"),
    TD_BOOL(td_multibox_attr, whole_batch, 0,    "divide by the positives of the whole batch"),
    TD_END,
};
/* clang-format on */

/* --- types ------------------------------------------------------------------------------------ */

/* labels [N, A] of predictions [N, A, ...] */
static td_status check_labels(const td_node *n, const td_type *x, const td_type *labels)
{
    if (labels->dtype != TD_DT_I64)
        return td_error(TD_ESHAPE, "%s: labels are %s, wanted i64", n->op->name,
                        td_dtype_name(labels->dtype));
    if (labels->dim[0] != x->dim[0] || labels->dim[1] != x->dim[1])
        return td_error(TD_ESHAPE,
                        "%s: predictions for [%lld,%lld] anchors, labels for [%lld,%lld]",
                        n->op->name, (long long)x->dim[0], (long long)x->dim[1],
                        (long long)labels->dim[0], (long long)labels->dim[1]);
    return TD_OK;
}

static td_status check_scores(const td_node *n, int first)
{
    const td_type *x = td_in_type(n, first);
    if (x->dim[2] < 2)
        return td_error(TD_ESHAPE, "%s: %lld column, wanted the background and a class",
                        n->op->name, (long long)x->dim[2]);
    return check_labels(n, x, td_in_type(n, first + 1));
}

static td_status check_deltas(const td_node *n, int first)
{
    const td_type *x = td_in_type(n, first), *target = td_in_type(n, first + 1);
    if (x->dim[2] != 4)
        return td_error(TD_ESHAPE, "%s: deltas of %lld numbers, wanted 4", n->op->name,
                        (long long)x->dim[2]);
    if (!td_type_same_shape(x, target) || x->dtype != target->dtype)
        return td_error(TD_ESHAPE, "%s: deltas and target differ in type", n->op->name);
    return check_labels(n, x, td_in_type(n, first + 2));
}

static td_status check_dloss(const td_node *n)
{
    if (td_in_type(n, 0)->dtype != td_in_type(n, 1)->dtype)
        return td_error(TD_ESHAPE, "%s: dloss is %s, predictions are %s", n->op->name,
                        td_dtype_name(td_in_type(n, 0)->dtype),
                        td_dtype_name(td_in_type(n, 1)->dtype));
    return TD_OK;
}

static td_status scores_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_scores(n, 0));
    *y = td_type_scalar(td_in_type(n, 0)->dtype);
    return TD_OK;
}

static td_status scores_grad_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_scores(n, 1));
    *y = *td_in_type(n, 1);
    return check_dloss(n);
}

static td_status deltas_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_deltas(n, 0));
    *y = td_type_scalar(td_in_type(n, 0)->dtype);
    return TD_OK;
}

static td_status deltas_grad_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_deltas(n, 1));
    *y = *td_in_type(n, 1);
    return check_dloss(n);
}

/* --- gradients -------------------------------------------------------------------------------- */

static void focal_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_sigmoid_focal_loss_grad, n->attr, dy[0], n->in[0], n->in[1]);
}

static void huber_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_op *op = &td_op_huber_box_loss_grad;
    dx[0] = td_emit(b, op, n->attr, dy[0], n->in[0], n->in[1], n->in[2]);
}

static void multibox_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = td_emit(b, &td_op_multibox_class_loss_grad, n->attr, dy[0], n->in[0], n->in[1]);
}

/* --- ops: precision class: that of the strictest TensorFlow op in each loss ------------------- */

const td_op td_op_sigmoid_focal_loss = {
    .name = "sigmoid_focal_loss",
    .summary = "a detector's class loss over all anchors",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 3, 2 },
    .fields = focal_fields,
    .attr_bytes = sizeof(td_focal_attr),
    .tf_op = "Pow",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 1,
    .infer = scores_infer,
    .grad = focal_grad,
};

const td_op td_op_sigmoid_focal_loss_grad = {
    .name = "sigmoid_focal_loss_grad",
    .summary = "gradient of sigmoid_focal_loss for the scores",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 0, 3, 2 },
    .fields = focal_fields,
    .attr_bytes = sizeof(td_focal_attr),
    .tf_op = "Pow",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 2,
    .may_overwrite = 1u << 1,
    .infer = scores_grad_infer,
};

const td_op td_op_huber_box_loss = {
    .name = "huber_box_loss",
    .summary = "a detector's box loss over matched anchors",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 3, 3, 2 },
    .fields = huber_fields,
    .attr_bytes = sizeof(td_huber_attr),
    .tf_op = "L2Loss",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 2,
    .infer = deltas_infer,
    .grad = huber_grad,
};

const td_op td_op_huber_box_loss_grad = {
    .name = "huber_box_loss_grad",
    .summary = "gradient of huber_box_loss for the deltas",
    .n_in = 4,
    .n_out = 1,
    .in_rank = { 0, 3, 3, 2 },
    .fields = huber_fields,
    .attr_bytes = sizeof(td_huber_attr),
    .tf_op = "L2Loss",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 3,
    .may_overwrite = 1u << 1 | 1u << 2,
    .infer = deltas_grad_infer,
};

const td_op td_op_multibox_class_loss = {
    .name = "multibox_class_loss",
    .summary = "a detector's class loss over matched anchors and the worst others",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 3, 2 },
    .fields = multibox_fields,
    .attr_bytes = sizeof(td_multibox_attr),
    .tf_op = "SparseSoftmaxCrossEntropyWithLogits",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 1,
    .infer = scores_infer,
    .grad = multibox_grad,
};

const td_op td_op_multibox_class_loss_grad = {
    .name = "multibox_class_loss_grad",
    .summary = "gradient of multibox_class_loss for the scores",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 0, 3, 2 },
    .fields = multibox_fields,
    .attr_bytes = sizeof(td_multibox_attr),
    .tf_op = "SparseSoftmaxCrossEntropyWithLogits",
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 2,
    .infer = scores_grad_infer,
};

td_value *td_sigmoid_focal_loss(td_builder *b, td_value *scores, td_value *labels,
                                const char *attrs)
{
    const td_op *op = &td_op_sigmoid_focal_loss;
    return td_emit(b, op, td_build_attr(b, op, attrs), scores, labels);
}

td_value *td_huber_box_loss(td_builder *b, td_value *deltas, td_value *target, td_value *labels,
                            const char *attrs)
{
    const td_op *op = &td_op_huber_box_loss;
    return td_emit(b, op, td_build_attr(b, op, attrs), deltas, target, labels);
}

td_value *td_multibox_class_loss(td_builder *b, td_value *scores, td_value *labels,
                                 const char *attrs)
{
    const td_op *op = &td_op_multibox_class_loss;
    return td_emit(b, op, td_build_attr(b, op, attrs), scores, labels);
}
