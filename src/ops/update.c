/*
 * sgd(w, v, g, lr [, inverse, finite [, copy [, copy]]]) {momentum, decay, nesterov}   one step,
 *                                                                                   in place
 *
 *   w        any shape, float32 (f64)  parameter, overwritten
 *   v        same                      momentum buffer, overwritten; zeros before the first step
 *   g        same                      gradient, possibly of a scaled loss
 *   lr       scalar, or [2]            learning rate of this step; [2]: and the momentum (adam and
 *                                      lamb: beta1) of this step, in place of the attribute
 *   inverse  scalar                    1 / loss scale: g is multiplied by it first
 *   finite   scalar                    nothing is written if it is 0
 *   copy     w's shape, any layout     bf16 or f16 parameter, overwritten by w rounded
 *
 *   g' = inverse g + decay w;  v = momentum v + g';  w = w - lr (nesterov ? g' + momentum v : v)
 *
 * With v = 0 the first step gives v = g', as PyTorch's SGD with dampening 0.  The learning rate
 * multiplies after the momentum buffer.  Source: Sutskever et al. 2013; agrees with
 * torch.optim.SGD.
 *
 * rmsprop(w, u, g, lr, a [, inverse, finite [, copy [, copy]]]) {momentum, decay, alpha, eps}
 *                                                                             one step, in place
 *
 *   u        w's type                  momentum buffer, overwritten; zeros before the first step
 *   a        w's type                  mean square of g', overwritten; zeros before the first step
 *   others   as in sgd
 *
 *   g' = inverse g + decay w;  a = alpha a + (1 - alpha) g'^2
 *   u = momentum u + g' / (sqrt(a) + eps);  w = w - lr u
 *
 * Source: Tieleman and Hinton 2012, lecture 6.5; agrees with torch.optim.RMSprop, not centred.
 *
 * adam(w, m, g, lr, v, rest1, rest2 [, inverse, finite [, copy [, copy]]])
 *                                      {beta1, beta2, eps, decay, decoupled}     one step, in place
 *
 *   m        w's type                  mean of g', overwritten; zeros before the first step
 *   v        w's type                  mean of g'^2, overwritten; zeros before the first step
 *   rest1    scalar                    1 - beta1^t in step t, counted from 1
 *   rest2    scalar                    1 - beta2^t
 *   others   as in sgd
 *
 *   g' = inverse g + (decoupled ? 0 : decay w);  w = w - (decoupled ? lr decay w : 0)
 *   m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
 *   w = w - lr / rest1 m / (sqrt(v) / sqrt(rest2) + eps)
 *
 * Source: Kingma and Ba 2014, Loshchilov and Hutter 2017; agrees with torch.optim.AdamW
 * (decoupled), and Adam.
 *
 * lamb(w, m, g, lr, v, rest1, rest2 [, inverse, finite [, copy [, copy]]])
 *                                                  {beta1, beta2, eps, decay}    one step, in place
 *
 *   operands as in adam; m and v are computed from g' = inverse g
 *
 *   u = m / rest1 / (sqrt(v) / sqrt(rest2) + eps) + decay w
 *   w = w - lr r u;  r = |w| / |u|, 1 without decay and where one of the norms is 0
 *
 * Norms are sums in float64 over the whole weight.  Source: You et al. 2020; agrees with timm's
 * Lamb and apex's FusedLAMB without their gradient clipping.
 *
 * all_finite(x [, before]) -> y    1 if no element of x is infinite or NaN and `before`, an earlier
 *   x       any float, any shape   result, is not 0 or is omitted; otherwise 0
 *   y       float32 scalar
 *
 * assign(to, from)                 the parameter `to` becomes `from`, converted to its dtype and
 *   to, from   one shape           layout
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field sgd_fields[] = {
    TD_REAL(td_sgd_attr, momentum, 0, 0, 1, "share of the velocity kept"),
    TD_REAL(td_sgd_attr, decay,    0, 0, 1, "weight decay"),
    TD_BOOL(td_sgd_attr, nesterov, false, "look one step ahead"),
    TD_END,
};
/* clang-format on */

/* clang-format off */
static const td_field rmsprop_fields[] = {
    TD_REAL(td_rmsprop_attr, momentum, 0, 0, 1, "share of the velocity kept"),
    TD_REAL(td_rmsprop_attr, decay,    0, 0, 1, "weight decay"),
    TD_REAL(td_rmsprop_attr, alpha,    0.99, 0, 1, "share of the mean square kept"),
    TD_REAL(td_rmsprop_attr, eps,      1e-8, 1e-30, 1, "added to the root"),
    TD_END,
};
/* clang-format on */

/* clang-format off */
static const td_field adam_fields[] = {
    TD_REAL(td_adam_attr, beta1, 0.9,   0, 1, "share of the mean gradient kept"),
    TD_REAL(td_adam_attr, beta2, 0.999, 0, 1, "share of the mean square kept"),
    TD_REAL(td_adam_attr, eps,   1e-8, 1e-30, 1, "added to the root"),
    TD_REAL(td_adam_attr, decay, 0, 0, 1, "weight decay"),
    TD_BOOL(td_adam_attr, decoupled, false, "the weight is decayed, not the gradient (AdamW)"),
    TD_END,
};

static const td_field lamb_fields[] = {
    TD_REAL(td_adam_attr, beta1, 0.9,   0, 1, "share of the mean gradient kept"),
    TD_REAL(td_adam_attr, beta2, 0.999, 0, 1, "share of the mean square kept"),
    TD_REAL(td_adam_attr, eps,   1e-6, 1e-30, 1, "added to the root"),
    TD_REAL(td_adam_attr, decay, 0, 0, 1, "weight decay"),
    TD_END,
};
/* clang-format on */

static bool is_rate(const td_type *t)
{
    return td_type_count(t) == 1 || (t->rank == 1 && t->dim[0] == 2);
}

bool td_update_has_momentum(const td_node *n)
{
    return td_type_count(td_in_type(n, 3)) == 2;
}

/* rmsprop, adam, lamb: tensors 0, 1, 2 and 4, then scalars, then copies */
static td_status square_infer(const td_node *n, td_type *y)
{
    const int copy = td_op_first_copy(n->op);
    const char *op = n->op->name;
    (void)y;
    for (int i = 1; i < n->n_in; i++) {
        const td_type *t = td_in_type(n, i);
        const bool is_tensor = i < 3 || i == 4, has_shape = td_type_same_shape(td_in_type(n, 0), t);
        if (i < copy && is_tensor && (!has_shape || td_in_type(n, 0)->dtype != t->dtype))
            return td_error(TD_ESHAPE, "%s: operand %d does not have the weight's type", op, i);
        if (i < copy && !is_tensor && !(i == 3 ? is_rate(t) : td_type_count(t) == 1))
            return td_error(TD_ESHAPE, "%s: operand %d is not a scalar", op, i);
        if (i >= copy && !has_shape)
            return td_error(TD_ESHAPE, "%s: operand %d, a copy, does not have the weight's shape",
                            op, i);
    }
    return TD_OK;
}

static td_status sgd_infer(const td_node *n, td_type *y)
{
    static const char *const scalars[] = { "the learning rate", "inverse", "finite" };
    (void)y;
    for (int i = 1; i < 3; i++)
        if (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, i)) ||
            td_in_type(n, 0)->dtype != td_in_type(n, i)->dtype)
            return td_error(TD_ESHAPE, "sgd: operand %d does not have the weight's type", i);
    if (!is_rate(td_in_type(n, 3)))
        return td_error(TD_ESHAPE, "sgd: %s is neither a scalar nor [2]", scalars[0]);
    for (int i = 4; i < n->n_in && i < 6; i++)
        if (td_type_count(td_in_type(n, i)) != 1)
            return td_error(TD_ESHAPE, "sgd: %s is not a scalar", scalars[i - 3]);
    for (int i = 6; i < n->n_in; i++)
        if (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, i)))
            return td_error(TD_ESHAPE, "sgd: operand %d, a copy, does not have the weight's shape",
                            i);
    return TD_OK;
}

static td_status finite_infer(const td_node *n, td_type *y)
{
    if (n->n_in > 1 && td_type_count(td_in_type(n, 1)) != 1)
        return td_error(TD_ESHAPE, "all_finite: operand 1 is not a scalar");
    *y = td_type_scalar(TD_DT_F32);
    return TD_OK;
}

static td_status assign_infer(const td_node *n, td_type *y)
{
    (void)y;
    if (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, 1)))
        return td_error(TD_ESHAPE, "assign: the operands differ in shape");
    return TD_OK;
}

const td_op td_op_sgd = {
    .name = "sgd",
    .summary = "stochastic gradient descent with momentum, in place",
    .n_in = 4,
    .n_in_max = 8,
    .n_out = 0,
    .fields = sgd_fields,
    .attr_bytes = sizeof(td_sgd_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 1u | 1u << 1 | 3u << 6,
    .own_layout = 3u << 6,
    .infer = sgd_infer,
};

const td_op td_op_rmsprop = {
    .name = "rmsprop",
    .summary = "gradient over its root mean square, with momentum, in place",
    .n_in = 5,
    .n_in_max = 9,
    .n_out = 0,
    .fields = rmsprop_fields,
    .attr_bytes = sizeof(td_rmsprop_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 1u | 1u << 1 | 1u << 4 | 3u << 7,
    .own_layout = 3u << 7,
    .infer = square_infer,
};

const td_op td_op_adam = {
    .name = "adam",
    .summary = "Adam, or AdamW with decoupled decay, in place",
    .n_in = 7,
    .n_in_max = 11,
    .n_out = 0,
    .fields = adam_fields,
    .attr_bytes = sizeof(td_adam_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 1u | 1u << 1 | 1u << 4 | 3u << 9,
    .own_layout = 3u << 9,
    .infer = square_infer,
};

const td_op td_op_lamb = {
    .name = "lamb",
    .summary = "Adam with a step as long as the weight, in place",
    .n_in = 7,
    .n_in_max = 11,
    .n_out = 0,
    .fields = lamb_fields,
    .attr_bytes = sizeof(td_adam_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 1u | 1u << 1 | 1u << 4 | 3u << 9,
    .own_layout = 3u << 9,
    .infer = square_infer,
};

bool td_op_is_update(const td_op *op)
{
    return td_op_first_copy(op) > 0;
}

int td_op_first_copy(const td_op *op)
{
    if (op == &td_op_adam || op == &td_op_lamb)
        return 9;
    return op == &td_op_sgd ? 6 : op == &td_op_rmsprop ? 7 : 0;
}

const td_op td_op_all_finite = {
    .name = "all_finite",
    .summary = "1 if no element is infinite or NaN, else 0",
    .n_in = 1,
    .n_in_max = 2,
    .n_out = 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = finite_infer,
};

const td_op td_op_assign = {
    .name = "assign",
    .summary = "overwrite a parameter, changing dtype and layout on the way",
    .n_in = 2,
    .n_out = 0,
    .layout = TD_LAYOUT_CHOOSES,
    .writes = 1u,
    .infer = assign_infer,
};

void td_sgd(td_builder *b, td_value *w, td_value *v, td_value *grad, td_value *lr,
            const char *attrs)
{
    td_emit(b, &td_op_sgd, td_build_attr(b, &td_op_sgd, attrs), w, v, grad, lr);
}
