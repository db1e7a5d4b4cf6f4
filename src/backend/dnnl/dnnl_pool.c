/*
 * dnnl_pool.c -- max pooling and its gradient
 *
 * oneDNN's workspace for max pooling is what our second result is: the winner's place in its
 * window as u8, in the result's layout.  Where the library would keep anything else the kernel
 * refuses.
 */
#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

typedef struct {
    td_type x, y, where;
} pool_view;

static pool_view view_of(const td_node *n)
{
    if (n->op == &td_op_max_pool2d)
        return (pool_view){ *td_in_type(n, 0), n->out[0]->type, n->out[1]->type };
    return (pool_view){ n->out[0]->type, *td_in_type(n, 0), *td_in_type(n, 1) };
}

static td_status same_workspace(const_dnnl_primitive_desc_t pd, const td_type *where)
{
    dnnl_memory_desc_t ours;
    const_dnnl_memory_desc_t theirs = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    TD_TRY(td_dnnl_md(where, 1, false, &ours));
    bool same = theirs && dnnl_memory_desc_equal(ours, theirs);
    dnnl_memory_desc_destroy(ours);
    return same ? TD_OK : td_error(TD_ENOKERNEL, "oneDNN keeps another kind of index");
}

static dnnl_status_t create(const td_node *n, dnnl_engine_t engine, dnnl_memory_desc_t x,
                            dnnl_memory_desc_t y, dnnl_primitive_attr_t attr,
                            dnnl_primitive_desc_t *hint, dnnl_primitive_desc_t *pd)
{
    const td_pool_attr *a = n->attr;
    pool_view v = view_of(n);
    dnnl_dims_t strides = { a->stride, a->stride }, kernel = { a->kernel, a->kernel };
    dnnl_dims_t dilation = { 0, 0 }, left = { a->pad, a->pad }, right;
    for (int d = 0; d < 2; d++) /* what of the right padding the windows really reach */
        right[d] = (v.y.dim[2 + d] - 1) * a->stride + a->kernel - v.x.dim[2 + d] - a->pad;

    dnnl_primitive_desc_t *forward = n->op == &td_op_max_pool2d ? pd : hint;
    dnnl_status_t ds = dnnl_pooling_forward_primitive_desc_create(
        forward, engine, dnnl_forward_training, dnnl_pooling_max, x, y, strides, kernel, dilation,
        left, right, forward == pd ? attr : NULL);
    if (ds != dnnl_success || forward == pd)
        return ds;
    return dnnl_pooling_backward_primitive_desc_create(pd, engine, dnnl_pooling_max, x, y, strides,
                                                       kernel, dilation, left, right, *hint, attr);
}

static td_status make_pd(const td_node *n, dnnl_primitive_desc_t *pd)
{
    pool_view v = view_of(n);
    dnnl_memory_desc_t x = NULL, y = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_engine_t engine = NULL;
    *pd = NULL;
    td_status st = td_dnnl_engine(&engine, NULL);
    if (st == TD_OK)
        st = td_dnnl_md(&v.x, 1, false, &x);
    if (st == TD_OK)
        st = td_dnnl_md(&v.y, 1, false, &y);
    if (st == TD_OK)
        st = td_dnnl_attr(&attr);
    if (st == TD_OK)
        st = td_dnnl_judge(create(n, engine, x, y, attr, &hint, pd), pd);
    if (st == TD_OK)
        st = same_workspace(*pd, &v.where);
    dnnl_memory_desc_destroy(x);
    dnnl_memory_desc_destroy(y);
    dnnl_primitive_attr_destroy(attr);
    dnnl_primitive_desc_destroy(hint);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

static td_status pool_accepts(const td_node *n)
{
    dnnl_primitive_desc_t pd;
    TD_TRY(make_pd(n, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

static td_status forward_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, 1 },
        { DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, 2 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, 3, binds, out);
}

static td_status backward_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0 },
        { DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, 1 },
        { DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, 3 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, 3, binds, out);
}

const td_kernel td_dnnl_max_pool = {
    .name = "dnnl_max_pool",
    .op = &td_op_max_pool2d,
    .accepts = pool_accepts,
    .prepare = forward_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_max_pool_grad = {
    .name = "dnnl_max_pool_grad",
    .op = &td_op_max_pool2d_grad,
    .accepts = pool_accepts,
    .prepare = backward_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
