/*
 * dnnl_matmul.c -- products of batches of matrices
 *
 * All operands are described with y's rank; a transposed operand is the same memory with its last
 * two strides exchanged.  oneDNN repeats batches of 1.
 */
#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

/* t as one of `rank` dimensions, plain, or with the last two exchanged */
static td_status describe(const td_type *t, int rank, bool is_transposed, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims, strides;
    dnnl_data_type_t dtype;
    int64_t step = 1;
    if (!td_dnnl_dtype(t->dtype, &dtype))
        return td_error(TD_ENOKERNEL, "oneDNN is not used for %s", td_dtype_name(t->dtype));
    for (int d = rank - 1; d >= 0; d--) {
        const int k = d - (rank - t->rank);
        dims[d] = k < 0 ? 1 : t->dim[k];
        strides[d] = step;
        step *= dims[d];
    }
    if (is_transposed) {
        const int64_t rows = dims[rank - 2];
        strides[rank - 1] = strides[rank - 2];
        strides[rank - 2] = 1;
        dims[rank - 2] = dims[rank - 1];
        dims[rank - 1] = rows;
    }
    DNNL_TRY(dnnl_memory_desc_create_with_strides(out, rank, dims, dtype, strides));
    return TD_OK;
}

static td_status factors(const td_node *n, dnnl_memory_desc_t md[4])
{
    const td_matmul_attr *at = n->attr;
    const int rank = n->out[0]->type.rank;
    TD_TRY(describe(td_in_type(n, 0), rank, at->transpose_a, &md[0]));
    TD_TRY(describe(td_in_type(n, 1), rank, at->transpose_b, &md[1]));
    TD_TRY(describe(&n->out[0]->type, rank, false, &md[2]));
    if (n->n_in > 2)
        TD_TRY(describe(td_in_type(n, 2), rank, false, &md[3]));
    return TD_OK;
}

static td_status make_pd(const td_node *n, dnnl_primitive_desc_t *pd)
{
    dnnl_memory_desc_t md[4] = { 0 };
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = NULL;
    *pd = NULL;
    td_status st = td_dnnl_engine(&engine, NULL);
    for (int i = 0; i < n->n_in && st == TD_OK; i++)
        if (!td_type_is_plain(td_in_type(n, i)))
            st = td_error(TD_ENOKERNEL, "an operand is not in plain order");
    if (st == TD_OK)
        st = factors(n, md);
    if (st == TD_OK)
        st = td_dnnl_attr(&attr);
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

static td_status accepts(const td_node *n)
{
    dnnl_primitive_desc_t pd;
    TD_TRY(make_pd(n, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    const td_dnnl_bind binds[4] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, n->n_in },
        { DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, n->n_in > 2 ? 4 : 3, binds, out);
}

const td_kernel td_dnnl_matmul = {
    .name = "dnnl_matmul",
    .op = &td_op_matmul,
    .accepts = accepts,
    .prepare = prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
