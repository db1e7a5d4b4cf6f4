/*
 * sgd(w, v, g, lr) {momentum, decay, nesterov}     one optimiser step, in place
 *
 *   w   any shape, float32 (f64)  parameter, overwritten
 *   v   same                      velocity, overwritten; zeros before the first step
 *   g   same                      gradient
 *   lr  scalar                    learning rate of this step
 *
 *   g' = g + decay w;  v = momentum v + g';  w = w - lr (nesterov ? g' + momentum v : v)
 *
 * With v = 0 the first step gives v = g', as PyTorch's SGD with dampening 0.  The learning rate
 * multiplies after the velocity.  Source: Sutskever et al. 2013; agrees with torch.optim.SGD.
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

static td_status sgd_infer(const td_node *n, td_type *y)
{
    (void)y;
    for (int i = 1; i < 3; i++)
        if (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, i)) ||
            td_in_type(n, 0)->dtype != td_in_type(n, i)->dtype)
            return td_error(TD_ESHAPE, "sgd: operand %d does not have the weight's type", i);
    if (td_type_count(td_in_type(n, 3)) != 1)
        return td_error(TD_ESHAPE, "sgd: the learning rate is not a scalar");
    return TD_OK;
}

const td_op td_op_sgd = {
    .name = "sgd",
    .summary = "stochastic gradient descent with momentum, in place",
    .n_in = 4,
    .n_out = 0,
    .fields = sgd_fields,
    .attr_bytes = sizeof(td_sgd_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 3u,
    .infer = sgd_infer,
};

void td_sgd(td_builder *b, td_value *w, td_value *v, td_value *grad, td_value *lr,
            const char *attrs)
{
    td_emit(b, &td_op_sgd, td_build_attr(b, &td_op_sgd, attrs), w, v, grad, lr);
}
