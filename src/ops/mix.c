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

/*
 * cutmix(x, box, partner) -> y     y[n] = x[partner[n]] inside of box[n], x[n] outside
 *
 *   x        [N, C, H, W]  any float     images
 *   box      [N, 4]        i64           left, top, right, bottom; the last two are not inside.
 *                                        Parts outside of the image do not count
 *   partner  [N]           i64           in [0, N), otherwise the sample is unchanged
 *
 * No gradient: it is applied to inputs only.  Source: Yun et al. 2019.
 */
static td_status cutmix_infer(const td_node *n, td_type *y)
{
    const td_type *x = td_in_type(n, 0), *box = td_in_type(n, 1), *partner = td_in_type(n, 2);
    if (box->dim[0] != x->dim[0] || box->dim[1] != 4 || partner->dim[0] != x->dim[0])
        return td_error(TD_ESHAPE, "cutmix: box and partner are not four numbers and one a sample");
    if (box->dtype != TD_DT_I64 || partner->dtype != TD_DT_I64)
        return td_error(TD_ESHAPE, "cutmix: box is %s and partner %s, wanted i64",
                        td_dtype_name(box->dtype), td_dtype_name(partner->dtype));
    *y = *x;
    return TD_OK;
}

const td_op td_op_cutmix = {
    .name = "cutmix",
    .summary = "replace a box of every sample by a partner's",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 4, 2, 1 },
    .layout = TD_LAYOUT_PLAIN,
    .any_dtype = 1u << 1 | 1u << 2,
    .infer = cutmix_infer,
};
