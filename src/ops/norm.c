/*
 * batch_norm(x, gamma, beta) -> y, mean, var        normalise by the batch's statistics
 *
 *   x     [N, C, H, W]  any float         y     same as x
 *   gamma [C], beta [C] float32 (f64)     mean  [C], var [C]: of this batch, var biased
 *
 *   y = gamma (x - mean) / sqrt(var + eps) + beta
 *
 * batch_norm_grad(dy, x, gamma, mean, var) -> dx, dgamma, dbeta
 *
 * batch_norm_relu(x, gamma, beta) -> y, mean, var, mask      y = relu(batch_norm(x))
 * batch_norm_add_relu(x, gamma, beta, z) -> y, mean, var, mask   y = relu(batch_norm(x) + z)
 *   mask  u8[elements / 8]  bit i of byte j: element 8 j + i in memory order passed the relu; the
 *                           padding of a layout has elements, too
 *   relu6: clipped at 6 too; the mask is set below 6
 *
 * batch_norm_relu_grad(dy, mask, x, gamma, mean, var) -> dx, dgamma, dbeta
 * batch_norm_add_relu_grad(dy, mask, x, gamma, mean, var) -> dx, dgamma, dbeta, dz
 *
 * batch_norm_infer(x, gamma, beta, mean, var) -> y           with given statistics
 * batch_norm_relu_infer(x, gamma, beta, mean, var) -> y      relu of that
 * batch_norm_add_relu_infer(x, gamma, beta, mean, var, z) -> y    relu of that + z
 * batch_norm_infer_grad(dy, x, gamma, mean, var) -> dx, dgamma, dbeta    statistics are constants
 * batch_norm_scale(gamma, var) -> s[C]                       s = gamma / sqrt(var + eps)
 *
 * batch_norm_statistics(sum, squares, gamma, beta) {count, to} -> mean, var, scale, shift
 *   the statistics of `count` elements by their sums and those of their squares [C], and the norm
 *   as scale x + shift:  mean = sum / count, var = max(squares / count - mean^2, 0),
 *   scale = gamma / sqrt(var + eps), shift = beta - mean scale, both of dtype `to`
 *
 * batch_norm_add_relu_given(x, gamma, beta, mean, var, z) -> y, mask    batch_norm_add_relu with
 *   given statistics, which are those of x: its gradient is batch_norm_add_relu_grad
 *
 * batch_norm_scale_relu_grad(dy, x, gamma, mean, var, scale, shift) -> dx, dgamma, dbeta
 *   batch_norm_relu_grad whose mask is scale x + shift > 0 (relu6: and < 6)
 *
 * batch_norm_update(running_mean, running_var, mean, var [, finite])    at the end of a step:
 *   r <- (1 - momentum) r + momentum s, the variance first made unbiased by count / (count - 1);
 *   finite is a scalar: nothing is written if it is 0
 *
 * Statistics are float32 whatever the storage.  Source: Ioffe and Szegedy 2015, algorithm 1;
 * agrees with PyTorch for the running variance.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field norm_fields[] = {
    TD_REAL(td_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_END,
};

static const td_field relu_fields[] = {
    TD_REAL(td_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_BOOL(td_norm_attr, relu6, false, "clip the result at six too"),
    TD_END,
};

static const char *const dtypes[] = { "same", "bf16", "f16", NULL };

static const td_field statistics_fields[] = {
    TD_REAL(td_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_LONG(td_norm_attr, count, 1, 1, 1e15, "elements a statistic was taken over"),
    TD_ENUM(td_norm_attr, to, 0, dtypes, "dtype of scale and shift; same: that of gamma"),
    TD_END,
};

static const td_field update_fields[] = {
    TD_REAL(td_norm_attr, momentum, 0.1, 0, 1, "weight of the new statistics"),
    TD_LONG(td_norm_attr, count, 1, 1, 1e15, "elements a statistic was taken over"),
    TD_END,
};

/* the attributes of td_batch_norm_train */
static const td_field train_fields[] = {
    TD_REAL(td_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_REAL(td_norm_attr, momentum, 0.1, 0, 1, "weight of the new statistics"),
    TD_END,
};
/* clang-format on */

/* checks that operands from..to-1 are [C] with C = x's channels */
static td_status check_channels(const td_node *n, const td_type *x, int from, int to)
{
    for (int i = from; i < to; i++) {
        td_dtype d = td_in_type(n, i)->dtype;
        if (d != td_in_type(n, from)->dtype || (d != TD_DT_F32 && d != TD_DT_F64))
            return td_error(TD_ESHAPE, "%s: operand %d is %s, wanted f32 or f64, all alike",
                            n->op->name, i, td_dtype_name(d));
        if (td_in_type(n, i)->dim[0] != x->dim[1])
            return td_error(TD_ESHAPE, "%s: operand %d has %lld elements, input has %lld channels",
                            n->op->name, i, (long long)td_in_type(n, i)->dim[0],
                            (long long)x->dim[1]);
    }
    return TD_OK;
}

static td_status check_same(const td_node *n, int i, int j)
{
    if (!td_type_same_shape(td_in_type(n, i), td_in_type(n, j)))
        return td_error(TD_ESHAPE, "%s: operands %d and %d differ in shape", n->op->name, i, j);
    if (td_in_type(n, i)->dtype != td_in_type(n, j)->dtype)
        return td_error(TD_ESHAPE, "%s: operands %d and %d differ in dtype", n->op->name, i, j);
    return TD_OK;
}

static td_status mask_type(const td_node *n, const td_type *x, td_type *mask)
{
    const int64_t count = td_type_padded_count(x);
    if (count % 8)
        return td_error(TD_ESHAPE, "%s: %lld elements are not a multiple of 8", n->op->name,
                        (long long)count);
    *mask = td_type_1d(TD_DT_U8, count / 8);
    return TD_OK;
}

static td_status norm_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *gamma = td_in_type(n, 1);
    TD_TRY(check_channels(n, x, 1, 3));
    y[0] = *x;
    y[1] = y[2] = *gamma;
    return TD_OK;
}

static td_status norm_relu_infer(const td_node *n, td_type *y)
{
    TD_TRY(norm_infer(n, y));
    if (n->n_in > 3)
        TD_TRY(check_same(n, 0, 3));
    return mask_type(n, td_in_type(n, 0), &y[3]);
}

static td_status norm_grad_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_same(n, 0, 1));
    TD_TRY(check_channels(n, td_in_type(n, 1), 2, 5));
    y[0] = *td_in_type(n, 1);
    y[1] = y[2] = *td_in_type(n, 2);
    return TD_OK;
}

static td_status norm_relu_grad_infer(const td_node *n, td_type *y)
{
    td_type mask;
    TD_TRY(check_same(n, 0, 2));
    if (n->n_in > 6)
        TD_TRY(check_same(n, 6, 2));
    TD_TRY(mask_type(n, td_in_type(n, 2), &mask));
    if (!td_type_same_shape(&mask, td_in_type(n, 1)) || td_in_type(n, 1)->dtype != TD_DT_U8)
        return td_error(TD_ESHAPE, "%s: the mask does not have one bit an element", n->op->name);
    TD_TRY(check_channels(n, td_in_type(n, 2), 3, 6)); /* operands 3 to 5 */
    y[0] = *td_in_type(n, 2);
    y[1] = y[2] = *td_in_type(n, 3);
    if (n->n_out > 3)
        y[3] = *td_in_type(n, 0);
    return TD_OK;
}

static td_status statistics_infer(const td_node *n, td_type *y)
{
    const td_norm_attr *a = n->attr;
    const td_type *sum = td_in_type(n, 0);
    for (int i = 1; i < 4; i++)
        TD_TRY(check_same(n, 0, i));
    if (sum->dtype != TD_DT_F32 && sum->dtype != TD_DT_F64)
        return td_error(TD_ESHAPE, "batch_norm_statistics: sums are %s, wanted f32 or f64",
                        td_dtype_name(sum->dtype));
    for (int i = 0; i < 4; i++)
        y[i] = *sum;
    if (a->to)
        y[2].dtype = y[3].dtype = td_dtype_parse(dtypes[a->to]);
    return TD_OK;
}

int td_norm_vectors_to(td_dtype d)
{
    return d == TD_DT_BF16 ? 1 : d == TD_DT_F16 ? 2 : 0;
}

static td_status given_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_channels(n, td_in_type(n, 0), 1, 5));
    TD_TRY(check_same(n, 0, 5));
    y[0] = *td_in_type(n, 0);
    return mask_type(n, &y[0], &y[1]);
}

static td_status scale_relu_grad_infer(const td_node *n, td_type *y)
{
    const td_type *scale = td_in_type(n, 5), *shift = td_in_type(n, 6);
    TD_TRY(norm_grad_infer(n, y));
    if (scale->dim[0] != y->dim[1] || !td_type_same_shape(scale, shift))
        return td_error(TD_ESHAPE, "%s: scale and shift do not have %lld elements", n->op->name,
                        (long long)y->dim[1]);
    if (scale->dtype != shift->dtype)
        return td_error(TD_ESHAPE, "%s: operands 5 and 6 differ in dtype", n->op->name);
    return TD_OK;
}

static td_status infer_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_channels(n, td_in_type(n, 0), 1, 5));
    if (n->n_in > 5)
        TD_TRY(check_same(n, 0, 5));
    y[0] = *td_in_type(n, 0);
    return TD_OK;
}

static td_status scale_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_same(n, 0, 1));
    y[0] = *td_in_type(n, 0);
    return TD_OK;
}

static td_status update_infer(const td_node *n, td_type *y)
{
    (void)y;
    for (int i = 1; i < 4; i++)
        TD_TRY(check_same(n, 0, i));
    if (n->n_in > 4 && td_type_count(td_in_type(n, 4)) != 1)
        return td_error(TD_ESHAPE, "batch_norm_update: operand 4, finite, is not a scalar");
    return TD_OK;
}

static void norm_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *out[3];
    if (dy[1] || dy[2]) {
        td_build_fail(
            b, td_error(TD_EUNSUPPORTED,
                        "batch_norm: gradients through its mean and variance are not supported"));
        return;
    }
    td_emit_n(b, &td_op_batch_norm_grad, n->attr, 5,
              TD_ARGS(dy[0], n->in[0], n->in[1], n->out[1], n->out[2]), out);
    for (int i = 0; i < 3; i++)
        dx[i] = out[i];
}

static void infer_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    td_value *out[3];
    td_emit_n(b, &td_op_batch_norm_infer_grad, n->attr, 5,
              TD_ARGS(dy[0], n->in[0], n->in[1], n->in[3], n->in[4]), out);
    for (int i = 0; i < 3; i++)
        dx[i] = out[i];
}

const td_op td_op_batch_norm = {
    .name = "batch_norm",
    .summary = "batch normalisation with the batch's own statistics",
    .n_in = 3,
    .n_out = 3,
    .in_rank = { 4, 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormV3",
    .wide_in = 6u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = norm_infer,
    .grad = norm_grad,
};

const td_op td_op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .summary = "gradient of batch_norm",
    .n_in = 5,
    .n_out = 3,
    .in_rank = { 4, 4, 1, 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x1cu,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0,
    .infer = norm_grad_infer,
};

const td_op td_op_batch_norm_relu = {
    .name = "batch_norm_relu",
    .summary = "relu(batch_norm(x)), with a bit mask for the gradient",
    .n_in = 3,
    .n_out = 4,
    .in_rank = { 4, 1, 1 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "_FusedBatchNormEx",
    .wide_in = 6u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = norm_relu_infer,
};

const td_op td_op_batch_norm_relu_grad = {
    .name = "batch_norm_relu_grad",
    .summary = "gradient of batch_norm_relu",
    .n_in = 6,
    .n_out = 3,
    .in_rank = { 4, 1, 4, 1, 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x38u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u << 1,
    .memory_order = 1u << 1,
    .may_overwrite = 1u << 0,
    .infer = norm_relu_grad_infer,
};

const td_op td_op_batch_norm_add_relu = {
    .name = "batch_norm_add_relu",
    .summary = "relu(batch_norm(x) + z), with a bit mask for the gradient",
    .n_in = 4,
    .n_out = 4,
    .in_rank = { 4, 1, 1, 4 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "_FusedBatchNormEx",
    .wide_in = 6u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 3,
    .infer = norm_relu_infer,
};

/* operand 6, if any, is added to dy; the last result is that sum where the mask is set, otherwise
   0 */
const td_op td_op_batch_norm_add_relu_grad = {
    .name = "batch_norm_add_relu_grad",
    .summary = "gradient of batch_norm_add_relu, of one use of its result or of two",
    .n_in = 6,
    .n_in_max = 7,
    .n_out = 4,
    .in_rank = { 4, 1, 4, 1, 1, 1, 4 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x38u,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .any_dtype = 1u << 1,
    .memory_order = 1u << 1,
    .may_overwrite = 1u << 0 | 1u << 6,
    .may_overwrite_last = 1u << 0 | 1u << 6,
    .infer = norm_relu_grad_infer,
};

const td_op td_op_batch_norm_infer = {
    .name = "batch_norm_infer",
    .summary = "batch normalisation with given statistics",
    .n_in = 5,
    .n_out = 1,
    .in_rank = { 4, 1, 1, 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormV3",
    .wide_in = 0x1eu,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0,
    .infer = infer_infer,
    .grad = infer_grad,
};

const td_op td_op_batch_norm_relu_infer = {
    .name = "batch_norm_relu_infer",
    .summary = "relu(batch_norm_infer(x))",
    .n_in = 5,
    .n_out = 1,
    .in_rank = { 4, 1, 1, 1, 1 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .wide_in = 0x1eu,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0,
    .infer = infer_infer,
};

const td_op td_op_batch_norm_add_relu_infer = {
    .name = "batch_norm_add_relu_infer",
    .summary = "relu(batch_norm_infer(x) + z)",
    .n_in = 6,
    .n_out = 1,
    .in_rank = { 4, 1, 1, 1, 1, 4 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .wide_in = 0x1eu,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0 | 1u << 5,
    .infer = infer_infer,
};

const td_op td_op_batch_norm_infer_grad = {
    .name = "batch_norm_infer_grad",
    .summary = "gradient of batch_norm_infer",
    .n_in = 5,
    .n_out = 3,
    .in_rank = { 4, 4, 1, 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x1cu,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0,
    .infer = norm_grad_infer,
};

const td_op td_op_batch_norm_scale = {
    .name = "batch_norm_scale",
    .summary = "gamma / sqrt(var + eps), for folding into a convolution",
    .n_in = 2,
    .n_out = 1,
    .in_rank = { 1, 1 },
    .fields = norm_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = scale_infer,
};

const td_op td_op_batch_norm_statistics = {
    .name = "batch_norm_statistics",
    .summary = "mean and variance by sums, and the norm as scale x + shift",
    .n_in = 4,
    .n_out = 4,
    .in_rank = { 1, 1, 1, 1 },
    .fields = statistics_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormV3",
    .wide_in = 0xfu,
    .wide_out = 3u,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = statistics_infer,
};

const td_op td_op_batch_norm_add_relu_given = {
    .name = "batch_norm_add_relu_given",
    .summary = "batch_norm_add_relu with given statistics",
    .n_in = 6,
    .n_out = 2,
    .in_rank = { 4, 1, 1, 1, 1, 4 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "_FusedBatchNormEx",
    .wide_in = 0x1eu,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 5,
    .infer = given_infer,
};

const td_op td_op_batch_norm_scale_relu_grad = {
    .name = "batch_norm_scale_relu_grad",
    .summary = "gradient of relu(batch_norm(x)) without a mask",
    .n_in = 7,
    .n_out = 3,
    .in_rank = { 4, 4, 1, 1, 1, 1, 1 },
    .fields = relu_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .tf_op = "FusedBatchNormGradV3",
    .wide_in = 0x7cu,
    .wide_out = 6u,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 0,
    .infer = scale_relu_grad_infer,
};

const td_op td_op_batch_norm_update = {
    .name = "batch_norm_update",
    .summary = "move the running statistics towards the batch's",
    .n_in = 4,
    .n_in_max = 5,
    .n_out = 0,
    .in_rank = { 1, 1, 1, 1 },
    .fields = update_fields,
    .attr_bytes = sizeof(td_norm_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 3u,
    .infer = update_infer,
};

td_value *td_batch_norm_train(td_builder *b, td_value *x, td_value *gamma, td_value *beta,
                              td_value *running_mean, td_value *running_var, const char *attrs)
{
    td_norm_attr a;
    td_value *out[3];
    td_arena scratch = { 0 };
    td_fields_default(train_fields, &a);
    td_status st = attrs ? td_fields_parse(train_fields, &a, attrs, &scratch) : TD_OK;
    td_arena_release(&scratch);
    if (st != TD_OK)
        td_build_fail(b, st);
    const td_type t = td_value_type(x);
    a.count = t.rank == 4 ? t.dim[0] * t.dim[2] * t.dim[3] : 1;
    td_emit_n(b, &td_op_batch_norm, &a, 3, TD_ARGS(x, gamma, beta), out);
    td_emit(b, &td_op_batch_norm_update, &a, running_mean, running_var, out[1], out[2]);
    return out[0];
}

td_value *td_batch_norm_infer(td_builder *b, td_value *x, td_value *gamma, td_value *beta,
                              td_value *mean, td_value *var, const char *attrs)
{
    const td_op *op = &td_op_batch_norm_infer;
    return td_emit(b, op, td_build_attr(b, op, attrs), x, gamma, beta, mean, var);
}
