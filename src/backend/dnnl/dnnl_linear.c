/*
 * dnnl_linear.c -- fully connected layers as matrix products on plain memory
 *
 *     y[N,K]  = x[N,C] wT[C,K] + bias[1,K]      dx[N,C] = dy[N,K] w[K,C]
 *     dw[K,C] = dyT[K,N] x[N,C]
 *
 * A transposed operand is the same memory with its strides exchanged.
 *
 * The weight of linear_fused may be in the layout that oneDNN chooses, so that the product does not
 * copy its panels in every run.  Gelu and the residual are post-operations.
 */
#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

static td_status plain_only(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!td_type_is_plain(td_in_type(n, i)) && !(n->op == &td_op_linear_fused && i == 1))
            return td_error(TD_ENOKERNEL, "an operand is not in plain order");
    return TD_OK;
}

/* the three descriptors of a product; which operand is transposed depends on the op */
static td_status factors(const td_node *n, bool any_w, dnnl_memory_desc_t md[4])
{
    const td_type *a = td_in_type(n, 0), *b = td_in_type(n, 1);
    if (n->op == &td_op_linear_grad_w)
        TD_TRY(td_dnnl_md_transposed(a, false, &md[0]));
    else
        TD_TRY(td_dnnl_md(a, 1, false, &md[0]));
    if (n->op == &td_op_linear || n->op == &td_op_linear_fused)
        TD_TRY(td_dnnl_md_transposed(b, any_w, &md[1]));
    else
        TD_TRY(td_dnnl_md(b, 1, false, &md[1]));
    TD_TRY(td_dnnl_md(&n->out[0]->type, 1, false, &md[2]));
    if (n->n_in > 2) {
        td_type row = td_type_2d(td_in_type(n, 2)->dtype, 1, td_in_type(n, 2)->dim[0]);
        TD_TRY(td_dnnl_md(&row, 1, false, &md[3]));
    }
    return TD_OK;
}

static td_status append_all(dnnl_post_ops_t ops, const td_node *n, const_dnnl_memory_desc_t y)
{
    if (((const td_linear_fused_attr *)n->attr)->gelu)
        DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_gelu_erf, 0, 0));
    if (n->n_in > 3)
        DNNL_TRY(dnnl_post_ops_append_binary(ops, dnnl_binary_add, y));
    return TD_OK;
}

static td_status add_post_ops(dnnl_primitive_attr_t attr, const td_node *n,
                              const_dnnl_memory_desc_t y)
{
    dnnl_post_ops_t ops;
    if (n->op != &td_op_linear_fused)
        return TD_OK;
    DNNL_TRY(dnnl_post_ops_create(&ops));
    td_status st = append_all(ops, n, y);
    dnnl_status_t ds = st == TD_OK ? dnnl_primitive_attr_set_post_ops(attr, ops) : dnnl_success;
    dnnl_post_ops_destroy(ops);
    TD_TRY(st);
    DNNL_TRY(ds);
    return TD_OK;
}

static td_status make_pd(const td_node *n, bool any_w, dnnl_primitive_desc_t *pd)
{
    dnnl_memory_desc_t md[4] = { 0 };
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = NULL;
    *pd = NULL;
    td_status st = plain_only(n);
    if (st == TD_OK)
        st = td_dnnl_engine(&engine, NULL);
    if (st == TD_OK)
        st = factors(n, any_w, md);
    if (st == TD_OK)
        st = td_dnnl_attr(&attr);
    if (st == TD_OK)
        st = add_post_ops(attr, n, md[2]);
    if (st == TD_OK)
        st = td_dnnl_check_primitive(
            dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], md[3], md[2], attr), pd);
    for (int i = 0; i < 4; i++)
        dnnl_memory_desc_destroy(md[i]);
    dnnl_primitive_attr_destroy(attr);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

/* a weight of bf16 with rows of float32 is left to native_linear */
static td_status check_dtypes(const td_node *n)
{
    const td_dtype a = td_in_type(n, 0)->dtype, b = td_in_type(n, 1)->dtype;
    if (a != b)
        return td_error(TD_ENOKERNEL, "the factors are %s and %s", td_dtype_name(a),
                        td_dtype_name(b));
    return TD_OK;
}

static td_status linear_accepts(const td_node *n)
{
    dnnl_primitive_desc_t pd;
    if (td_is_tf32(n))
        return td_error(TD_ENOKERNEL, "tf32 is set");
    TD_TRY(check_dtypes(n));
    TD_TRY(make_pd(n, false, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

static td_status linear_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    td_dnnl_bind binds[4] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, n->n_in },
        { DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2 },
    };
    TD_TRY(make_pd(n, false, &pd));
    return td_dnnl_prepare(pd, n, n->n_in > 2 ? 4 : 3, binds, out);
}

static td_status fused_prepare(const td_node *n, td_prepared *out)
{
    const int residual =
        DNNL_ARG_ATTR_MULTIPLE_POST_OP(((const td_linear_fused_attr *)n->attr)->gelu ? 1 : 0) |
        DNNL_ARG_SRC_1;
    dnnl_primitive_desc_t pd;
    const td_dnnl_bind binds[5] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, n->n_in },
        { DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2 },
        { residual, dnnl_query_dst_md, 0, 3 },
    };
    TD_TRY(make_pd(n, false, &pd));
    return td_dnnl_prepare(pd, n, n->n_in + 1, binds, out);
}

bool td_dnnl_linear_preferred_layout(const td_node *n, td_node_layouts *out)
{
    dnnl_primitive_desc_t pd;
    *out = (td_node_layouts){ 0 };
    if (n->op != &td_op_linear_fused || check_dtypes(n) != TD_OK || make_pd(n, true, &pd) != TD_OK)
        return false;
    const bool ok = td_dnnl_layout_transposed(
        dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), out->in[1]);
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

const td_kernel td_dnnl_linear_fused = {
    .name = "dnnl_linear_fused",
    .op = &td_op_linear_fused,
    .accepts = linear_accepts,
    .prepare = fused_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_linear = {
    .name = "dnnl_linear",
    .op = &td_op_linear,
    .accepts = linear_accepts,
    .prepare = linear_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_linear_grad_x = {
    .name = "dnnl_linear_grad_x",
    .op = &td_op_linear_grad_x,
    .accepts = linear_accepts,
    .prepare = linear_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_linear_grad_w = {
    .name = "dnnl_linear_grad_w",
    .op = &td_op_linear_grad_w,
    .accepts = linear_accepts,
    .prepare = linear_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
