/*
 * accumulate(sum, g) -> s            s = sum + g: the gradient of the step so far
 * carry(w, sum, s, last)             sum = last ? 0 : s, for the next batch
 *
 *   w, sum, g, s   one shape         weight (for its shape only), parameter, gradient
 *   last           scalar            1 on the last batch of an optimiser step
 *
 * For a step over several batches: `s` is an operand of the update, which checks `last`, and is
 * saved for the next batch.  Gradients are summed; the update computes the mean (by its `inverse`).
 *
 * ema(value, average, keep, share [, finite])   average = keep average + share value
 *
 *   value, average  one shape        weight or statistic; its average, overwritten
 *   keep, share     scalars          m and 1 - m: two, so that 1 - m keeps its digits
 *   finite          scalar           nothing is written where it is 0, nor with m = 1
 *
 * Two products and one sum, each rounded: what PyTorch does.  Source: Polyak and Juditsky 1992.
 *
 * commit(to, pending, last, finite)  where last is 1: to = pending if finite; if not, pending = to
 *
 *   to, pending     one shape        the committed value, and the pending one of the current step
 */
#include "ops/ops.h"

static td_status check_alike(const td_node *n, int i)
{
    if (td_type_same_shape(td_in_type(n, 0), td_in_type(n, i)) &&
        td_in_type(n, 0)->dtype == td_in_type(n, i)->dtype)
        return TD_OK;
    return td_error(TD_ESHAPE, "%s: operand %d does not have the type of operand 0", n->op->name,
                    i);
}

static td_status check_scalars(const td_node *n, int from)
{
    for (int i = from; i < n->n_in; i++)
        if (td_type_count(td_in_type(n, i)) != 1)
            return td_error(TD_ESHAPE, "%s: operand %d is not a scalar", n->op->name, i);
    return TD_OK;
}

static td_status accumulate_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_alike(n, 1));
    *y = *td_in_type(n, 0);
    return TD_OK;
}

static td_status carry_infer(const td_node *n, td_type *y)
{
    (void)y;
    TD_TRY(check_alike(n, 1));
    TD_TRY(check_alike(n, 2));
    return check_scalars(n, 3);
}

static td_status pair_infer(const td_node *n, td_type *y)
{
    (void)y;
    TD_TRY(check_alike(n, 1));
    return check_scalars(n, 2);
}

const td_op td_op_accumulate = {
    .name = "accumulate",
    .summary = "a gradient and those of the step's batches before",
    .n_in = 2,
    .n_out = 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .may_overwrite = 1u << 1,
    .infer = accumulate_infer,
};

const td_op td_op_carry = {
    .name = "carry",
    .summary = "keep a sum of gradients for the step's next batch, or begin again",
    .n_in = 4,
    .n_out = 0,
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u,
    .writes = 1u << 1,
    .after_update = 1u,
    .infer = carry_infer,
};

const td_op td_op_ema = {
    .name = "ema",
    .summary = "exponential moving average, in place",
    .n_in = 4,
    .n_in_max = 5,
    .n_out = 0,
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 1u << 1,
    .after_update = 3u,
    .infer = pair_infer,
};

const td_op td_op_commit = {
    .name = "commit",
    .summary = "take over what a step has made, or drop it",
    .n_in = 4,
    .n_out = 0,
    .layout = TD_LAYOUT_FOLLOWS,
    .writes = 3u,
    .after_update = 3u,
    .infer = pair_infer,
};
