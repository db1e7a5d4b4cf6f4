/*
 * matmul(a, b, bias) {transpose_a, transpose_b} -> y    y = a b + bias, for each matrix of a batch
 *
 *   a     [.., M, K]  any float    [.., K, M] with transpose_a
 *   b     [.., K, N]  same as a    [.., N, K] with transpose_b
 *   bias  [N]         same as a, or float32 with half; may be omitted
 *   y     [.., M, N]
 *
 * The dimensions before the last two are aligned at the right, and 1 repeats, as in numpy.  Each
 * gradient is a matmul, summed over the dimensions in which its operand is repeated; that of the
 * bias is sum_to.
 */
#include "ir/build.h"
#include "ops/ops.h"

/* clang-format off */
static const td_field matmul_fields[] = {
    TD_BOOL(td_matmul_attr, transpose_a, false, "a is [.., K, M]"),
    TD_BOOL(td_matmul_attr, transpose_b, false, "b is [.., N, K]"),
    TD_END,
};
/* clang-format on */

td_matmul_sizes td_matmul_sizes_of(const td_node *n)
{
    const td_matmul_attr *at = n->attr;
    const td_type *a = td_in_type(n, 0), *b = td_in_type(n, 1);
    return (td_matmul_sizes){ .m = a->dim[a->rank - (at->transpose_a ? 1 : 2)],
                              .k = a->dim[a->rank - (at->transpose_a ? 2 : 1)],
                              .n = b->dim[b->rank - (at->transpose_b ? 2 : 1)] };
}

static td_status check_bias(const td_node *n, int64_t columns)
{
    const td_type *bias = n->n_in > 2 ? td_in_type(n, 2) : NULL;
    if (bias && bias->dim[0] != columns)
        return td_error(TD_ESHAPE, "matmul: bias has %lld elements, wanted %lld",
                        (long long)bias->dim[0], (long long)columns);
    if (bias && bias->dtype != td_in_type(n, 0)->dtype && !td_is_wide_operand(n, 2))
        return td_error(TD_ESHAPE, "matmul: bias is %s, wanted %s", td_dtype_name(bias->dtype),
                        td_dtype_name(td_in_type(n, 0)->dtype));
    return TD_OK;
}

static td_status matmul_infer(const td_node *n, td_type *y)
{
    const td_type *a = td_in_type(n, 0), *b = td_in_type(n, 1);
    if (a->rank < 2 || b->rank < 2)
        return td_error(TD_ESHAPE, "matmul: operands have %d and %d dimensions, wanted at least 2",
                        a->rank, b->rank);
    if (a->dtype != b->dtype)
        return td_error(TD_ESHAPE, "matmul: operands are %s and %s, wanted one float type",
                        td_dtype_name(a->dtype), td_dtype_name(b->dtype));
    const td_matmul_sizes s = td_matmul_sizes_of(n);
    const td_matmul_attr *at = n->attr;
    const int64_t rows = b->dim[b->rank - (at->transpose_b ? 1 : 2)];
    if (s.k != rows)
        return td_error(TD_ESHAPE, "matmul: a has %lld columns, b %lld rows", (long long)s.k,
                        (long long)rows);
    TD_TRY(check_bias(n, s.n));
    *y = td_type_plain(a->rank >= b->rank ? a : b);
    for (int d = 0; d < y->rank - 2; d++) {
        const int i = d - (y->rank - a->rank), k = d - (y->rank - b->rank);
        const int64_t p = i < 0 ? 1 : a->dim[i], q = k < 0 ? 1 : b->dim[k];
        if (p != q && p != 1 && q != 1)
            return td_error(TD_ESHAPE, "matmul: batches of %lld and %lld matrices", (long long)p,
                            (long long)q);
        y->dim[d] = p > q ? p : q;
    }
    y->dim[y->rank - 2] = s.m;
    y->dim[y->rank - 1] = s.n;
    return TD_OK;
}

/* x y, summed where `like` is repeated */
static td_value *product(td_builder *b, td_value *x, bool tx, td_value *y, bool ty, td_value *like)
{
    const td_matmul_attr a = { tx, ty };
    td_value *z = td_emit(b, &td_op_matmul, &a, x, y);
    if (!td_build_ok(b) || td_type_same_shape(&z->type, &like->type))
        return z;
    return td_emit(b, &td_op_sum_to, NULL, z, like);
}

static void matmul_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    const td_matmul_attr *at = n->attr;
    const bool ta = at->transpose_a, tb = at->transpose_b;
    td_value *x = n->in[0], *y = n->in[1];
    dx[0] = ta ? product(b, y, tb, dy[0], true, x) : product(b, dy[0], false, y, !tb, x);
    dx[1] = tb ? product(b, dy[0], true, x, ta, y) : product(b, x, !ta, dy[0], false, y);
    if (n->n_in > 2)
        dx[2] = td_cast(b, td_emit(b, &td_op_sum_to, NULL, dy[0], n->in[2]),
                        td_in_type(n, 2)->dtype); /* the bias may be float32 with half operands */
}

static int64_t matmul_macs(const td_node *n)
{
    return td_mul_capped(td_type_count(&n->out[0]->type), td_matmul_sizes_of(n).k);
}

const td_op td_op_matmul = {
    .name = "matmul",
    .summary = "products of matrices",
    .n_in = 2,
    .n_in_max = 3,
    .n_out = 1,
    .in_rank = { 0, 0, 1 },
    .fields = matmul_fields,
    .attr_bytes = sizeof(td_matmul_attr),
    .tf_op = "BatchMatMulV2",
    .wide_in = 1u << 2,
    .layout = TD_LAYOUT_PLAIN,
    .infer = matmul_infer,
    .grad = matmul_grad,
    .macs = matmul_macs,
};

td_value *td_matmul(td_builder *b, td_value *x, bool transpose_x, td_value *y, bool transpose_y,
                    td_value *bias)
{
    const td_matmul_attr a = { transpose_x, transpose_y };
    return td_emit(b, &td_op_matmul, &a, x, y, bias);
}
