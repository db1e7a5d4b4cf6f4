/*
 * dnnl_conv.c -- convolutions, their gradients, and the fused form for inference
 *
 * float32 and bf16; bf16 sums are kept in float32, the bias may be float32, and a filter's gradient
 * is float32 if the node has `wide`.
 *
 * The four kernels differ in which of x, w, y are operands; a conv_view names the three types.  The
 * residual of the fused form is a "sum" post-operation, which adds to the content of the result's
 * memory: the planner places the result over the residual; where it cannot, run copies first.
 */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "ops/ops.h"
#include "tandem/program.h"

typedef struct {
    td_type x, w, y;
    bool has_bias, has_residual, relu, relu6;
    int act; /* td_conv_act */
    td_type bias;
} conv_view;

static conv_view view_of(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    conv_view v = { 0 };
    if (n->op == &td_op_conv2d_grad_x) {
        v.y = *td_in_type(n, 0);
        v.w = *td_in_type(n, 1);
        v.x = n->out[0]->type;
    } else if (n->op == &td_op_conv2d_grad_w) {
        v.y = *td_in_type(n, 0);
        v.x = *td_in_type(n, 1);
        v.w = n->out[0]->type;
    } else {
        v.x = *td_in_type(n, 0);
        v.w = *td_in_type(n, 1);
        v.y = n->out[0]->type;
    }
    if (n->op == &td_op_conv2d_fused) {
        v.has_bias = n->n_in > 2;
        v.has_residual = n->n_in > 3;
        v.relu = a->relu;
        v.relu6 = a->relu && a->relu6;
        v.act = a->act;
        if (v.has_bias)
            v.bias = *td_in_type(n, 2);
    }
    return v;
}

/* --- descriptors ------------------------------------------------------------------------------ */

typedef struct {
    dnnl_memory_desc_t x, w, y, bias;
    dnnl_memory_desc_t hint_w; /* the filter in `hint` */
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint; /* the forward convolution of a gradient */
} conv_parts;

static void parts_release(conv_parts *p)
{
    dnnl_primitive_desc_destroy(p->hint);
    dnnl_primitive_attr_destroy(p->attr);
    dnnl_memory_desc_destroy(p->x);
    dnnl_memory_desc_destroy(p->w);
    dnnl_memory_desc_destroy(p->y);
    dnnl_memory_desc_destroy(p->bias);
    dnnl_memory_desc_destroy(p->hint_w);
}

/*
 * oneDNN's relu and clip use the processor's maximum and minimum, which replace NaN by the bound: a
 * network that diverged would give finite results.  These forms keep NaN.
 *
 * hardswish is x * min(max(alpha x + beta, 0), 1), and NaN times anything is NaN.
 *
 *   relu    hardswish with the largest alpha and no beta: the factor is 1 from 2.9e-39 up and 0
 *           below zero.  Zeros may be negative, and an infinity below zero becomes NaN.
 *   relu6   relu; + tiny, which changes only zeros; hardswish with the factor 0 from six on and 1
 *           below, so that zero now means "at least six"; - tiny/2, which makes those the only
 *           negative values; a leaky relu whose slope turns -tiny/2 into six; - tiny/2, which
 *           restores the zeros (gradients compare with them).  An infinity becomes NaN.
 */
static td_status append_relu(dnnl_post_ops_t ops)
{
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_hardswish, FLT_MAX, 0));
    return TD_OK;
}

static td_status append_clip_at_6(dnnl_post_ops_t ops)
{
    const float tiny = 0x1p-90F, steep = 0x1p30F;
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, 1, tiny));
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_hardswish, -steep, 6 * steep));
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, 1, -tiny / 2));
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, -6 / (tiny / 2), 0));
    DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, 1, -tiny / 2));
    return TD_OK;
}

td_status td_dnnl_append_act(dnnl_post_ops_t ops, int act)
{
    if (act == TD_CONV_SILU)
        DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_swish, 1, 0));
    if (act == TD_CONV_HARDSWISH)
        DNNL_TRY(dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_hardswish, 1.0F / 6, 0.5F));
    return TD_OK;
}

static td_status append_all(dnnl_post_ops_t ops, const conv_view *v)
{
    if (v->has_residual)
        DNNL_TRY(dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef));
    if (v->relu)
        TD_TRY(append_relu(ops));
    TD_TRY(td_dnnl_append_act(ops, v->act));
    return v->relu6 ? append_clip_at_6(ops) : TD_OK;
}

static td_status add_post_ops(dnnl_primitive_attr_t attr, const conv_view *v)
{
    dnnl_post_ops_t ops;
    DNNL_TRY(dnnl_post_ops_create(&ops));
    td_status st = append_all(ops, v);
    dnnl_status_t ds = st == TD_OK ? dnnl_primitive_attr_set_post_ops(attr, ops) : dnnl_success;
    dnnl_post_ops_destroy(ops);
    TD_TRY(st);
    DNNL_TRY(ds);
    return TD_OK;
}

/* the layouts that oneDNN may choose */
typedef struct {
    bool x, w, y;
} free_layouts;

static td_status parts_make(const td_node *n, const conv_view *v, free_layouts any, conv_parts *p)
{
    int groups = ((const td_conv_attr *)n->attr)->groups;
    TD_TRY(td_dnnl_md(&v->x, 1, any.x, &p->x));
    TD_TRY(td_dnnl_md(&v->w, groups, any.w, &p->w));
    TD_TRY(td_dnnl_md(&v->y, 1, any.y, &p->y));
    if (v->has_bias)
        TD_TRY(td_dnnl_md(&v->bias, 1, false, &p->bias));
    if (v->w.dtype != v->x.dtype) { /* a float32 gradient of a half convolution */
        const td_type half = td_type_as(&v->w, v->x.dtype);
        TD_TRY(td_dnnl_md(&half, groups, true, &p->hint_w));
    }
    TD_TRY(td_dnnl_attr(&p->attr));
    return v->has_residual || v->relu || v->act ? add_post_ops(p->attr, v) : TD_OK;
}

static dnnl_status_t create(const td_node *n, conv_parts *p, dnnl_primitive_desc_t *pd)
{
    const td_conv_attr *a = n->attr;
    dnnl_engine_t engine = NULL;
    if (td_dnnl_engine(&engine, NULL) != TD_OK)
        return dnnl_runtime_error;
    dnnl_dims_t strides = { a->stride, a->stride }, left = { a->pad, a->pad };
    dnnl_dims_t right = { a->pad + a->pad_extra, a->pad + a->pad_extra };
    dnnl_dims_t dilates = { a->dilation - 1, a->dilation - 1 };
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    bool is_grad_x = n->op == &td_op_conv2d_grad_x, is_grad_w = n->op == &td_op_conv2d_grad_w;

    if (!is_grad_x && !is_grad_w)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, n->op == &td_op_conv2d ? dnnl_forward_training : dnnl_forward_inference,
            alg, p->x, p->w, p->bias, p->y, strides, dilates, left, right, p->attr);
    dnnl_status_t ds = dnnl_convolution_forward_primitive_desc_create(
        &p->hint, engine, dnnl_forward_training, alg, p->x, p->hint_w ? p->hint_w : p->w, NULL,
        p->y, strides, dilates, left, right, NULL);
    if (ds != dnnl_success)
        return ds;
    if (is_grad_x)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, alg, p->x, p->w, p->y, strides, dilates, left, right, p->hint, p->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, alg, p->x, p->w, NULL, p->y, strides, dilates, left, right, p->hint, p->attr);
}

/*
 * An image of one pixel has the same memory in plain order and in channels last.  Our notation
 * calls it plain; oneDNN has fast kernels only if input and output are both declared channels last.
 */
static bool is_plain_pixel(const td_type *t)
{
    return td_type_is_plain(t) && t->dim[2] == 1 && t->dim[3] == 1;
}

static void name_pixels(conv_view *v)
{
    bool is_x = is_plain_pixel(&v->x), is_y = is_plain_pixel(&v->y);
    bool both = is_x && is_y && !td_type_is_plain(&v->w);
    if (both || (is_x && strcmp(v->y.layout, "acdb") == 0))
        memcpy(v->x.layout, "acdb", 5);
    if (both || (is_y && strcmp(v->x.layout, "acdb") == 0))
        memcpy(v->y.layout, "acdb", 5);
}

static bool is_kind(const_dnnl_primitive_desc_t pd, const char *kind)
{
    const char *impl = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl) ==
               dnnl_success &&
           strstr(impl, kind);
}

/* Where images are smaller than the stride, oneDNN 3.2's filter gradients of bf16, for AMX and for
   AVX-512, add numbers from their scratch that they have not written. */
static td_status check_small(const td_node *n, const conv_view *v)
{
    const int64_t stride = ((const td_conv_attr *)n->attr)->stride;
    const bool is_small = v->x.dim[2] < stride || v->x.dim[3] < stride;
    return n->op == &td_op_conv2d_grad_w && v->x.dtype != TD_DT_F32 && is_small
               ? td_error(TD_ENOKERNEL, "images smaller than the stride in %s",
                          td_dtype_name(v->x.dtype))
               : TD_OK;
}

/* Of one dimension: result p reads p stride + first + r step for each tap r. */
typedef struct {
    int64_t size, results, taps, stride, first, step;
} reading;

static bool reads_all(const reading *d)
{
    for (int64_t p = 0; p < d->results; p++) {
        bool is_read = false;
        for (int64_t r = 0; r < d->taps && !is_read; r++) {
            const int64_t at = p * d->stride + d->first + r * d->step;
            is_read = at >= 0 && at < d->size;
        }
        if (!is_read)
            return false;
    }
    return true;
}

/* dimension d of the images */
static reading reading_of(const td_node *n, const conv_view *v, int d)
{
    const td_conv_attr *a = n->attr;
    const int64_t x = v->x.dim[d], y = v->y.dim[d], taps = v->w.dim[d];
    return n->op == &td_op_conv2d_grad_x ? (reading){ y, x, taps, 1, a->pad, -a->dilation }
                                         : (reading){ x, y, taps, a->stride, -a->pad, a->dilation };
}

/* Where rows or columns of the result come from padding alone, oneDNN 3.2's convolutions of bf16
   for AMX crash while they are created: forward, and gradients of images if the stride is 1. */
static td_status check_read(const td_node *n, const conv_view *v)
{
    const bool is_grad_x = n->op == &td_op_conv2d_grad_x;
    if (v->x.dtype != TD_DT_BF16 || n->op == &td_op_conv2d_grad_w ||
        (is_grad_x && ((const td_conv_attr *)n->attr)->stride > 1))
        return TD_OK;
    const reading rows = reading_of(n, v, 2), cols = reading_of(n, v, 3);
    return reads_all(&rows) && reads_all(&cols)
               ? TD_OK
               : td_error(TD_ENOKERNEL, "some results come from padding alone");
}

static td_status make_pd(const td_node *n, const conv_view *given, free_layouts any,
                         dnnl_primitive_desc_t *pd)
{
    conv_view v = *given;
    conv_parts p = { 0 };
    *pd = NULL;
    TD_TRY(check_small(n, &v));
    TD_TRY(check_read(n, &v));
    name_pixels(&v);
    td_status st = parts_make(n, &v, any, &p);
    if (st == TD_OK)
        st = td_dnnl_check_primitive(create(n, &p, pd), pd);
    parts_release(&p);
    if (st != TD_OK) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    return st;
}

/* the node's convolution with another batch size, and other output channels unless they are 0 */
static td_status make_for(const td_node *n, int64_t images, int64_t channels,
                          dnnl_primitive_desc_t *pd)
{
    conv_view v = view_of(n);
    v.x.dim[0] = v.y.dim[0] = images;
    if (channels)
        v.y.dim[1] = v.w.dim[0] = channels;
    return make_pd(n, &v, (free_layouts){ 0 }, pd);
}

/* --- queries by the device -------------------------------------------------------------------- */

td_status td_dnnl_conv_accepts(const td_node *n, int64_t images, int64_t channels)
{
    dnnl_primitive_desc_t pd;
    if (td_is_tf32(n))
        return td_error(TD_ENOKERNEL, "tf32 is set");
    if (n->op == &td_op_conv2d_fused && n->n_in > 3 &&
        strcmp(td_in_type(n, 3)->layout, n->out[0]->type.layout) != 0)
        return td_error(TD_ENOKERNEL, "the residual has another layout");
    TD_TRY(make_for(n, images, channels, &pd));
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

td_status td_dnnl_conv_accepts_alone(const td_node *n, int64_t images, int64_t channels)
{
    const int threads = td_threads();
    td_set_threads(1);
    const td_status st = td_dnnl_conv_accepts(n, images, channels);
    td_set_threads(threads);
    return st;
}

static td_status conv_accepts(const td_node *n)
{
    return td_dnnl_conv_accepts(n, view_of(n).x.dim[0], 0);
}

/* false for a matrix product over unfolded images, which does not justify keeping a layout */
static bool is_direct(const_dnnl_primitive_desc_t pd)
{
    return !is_kind(pd, "gemm:");
}

static bool find_direct(const td_node *n, const conv_view *v, free_layouts any,
                        dnnl_primitive_desc_t *pd)
{
    if (make_pd(n, v, any, pd) != TD_OK)
        return false;
    if (is_direct(*pd))
        return true;
    dnnl_primitive_desc_destroy(*pd);
    *pd = NULL;
    return false;
}

/* tries the filter's layout, then lets oneDNN choose it */
static bool find_in_place(const td_node *n, const conv_view *v, free_layouts known,
                          dnnl_primitive_desc_t *pd)
{
    free_layouts free_w = known;
    free_w.w = true;
    return find_direct(n, v, known, pd) || find_direct(n, v, free_w, pd);
}

/*
 * Filter gradients of narrow groups.  For 8 channels per group in blocks of 8, oneDNN has a float32
 * kernel but none for bf16: the float32 kernel's layouts are preferred, and the device emulates
 * bf16.  For 4 channels per group the only direct kernel is for channels last.  Both are faster
 * than the matrix product, some of them ten times.
 */
static bool find_grad_w_alternative(const td_node *n, const conv_view *v, free_layouts known,
                                    dnnl_primitive_desc_t *pd)
{
    conv_view wide = *v, last = *v;
    const free_layouts all = { true, true, true }, any_w = { .w = true };
    if (n->op != &td_op_conv2d_grad_w)
        return false;
    wide.x.dtype = wide.w.dtype = wide.y.dtype = TD_DT_F32;
    memcpy(last.x.layout, "acdb", 5);
    memcpy(last.y.layout, "acdb", 5);
    return (v->x.dtype == TD_DT_BF16 &&
            (find_in_place(n, &wide, known, pd) || find_direct(n, &wide, all, pd))) ||
           find_direct(n, &last, any_w, pd);
}

/*
 * A forward convolution of few channels that AMX computes, for which they have to be last.  With
 * filters of 3 rows or less, of which tiles are mostly zeros, writing the images with channels last
 * costs what it saves.
 */
static bool find_few_last(const td_node *n, const conv_view *v, dnnl_primitive_desc_t *pd)
{
    conv_view last = *v;
    const free_layouts any_w = { .w = true };
    memcpy(last.x.layout, "acdb", 5);
    memcpy(last.y.layout, "acdb", 5);
    if (!find_direct(n, &last, any_w, pd))
        return false;
    if (is_kind(*pd, "amx"))
        return true;
    dnnl_primitive_desc_destroy(*pd);
    *pd = NULL;
    return false;
}

/*
 * The operands' layouts are kept if a direct kernel supports them; otherwise oneDNN chooses all
 * layouts.  An image with few channels stays plain, except for AMX.  A gradient gets the layout of
 * operand 2, which also gives its shape.
 */
static td_status best_pd(const td_node *n, dnnl_primitive_desc_t *pd)
{
    conv_view v = view_of(n);
    bool is_grad = n->op == &td_op_conv2d_grad_x || n->op == &td_op_conv2d_grad_w;
    if (is_grad) {
        td_type *result = n->op == &td_op_conv2d_grad_x ? &v.x : &v.w;
        memcpy(result->layout, td_in_type(n, 2)->layout, sizeof result->layout);
    }
    bool few = v.x.dim[1] <= 4;
    const free_layouts known = { .x = td_type_is_plain(&v.x) && !few,
                                 .w = td_type_is_plain(&v.w),
                                 .y = td_type_is_plain(&v.y) };
    const free_layouts all = { true, true, true };
    if (few && !is_grad && v.w.dim[2] > 3 && find_few_last(n, &v, pd))
        return TD_OK;
    if (!(known.x && known.y) && find_in_place(n, &v, known, pd))
        return TD_OK;
    if (find_direct(n, &v, all, pd) || find_grad_w_alternative(n, &v, known, pd))
        return TD_OK;
    return make_pd(n, &v, all, pd);
}

static bool is_conv(const td_node *n)
{
    return n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused ||
           n->op == &td_op_conv2d_grad_x || n->op == &td_op_conv2d_grad_w;
}

/* the layouts of the primitive of `pd`, which is destroyed */
static bool layouts_of_primitive(const td_node *n, dnnl_primitive_desc_t pd, td_node_layouts *out)
{
    bool is_grad_x = n->op == &td_op_conv2d_grad_x, is_grad_w = n->op == &td_op_conv2d_grad_w;
    int groups = ((const td_conv_attr *)n->attr)->groups;
    *out = (td_node_layouts){ 0 };
    dnnl_query_t x = is_grad_x ? dnnl_query_diff_src_md : dnnl_query_src_md;
    dnnl_query_t w = is_grad_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    dnnl_query_t y = is_grad_x || is_grad_w ? dnnl_query_diff_dst_md : dnnl_query_dst_md;
    char *to_x = is_grad_x ? out->out : is_grad_w ? out->in[1] : out->in[0];
    char *to_w = is_grad_w ? out->out : out->in[1];
    char *to_y = is_grad_x || is_grad_w ? out->in[0] : out->out;
    bool ok = td_dnnl_layout(dnnl_primitive_desc_query_md(pd, x, 0), 1, to_x) &&
              td_dnnl_layout(dnnl_primitive_desc_query_md(pd, w, 0), groups, to_w) &&
              td_dnnl_layout(dnnl_primitive_desc_query_md(pd, y, 0), 1, to_y);
    if (n->op == &td_op_conv2d_fused)
        memcpy(out->in[3], out->out, sizeof out->out);
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

bool td_dnnl_conv_preferred_layout(const td_node *n, td_node_layouts *out)
{
    dnnl_primitive_desc_t pd;
    return is_conv(n) && best_pd(n, &pd) == TD_OK && layouts_of_primitive(n, pd, out);
}

/* channels last, blocks of 16 channels; images with few channels stay plain */
bool td_dnnl_conv_candidate_layout(const td_node *n, int k, td_node_layouts *out)
{
    static const char *const layouts[] = { "acdb", "aBcd16b" };
    const free_layouts any_w = { .w = true };
    dnnl_primitive_desc_t pd;
    if (!is_conv(n))
        return false;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        conv_view v = view_of(n);
        (void)snprintf(v.y.layout, sizeof v.y.layout, "%s", layouts[i]);
        (void)snprintf(v.x.layout, sizeof v.x.layout, "%s", v.x.dim[1] <= 4 ? "" : layouts[i]);
        if (find_direct(n, &v, any_w, &pd) && layouts_of_primitive(n, pd, out) && k-- == 0)
            return true;
    }
    return false;
}

/* --- running ---------------------------------------------------------------------------------- */

static td_status forward_prepare(const td_node *n, int64_t images, int64_t channels,
                                 td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    td_dnnl_bind binds[4] = {
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DST, dnnl_query_dst_md, 0, n->n_in },
        { DNNL_ARG_BIAS, dnnl_query_weights_md, 1, 2 },
    };
    TD_TRY(make_for(n, images, channels, &pd));
    return td_dnnl_prepare(pd, n, n->n_in > 2 ? 4 : 3, binds, out);
}

static td_status grad_x_prepare(const td_node *n, int64_t images, int64_t channels,
                                td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0 },
        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1 },
        { DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, 3 },
    };
    TD_TRY(make_for(n, images, channels, &pd));
    return td_dnnl_prepare(pd, n, 3, binds, out);
}

static td_status grad_w_prepare(const td_node *n, int64_t images, int64_t channels,
                                td_prepared *out)
{
    dnnl_primitive_desc_t pd;
    static const td_dnnl_bind binds[] = {
        { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0 },
        { DNNL_ARG_SRC, dnnl_query_src_md, 0, 1 },
        { DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, 3 },
    };
    TD_TRY(make_for(n, images, channels, &pd));
    return td_dnnl_prepare(pd, n, 3, binds, out);
}

td_status td_dnnl_conv_prepare(const td_node *n, int64_t images, int64_t channels, td_prepared *out)
{
    if (n->op == &td_op_conv2d_grad_x)
        return grad_x_prepare(n, images, channels, out);
    if (n->op == &td_op_conv2d_grad_w)
        return grad_w_prepare(n, images, channels, out);
    return forward_prepare(n, images, channels, out);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    return td_dnnl_conv_prepare(n, view_of(n).x.dim[0], 0, out);
}

static td_status fused_run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    if (n->n_in > 3 && args[3] != args[4])
        memcpy(args[4], args[3], (size_t)td_type_bytes(&n->out[0]->type));
    return td_dnnl_run(p, args);
}

const td_kernel td_dnnl_conv = {
    .name = "dnnl_conv",
    .op = &td_op_conv2d,
    .accepts = conv_accepts,
    .prepare = prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_conv_fused = {
    .name = "dnnl_conv_fused",
    .op = &td_op_conv2d_fused,
    .accepts = conv_accepts,
    .prepare = prepare,
    .run = fused_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_conv_grad_x = {
    .name = "dnnl_conv_grad_x",
    .op = &td_op_conv2d_grad_x,
    .accepts = conv_accepts,
    .prepare = prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};

const td_kernel td_dnnl_conv_grad_w = {
    .name = "dnnl_conv_grad_w",
    .op = &td_op_conv2d_grad_w,
    .accepts = conv_accepts,
    .prepare = prepare,
    .run = td_dnnl_run,
    .release = td_dnnl_release,
};
