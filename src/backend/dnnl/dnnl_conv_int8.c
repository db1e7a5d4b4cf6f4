/*
 * dnnl_conv_int8.c -- convolutions of 8-bit integers (conv2d_int8)
 *
 *     oneDNN:  y = round(f(x_scale scale[k] sum + bias[k] + residual_scale y) / y_scale)
 *
 * The residual is a "sum" post-operation, as in dnnl_conv.c; the scales are memory that oneDNN
 * reads during the run.  Images are channels last, and a filter has groups of four input channels,
 * which one instruction multiplies and adds.
 *
 * Kernels without such instructions (VNNI, AMX) add pairs of products in 16 bits, which saturate
 * unless the filter has 7 bits, |w| <= 64: 2 * 255 * 64 < 2^15.  Only then are they accepted.
 * Source: oneDNN, "Nuances of int8 computations".  Signed images are left out: for them oneDNN
 * appends a correction to the filter, which a layout cannot express; pass `quantize` shifts them.
 */
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"

typedef struct {
    dnnl_memory_desc_t x, w, y, bias;
    dnnl_primitive_attr_t attr;
} int8_parts;

static void parts_release(int8_parts *p)
{
    dnnl_memory_desc_destroy(p->x);
    dnnl_memory_desc_destroy(p->w);
    dnnl_memory_desc_destroy(p->y);
    dnnl_memory_desc_destroy(p->bias);
    dnnl_primitive_attr_destroy(p->attr);
}

static td_status append_post_ops(const td_node *n, dnnl_post_ops_t ops)
{
    const td_conv_int8_attr *a = n->attr;
    if (n->n_in > 4) {
        const td_dtype d = td_in_type(n, 4)->dtype;
        dnnl_data_type_t dtype;
        if (!td_dnnl_dtype(d, &dtype))
            return td_error(TD_ENOKERNEL, "the residual is %s", td_dtype_name(d));
        DNNL_TRY(
            dnnl_post_ops_append_sum(ops, d == TD_DT_F32 ? 1 : (float)a->residual_scale, 0, dtype));
    }
    if (a->relu && a->relu6)
        DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_clip, 0, 6));
    else if (a->relu)
        DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0));
    return td_dnnl_append_act(ops, a->act);
}

static td_status set_scales(const td_node *n, dnnl_primitive_attr_t attr)
{
    const bool is_grouped = ((const td_conv_int8_attr *)n->attr)->groups > 1;
    DNNL_TRY(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_SRC, 0));
    DNNL_TRY(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, is_grouped ? 3 : 1));
    if (n->out[0]->type.dtype != TD_DT_F32)
        DNNL_TRY(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_DST, 0));
    return TD_OK;
}

static td_status set_attr(const td_node *n, dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops;
    TD_TRY(set_scales(n, attr));
    DNNL_TRY(dnnl_post_ops_create(&ops));
    td_status st = append_post_ops(n, ops);
    dnnl_status_t ds = st == TD_OK ? dnnl_primitive_attr_set_post_ops(attr, ops) : dnnl_success;
    dnnl_post_ops_destroy(ops);
    TD_TRY(st);
    DNNL_TRY(ds);
    return TD_OK;
}

/* an image of one pixel is the same in plain order and channels last; oneDNN needs the latter's
   name (see dnnl_conv.c) */
static td_type image_type(const td_type *t)
{
    td_type named = *t;
    if (td_type_is_plain(t) && t->dim[2] == 1 && t->dim[3] == 1)
        memcpy(named.layout, "acdb", sizeof "acdb");
    return named;
}

static td_status parts_make(const td_node *n, bool any, int8_parts *p)
{
    const int groups = ((const td_conv_int8_attr *)n->attr)->groups;
    const td_type x = image_type(td_in_type(n, 0)), y = image_type(&n->out[0]->type);
    TD_TRY(td_dnnl_md(&x, 1, any, &p->x));
    TD_TRY(td_dnnl_md(td_in_type(n, 1), groups, any, &p->w));
    TD_TRY(td_dnnl_md(&y, 1, any, &p->y));
    TD_TRY(td_dnnl_md(td_in_type(n, 3), 1, false, &p->bias));
    TD_TRY(td_dnnl_attr(&p->attr));
    return set_attr(n, p->attr);
}

static dnnl_status_t create(const td_node *n, const int8_parts *p, dnnl_primitive_desc_t *pd)
{
    const td_conv_int8_attr *a = n->attr;
    dnnl_engine_t engine = NULL;
    if (td_dnnl_engine(&engine, NULL) != TD_OK)
        return dnnl_runtime_error;
    dnnl_dims_t strides = { a->stride, a->stride }, left = { a->pad, a->pad };
    dnnl_dims_t right = { a->pad + a->pad_extra, a->pad + a->pad_extra };
    dnnl_dims_t dilates = { a->dilation - 1, a->dilation - 1 };
    return dnnl_convolution_forward_primitive_desc_create(
        pd, engine, dnnl_forward_inference, dnnl_convolution_direct, p->x, p->w, p->bias, p->y,
        strides, dilates, left, right, p->attr);
}

/* kernels without these instructions saturate if the filter has more than 7 bits */
static td_status check_exact(const td_node *n, dnnl_primitive_desc_t pd)
{
    const bool is_narrow = ((const td_conv_int8_attr *)n->attr)->weight_max <= TD_INT8_NARROW;
    const char *impl = "";
    DNNL_TRY(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl));
    const bool has_pairs = !strstr(impl, "vnni") && !strstr(impl, "amx");
    if (has_pairs && !(is_narrow && td_text_starts(impl, "jit")))
        return td_error(TD_ENOKERNEL, "%s adds products in 16 bits, which saturate (no VNNI)",
                        impl);
    return TD_OK;
}

/* any: oneDNN chooses the layouts */
static td_status make_pd(const td_node *n, bool any, dnnl_primitive_desc_t *pd)
{
    int8_parts p = { 0 };
    *pd = NULL;
    if (td_in_type(n, 0)->dtype != TD_DT_U8)
        return td_error(TD_ENOKERNEL, "the input is %s, wanted u8",
                        td_dtype_name(td_in_type(n, 0)->dtype));
    td_status st = parts_make(n, any, &p);
    if (st == TD_OK)
        st = td_dnnl_check_primitive(create(n, &p, pd), pd);
    if (st == TD_OK)
        st = check_exact(n, *pd);
    parts_release(&p);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

static td_status accepts(const td_node *n)
{
    dnnl_primitive_desc_t pd;
    if (n->n_in > 4 && strcmp(td_in_type(n, 4)->layout, n->out[0]->type.layout) != 0)
        return td_error(TD_ENOKERNEL, "the residual has another layout");
    TD_TRY(make_pd(n, false, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

bool td_dnnl_conv_int8_preferred_layout(const td_node *n, td_node_layouts *out)
{
    dnnl_primitive_desc_t pd;
    *out = (td_node_layouts){ 0 };
    if (n->op != &td_op_conv2d_int8 || make_pd(n, true, &pd) != TD_OK)
        return false;
    const int groups = ((const td_conv_int8_attr *)n->attr)->groups;
    const bool ok =
        td_dnnl_layout(dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), 1, out->in[0]) &&
        td_dnnl_layout(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), groups,
                       out->in[1]) &&
        td_dnnl_layout(dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), 1, out->out);
    memcpy(out->in[4], out->out, sizeof out->out);
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_prepared conv;
    float x_scale, y_scale;
} int8_state;

static void release(td_prepared *p)
{
    int8_state *s = p->state;
    if (!s)
        return;
    td_dnnl_release(&s->conv);
    td_free(s);
    p->state = NULL;
}

static td_status add_scales(const td_node *n, int8_state *s)
{
    td_type each = td_type_1d(TD_DT_F32, 1);
    TD_TRY(td_dnnl_add_arg(&s->conv, DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, &each, 0, &s->x_scale));
    TD_TRY(td_dnnl_add_arg(&s->conv, DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, td_in_type(n, 2), 2,
                           NULL));
    if (n->out[0]->type.dtype == TD_DT_F32)
        return TD_OK;
    return td_dnnl_add_arg(&s->conv, DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, &each, 0, &s->y_scale);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dnnl_bind binds[] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, n->n_in },
        { DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 3 },
    };
    dnnl_primitive_desc_t pd;
    int8_state *s = TD_NEW(int8_state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->x_scale = (float)a->x_scale;
    s->y_scale = (float)a->y_scale;
    td_status st = make_pd(n, false, &pd);
    if (st == TD_OK)
        st = td_dnnl_prepare(pd, n, 4, binds, &s->conv);
    if (st == TD_OK)
        st = add_scales(n, s);
    out->scratch_bytes = s->conv.scratch_bytes;
    memcpy(out->impl, s->conv.impl, sizeof out->impl);
    if (st != TD_OK)
        release(out);
    return st;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const int8_state *s = p->state;
    if (n->n_in > 4 && args[4] != args[5])
        memcpy(args[5], args[4], (size_t)td_type_bytes(&n->out[0]->type));
    return td_dnnl_run(&s->conv, args);
}

const td_kernel td_dnnl_conv_int8 = {
    .name = "dnnl_conv_int8",
    .op = &td_op_conv2d_int8,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = release,
};
