/*
 * group_norm(x, gamma, beta) {groups, eps} -> y      groups of channels normalised, image by image
 *
 *   x      [N, C, ..]  any float
 *   gamma  [C]         same as x
 *   beta   [C]         same as x
 *   y      [N, C, ..]  same as x     gamma (x - mean) / sqrt(var + eps) + beta, var biased
 *
 * mean and var are those of C / groups channels and all pixels of one image.
 *
 * As many groups as channels make instance norm.  Composite: layer_norm of the groups as rows, then
 * a product and a sum by channel.  Source: Wu and He 2018; Ulyanov et al. 2016 (instance norm).
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field group_norm_fields[] = {
    TD_INT (td_group_norm_attr, groups, 32, 1, 65536, "groups that the channels are divided into"),
    TD_REAL(td_group_norm_attr, eps, 1e-5, 0, 1, "added to the variance"),
    TD_END,
};
/* clang-format on */

static td_status group_norm_infer(const td_node *n, td_type *y)
{
    const td_group_norm_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    if (x->rank < 2)
        return td_error(TD_ESHAPE, "group_norm: x has %d dimensions, wanted at least 2", x->rank);
    if (x->dim[1] % a->groups)
        return td_error(TD_ESHAPE, "group_norm: %lld channels do not divide into %d groups",
                        (long long)x->dim[1], a->groups);
    for (int i = 1; i < 3; i++) {
        const td_type *t = td_in_type(n, i);
        if (t->dim[0] != x->dim[1] || t->dtype != x->dtype)
            return td_error(TD_ESHAPE, "group_norm: operand %d is %s[%lld], wanted %s[%lld]", i,
                            td_dtype_name(t->dtype), (long long)t->dim[0], td_dtype_name(x->dtype),
                            (long long)x->dim[1]);
    }
    *y = td_type_plain(x);
    return TD_OK;
}

static td_value *filled(td_builder *b, td_dtype d, int64_t size, double value)
{
    const td_type t = td_type_1d(d, size);
    const td_constant_attr a = { .value = value, .type = td_build_type_text(b, &t) };
    return td_emit_n(b, &td_op_constant, &a, 0, NULL, NULL);
}

static void group_norm_decompose(td_builder *b, const td_node *n, td_value *const *in,
                                 td_value **out)
{
    const td_group_norm_attr *a = n->attr;
    const td_type x = in[0]->type;
    const int64_t rows = x.dim[0] * a->groups, width = td_type_count(&x) / rows;
    const td_layer_norm_attr norm = { a->eps };
    int64_t channels[TD_RANK_MAX];
    for (int d = 0; d < x.rank; d++)
        channels[d] = d == 1 ? x.dim[1] : 1;
    td_value *y = td_reshape(b, in[0], 2, (int64_t[]){ rows, width });
    y = td_emit(b, &td_op_layer_norm, &norm, y, filled(b, x.dtype, width, 1),
                filled(b, x.dtype, width, 0));
    td_value *const gamma = td_reshape(b, in[1], x.rank, channels);
    y = td_mul(b, td_reshape(b, y, x.rank, x.dim), gamma);
    out[0] = td_add(b, y, td_reshape(b, in[2], x.rank, channels));
}

const td_op td_op_group_norm = {
    .name = "group_norm",
    .summary = "groups of channels normalised by their own statistics",
    .n_in = 3,
    .n_out = 1,
    .in_rank = { 0, 1, 1 },
    .fields = group_norm_fields,
    .attr_bytes = sizeof(td_group_norm_attr),
    .layout = TD_LAYOUT_PLAIN,
    .is_composite = true,
    .infer = group_norm_infer,
    .decompose = group_norm_decompose,
};
