/*
 * attention(x) {heads, scale} -> y       every token's mean of all tokens' values, for inference
 *
 *   x  [N, T, 3 E]  any float    rows q, k, v of each token, each of them `heads` parts of D
 *   y  [N, T, E]    same as x    E = heads D
 *
 *   for each image and head:  y = softmax(scale q k^T) v, the softmax of each row
 *
 * The products q k^T and their softmax are never operands of other nodes.
 *
 * Source: Vaswani et al. 2017, section 3.2.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field attention_fields[] = {
    TD_INT (td_attention_attr, heads, 1, 1, 65536, "parts of q, k and v"),
    TD_REAL(td_attention_attr, scale, 1, -1e30, 1e30, "factor of the products of q and k"),
    TD_END,
};
/* clang-format on */

td_attention_sizes td_attention_sizes_of(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    const int64_t heads = ((const td_attention_attr *)n->attr)->heads;
    return (td_attention_sizes){ .N = x->dim[0],
                                 .T = x->dim[1],
                                 .E = x->dim[2] / 3,
                                 .heads = heads,
                                 .D = x->dim[2] / 3 / heads };
}

static td_status attention_infer(const td_node *n, td_type *y)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    const int64_t width = td_in_type(n, 0)->dim[2];
    if (width % (3 * s.heads))
        return td_error(TD_ESHAPE, "attention: %lld numbers of a token are not 3 x %lld parts",
                        (long long)width, (long long)s.heads);
    *y = td_type_plain(td_in_type(n, 0));
    y->dim[2] = s.E;
    return TD_OK;
}

static int64_t attention_macs(const td_node *n)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    return td_mul_capped(td_mul_capped(2 * s.N, s.T * s.T), s.E);
}

const td_op td_op_attention = {
    .name = "attention",
    .summary = "softmax(q k^T) v for each head, for inference",
    .n_in = 1,
    .n_out = 1,
    .in_rank = { 3 },
    .fields = attention_fields,
    .attr_bytes = sizeof(td_attention_attr),
    .tf_op = "BatchMatMulV2",
    .layout = TD_LAYOUT_PLAIN,
    .infer = attention_infer,
    .macs = attention_macs,
};
