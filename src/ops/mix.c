/*
 * mixup(x, lambda, partner) -> y     y[n] = lambda[n] x[n] + (1 - lambda[n]) x[partner[n]]
 *
 *   x        [N, ...]  any float     images, or rows of targets
 *   lambda   [N]       same          in [0, 1]
 *   partner  [N]       i64           in [0, N), otherwise the sample is unchanged
 *
 * No gradient: it is applied to inputs only.  Source: Zhang et al. 2018.
 */
#include "ops/ops.h"

static td_status mixup_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *lambda = td_in_type(n, 1), *partner = td_in_type(n, 2);
    if (x->rank < 1 || lambda->dim[0] != x->dim[0] || partner->dim[0] != x->dim[0])
        return td_error(TD_ESHAPE, "mixup: lambda and partner are not one number a sample");
    if (lambda->dtype != x->dtype || partner->dtype != TD_DT_I64)
        return td_error(TD_ESHAPE, "mixup: lambda is %s and partner %s, wanted %s and i64",
                        td_dtype_name(lambda->dtype), td_dtype_name(partner->dtype),
                        td_dtype_name(x->dtype));
    *y = *x;
    return TD_OK;
}

const td_op td_op_mixup = {
    .name = "mixup",
    .summary = "blend every sample with a partner",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 0, 1, 1 },
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 2,
    .infer = mixup_infer,
};
