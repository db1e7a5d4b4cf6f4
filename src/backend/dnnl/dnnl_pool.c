/*
 * dnnl_pool.c -- max and average pooling and their gradients
 *
 * oneDNN's workspace for max pooling equals our second result: the position of the maximum in its
 * window as u8, in the result's layout.  The kernel rejects the node if the library would store
 * anything else.
 */
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

typedef struct {
    td_type x, y, where;
} pool_view;

static bool is_max(const td_node *n)
{
    return n->op == &td_op_max_pool2d || n->op == &td_op_max_pool2d_grad;
}

static bool is_forward(const td_node *n)
{
    return n->op == &td_op_max_pool2d || n->op == &td_op_avg_pool2d;
}

/* `where` is of max pooling only */
static pool_view view_of(const td_node *n)
{
    pool_view v = { .x = is_forward(n) ? *td_in_type(n, 0) : n->out[0]->type,
                    .y = is_forward(n) ? n->out[0]->type : *td_in_type(n, 0) };
    if (is_max(n))
        v.where = is_forward(n) ? n->out[1]->type : *td_in_type(n, 1);
    return v;
}

static dnnl_alg_kind_t algorithm_of(const td_node *n)
{
    if (is_max(n))
        return dnnl_pooling_max;
    return ((const td_pool_attr *)n->attr)->count_include_pad ? dnnl_pooling_avg_include_padding
                                                              : dnnl_pooling_avg_exclude_padding;
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
    dnnl_dims_t strides = { a->stride, a->stride }, kernel = { a->kernel, td_pool_width(a) };
    dnnl_dims_t dilation = { 0, 0 }, left = { a->pad, a->pad }, right;
    for (int d = 0; d < 2; d++) /* only the right padding that a window covers */
        right[d] = (v.y.dim[2 + d] - 1) * a->stride + kernel[d] - v.x.dim[2 + d] - a->pad;

    const dnnl_alg_kind_t algorithm = algorithm_of(n);
    dnnl_primitive_desc_t *forward = is_forward(n) ? pd : hint;
    dnnl_status_t ds = dnnl_pooling_forward_primitive_desc_create(
        forward, engine, dnnl_forward_training, algorithm, x, y, strides, kernel, dilation, left,
        right, forward == pd ? attr : NULL);
    if (ds != dnnl_success || forward == pd)
        return ds;
    return dnnl_pooling_backward_primitive_desc_create(pd, engine, algorithm, x, y, strides, kernel,
                                                       dilation, left, right, *hint, attr);
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
        st = td_dnnl_check_primitive(create(n, engine, x, y, attr, &hint, pd), pd);
    if (st == TD_OK && is_max(n))
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

/* oneDNN adds the windows of a pixel one by one in the image's type */
static td_status average_grad_accepts(const td_node *n)
{
    const td_pool_attr *a = n->attr;
    if (td_dtype_is_half(n->out[0]->type.dtype) &&
        (a->stride < a->kernel || a->stride < td_pool_width(a)))
        return td_error(TD_ENOKERNEL, "windows that overlap are added in %s",
                        td_dtype_name(n->out[0]->type.dtype));
    return pool_accepts(n);
}

/* max pooling has a workspace, too */
static td_status forward_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, 1 },
        { DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, 2 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, is_max(n) ? 3 : 2, binds, out);
}

static td_status backward_prepare(const td_node *n, td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    const td_dnnl_bind binds[] = {
        { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0 },
        { DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, n->n_in },
        { DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, 1 },
    };
    TD_TRY(make_pd(n, &pd));
    return td_dnnl_prepare(pd, n, is_max(n) ? 3 : 2, binds, out);
}

/* --- NaN -------------------------------------------------------------------------------------- */

/*
 * oneDNN's maximum ignores NaN.  The reference's maximum of a window with NaN is its first NaN, so
 * that NaN propagates through the network; this code recomputes windows that contain NaN.  The
 * search for NaN reads x once more, right after oneDNN did.
 */
static bool has_nan(const td_type *x, const void *data)
{
    const int64_t n = td_type_bytes(x) / (int64_t)td_dtype_bytes(x->dtype);
    const uint32_t *word = data;
    const uint16_t *half = data, largest = x->dtype == TD_DT_F16 ? 0x7c00 : 0x7f80;
    unsigned found = 0;
    if (x->dtype == TD_DT_F32) {
#pragma omp parallel for simd reduction(| : found)
        for (int64_t i = 0; i < n; i++)
            found |= (word[i] & 0x7fffffff) > 0x7f800000;
    } else {
#pragma omp parallel for simd reduction(| : found)
        for (int64_t i = 0; i < n; i++)
            found |= (half[i] & 0x7fff) > largest;
    }
    return found != 0;
}

typedef struct {
    const td_pool_attr *attr;
    const pool_view *v;
    td_blocking x, y, where; /* to compute elements' offsets */
    const char *from;
    char *to;
    uint8_t *winner;
} repair;

static bool is_nan_at(const repair *r, int64_t at)
{
    const td_dtype dtype = r->v->x.dtype;
    uint32_t word;
    uint16_t half;
    if (dtype == TD_DT_F32) {
        memcpy(&word, r->from + 4 * at, sizeof word);
        return (word & 0x7fffffff) > 0x7f800000;
    }
    memcpy(&half, r->from + 2 * at, sizeof half);
    return (half & 0x7fff) > (dtype == TD_DT_F16 ? 0x7c00 : 0x7f80);
}

/* recomputes the result at index at[] = [n, c, p, q] from its window */
static void repair_window(const repair *r, const int64_t *at)
{
    const td_pool_attr *a = r->attr;
    const size_t each = td_dtype_bytes(r->v->x.dtype);
    const int width = td_pool_width(a);
    for (int i = 0; i < a->kernel * width; i++) {
        const int64_t h = at[2] * a->stride - a->pad + i / width;
        const int64_t w = at[3] * a->stride - a->pad + i % width;
        if (h < 0 || w < 0 || h >= r->v->x.dim[2] || w >= r->v->x.dim[3])
            continue;
        const int64_t x = td_blocking_offset(&r->x, &r->v->x, (int64_t[]){ at[0], at[1], h, w });
        if (!is_nan_at(r, x))
            continue;
        const int64_t y = td_blocking_offset(&r->y, &r->v->y, at);
        memcpy(r->to + (size_t)y * each, r->from + (size_t)x * each, each);
        r->winner[td_blocking_offset(&r->where, &r->v->where, at)] = (uint8_t)i;
        return;
    }
}

static td_status forward_run(const td_prepared *p, void *const *args)
{
    const pool_view v = view_of(p->node);
    repair r = {
        .attr = p->node->attr, .v = &v, .from = args[0], .to = args[1], .winner = args[2]
    };
    TD_TRY(td_dnnl_run(p, args));
    if (!has_nan(&v.x, args[0]))
        return TD_OK;
    TD_CHECK(td_type_blocking(&v.x, &r.x) && td_type_blocking(&v.y, &r.y) &&
             td_type_blocking(&v.where, &r.where));
    const int64_t *dim = v.y.dim, n = td_type_count(&v.y);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        repair_window(&r,
                      (int64_t[]){ i / (dim[1] * dim[2] * dim[3]), i / (dim[2] * dim[3]) % dim[1],
                                   i / dim[3] % dim[2], i % dim[3] });
    return TD_OK;
}

const td_kernel td_dnnl_max_pool = {
    .name = "dnnl_max_pool",
    .op = &td_op_max_pool2d,
    .accepts = pool_accepts,
    .prepare = forward_prepare,
    .run = forward_run,
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

const td_kernel td_dnnl_avg_pool = {
    .name = "dnnl_avg_pool",
    .op = &td_op_avg_pool2d,
    .accepts = pool_accepts,
    .prepare = forward_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_avg_pool_grad = {
    .name = "dnnl_avg_pool_grad",
    .op = &td_op_avg_pool2d_grad,
    .accepts = average_grad_accepts,
    .prepare = backward_prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
