/*
 * dnnl_reorder.c -- the same values in another memory layout
 */
#include <stdlib.h>

#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

/* groups a filter's layout speaks of; 1 when it speaks of none */
static int groups_of(const td_type *t)
{
    char *end;
    long g = strtol(t->layout, &end, 10);
    return end != t->layout && *end == 'g' ? (int)g : 1;
}

static td_status make_pd(const td_node *n, dnnl_primitive_desc_t *pd)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    int gx = groups_of(x), gy = groups_of(y), groups = gx > gy ? gx : gy;
    dnnl_memory_desc_t src = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = NULL;
    *pd = NULL;
    td_status st = td_dnnl_engine(&engine, NULL);
    if (st == TD_OK && ((gx == 1 && !td_type_is_plain(x)) || (gy == 1 && !td_type_is_plain(y))) &&
        groups > 1)
        st = td_error(TD_ENOKERNEL, "layouts with and without groups");
    if (st == TD_OK)
        st = td_dnnl_md(x, groups, false, &src);
    if (st == TD_OK)
        st = td_dnnl_md(y, groups, false, &dst);
    if (st == TD_OK)
        st = td_dnnl_attr(&attr);
    if (st == TD_OK)
        st = td_dnnl_judge(dnnl_reorder_primitive_desc_create(pd, src, engine, dst, engine, attr),
                           pd);
    dnnl_memory_desc_destroy(src);
    dnnl_memory_desc_destroy(dst);
    dnnl_primitive_attr_destroy(attr);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

static td_status reorder_accepts(const td_node *n)
{
    dnnl_primitive_desc_t pd;
    TD_TRY(make_pd(n, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

static td_status reorder_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_FROM, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_TO, dnnl_query_dst_md, 0, 1 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, 2, binds, out);
}

const td_kernel td_dnnl_reorder = {
    .name = "dnnl_reorder",
    .op = &td_op_reorder,
    .accepts = reorder_accepts,
    .prepare = reorder_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
