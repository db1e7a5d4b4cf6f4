/*
 * native_grouped.c -- 3 x 3 convolutions in groups of 4, 8, 16 and 32 channels, and their gradients
 *
 * The convolutions of ResNeXt.  Tensors are in channel blocks of 16 (AVX-512) or 8 (AVX2,
 * float32 only), as the networks' other layers prefer, so nothing is reordered.  native_grouped.h
 * has the layouts, native_grouped.inc the loops; on other machines oneDNN computes these
 * convolutions.
 *
 *     forward, grad_x     a job is one unit (the blocks of one or several groups) of one image
 *     grad_w              a job is one unit of some images (native_conv.h); with AVX2 for groups
 *                         of 4 only
 *
 * Results have the same bits with any number of threads.
 */
#include "backend/native/conv/native_grouped.h"

#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include <stdio.h>

enum { TAP_SIDE = 3 };

/* --- supported nodes -------------------------------------------------------------------------- */

/* oneDNN's own for its filter gradients, which are used for groups of whole blocks of 8 */
static void filter_layout(const td_grouped *v, td_dtype dtype, char layout[TD_LAYOUT_BYTES])
{
    const int n = v->width < v->lanes ? v->width : v->lanes;
    if (v->lanes == 8 && v->width >= 8)
        (void)snprintf(layout, TD_LAYOUT_BYTES, "%dgaBCde8c8b", (int)(v->CB * 8 / v->width));
    else if (td_dtype_is_half(dtype))
        (void)snprintf(layout, TD_LAYOUT_BYTES, "AcdB%db%da2b", n / 2, v->lanes);
    else
        (void)snprintf(layout, TD_LAYOUT_BYTES, "AcdB%db%da", n, v->lanes);
}

static const char *image_layout(const td_grouped *v)
{
    return v->lanes == 16 ? "aBcd16b" : "aBcd8b";
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_grouped *v)
{
    const td_conv_attr *a = n->attr;
    const td_native_conv_types t = td_native_conv_types_of(n);
    const int64_t width = t.w->dim[1], C = t.x->dim[1];
    if (a->groups == 1)
        return td_error(TD_ENOKERNEL, "groups is 1");
    if (width != 4 && width != 8 && width != 16 && width != 32)
        return td_error(TD_ENOKERNEL, "%lld channels a group", (long long)width);
    if (t.x->dtype != t.y->dtype || !td_grouped_loops_for(t.x->dtype))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(t.x->dtype));
    const int lanes = td_grouped_loops_for(t.x->dtype)->lanes;
    if (t.w->dim[0] != C || C % lanes)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld", (long long)C,
                        (long long)t.w->dim[0]);
    if (t.w->dim[2] != TAP_SIDE || t.w->dim[3] != TAP_SIDE || a->pad != 1 || a->pad_extra ||
        a->dilation != 1 || a->stride > 2)
        return td_error(TD_ENOKERNEL, "not 3 x 3 with pad 1 and stride 1 or 2");
    if (lanes == 8 && width > 4 && n->op == &td_op_conv2d_grad_w) /* oneDNN's are faster */
        return td_error(TD_ENOKERNEL, "only groups of 4 channels in blocks of 8");
    *v = (td_grouped){ .dtype = t.x->dtype,
                       .width = (int)width,
                       .lanes = lanes,
                       .stride = a->stride,
                       .N = t.x->dim[0],
                       .CB = C / lanes,
                       .H = t.x->dim[2],
                       .W = t.x->dim[3],
                       .P = t.y->dim[2],
                       .Q = t.y->dim[3],
                       .blocks = width > lanes ? width / lanes : 1 };
    v->units = v->CB / v->blocks;
    v->x_plane = v->H * v->W * lanes;
    v->y_plane = v->P * v->Q * lanes;
    return TD_OK;
}

static td_status check_types(const td_node *n)
{
    if (n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->relu6)
        return td_error(TD_ENOKERNEL, "a relu6 is fused into it");
    return td_native_conv_check(n);
}

static td_status accepts(const td_node *n)
{
    td_grouped v;
    char filter[TD_LAYOUT_BYTES];
    TD_TRY(shape_of(n, &v));
    TD_TRY(check_types(n));
    filter_layout(&v, td_native_conv_types_of(n).w->dtype, filter);
    return td_native_conv_check_layouts(n, image_layout(&v), filter);
}

bool td_native_grouped_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_grouped v;
    char filter[TD_LAYOUT_BYTES];
    if (!td_native_is_conv(n) || shape_of(n, &v) != TD_OK || check_types(n) != TD_OK)
        return false;
    filter_layout(&v, td_native_conv_types_of(n).w->dtype, filter);
    td_native_conv_layouts(n, image_layout(&v), filter, out);
    return true;
}

/* --- running ---------------------------------------------------------------------------------- */

static td_grouped prepared_shape(const td_prepared *p)
{
    td_grouped v;
    TD_CHECK(shape_of(p->node, &v) == TD_OK);
    return v;
}

static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const bool is_fused = n->op == &td_op_conv2d_fused;
    const td_grouped v = prepared_shape(p);
    const td_grouped_loops *f = td_grouped_loops_for(v.dtype);
    const td_grouped_end end = { .bias = n->n_in > 2 ? args[2] : NULL,
                                 .relu = is_fused && ((const td_conv_attr *)n->attr)->relu };
#pragma omp parallel for collapse(2)
    for (int64_t i = 0; i < v.N; i++)
        for (int64_t unit = 0; unit < v.units; unit++)
            f->forward(&v, i, unit, args[0], args[1], &end, args[n->n_in]);
    return TD_OK;
}

static td_status prepare_grad_x(const td_node *n, td_prepared *out)
{
    out->scratch_bytes = (size_t)td_type_bytes(td_in_type(n, 1));
    return TD_OK;
}

static td_status run_grad_x(const td_prepared *p, void *const *args)
{
    const td_grouped v = prepared_shape(p);
    const td_grouped_loops *f = td_grouped_loops_for(v.dtype);
#pragma omp parallel
    {
#pragma omp for
        for (int64_t cb = 0; cb < v.CB; cb++)
            f->transpose_filter(&v, cb, args[1], args[4]);
#pragma omp for collapse(2)
        for (int64_t i = 0; i < v.N; i++)
            for (int64_t unit = 0; unit < v.units; unit++)
                f->grad_x(&v, i, unit, args[0], args[4], args[3]);
    }
    return TD_OK;
}

static td_native_filter_parts parts_of(const td_grouped *v)
{
    return td_native_filter_divide(v->N, v->units, td_grouped_loops_for(v->dtype)->images);
}

static td_status prepare_grad_w(const td_node *n, td_prepared *out)
{
    td_grouped v;
    TD_TRY(shape_of(n, &v));
    const td_native_filter_parts parts = parts_of(&v);
    out->scratch_bytes = td_native_filter_scratch(&parts, &n->out[0]->type);
    return TD_OK;
}

typedef struct {
    const td_grouped_loops *f;
    td_grouped v;
    const void *dy, *x;
} sums_context;

static void add_gradients(const void *context, int64_t from, int64_t to, int64_t unit, float *sums)
{
    const sums_context *c = context;
    c->f->grad_w(&c->v, from, to, unit, c->dy, c->x, sums);
}

static td_status run_grad_w(const td_prepared *p, void *const *args)
{
    sums_context c = { .v = prepared_shape(p), .dy = args[0], .x = args[1] };
    c.f = td_grouped_loops_for(c.v.dtype);
    td_native_filter_run(&(td_native_filter_job){ .parts = parts_of(&c.v),
                                                  .count = td_type_count(&p->node->out[0]->type),
                                                  .dw = args[3],
                                                  .scratch = args[4],
                                                  .context = &c,
                                                  .add = add_gradients });
    return TD_OK;
}

static td_work_share share_images(const td_node *n, int threads)
{
    td_grouped v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    return td_work_share_of(v.N * v.units, (double)(v.y_plane * v.blocks), threads);
}

static td_work_share share_grad_w(const td_node *n, int threads)
{
    td_grouped v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const td_native_filter_parts parts = parts_of(&v);
    return td_native_filter_share(&parts, v.y_plane * v.blocks, threads);
}

const td_kernel td_native_grouped_conv = { .name = "native_grouped_conv",
                                           .op = &td_op_conv2d,
                                           .accepts = accepts,
                                           .run = run_forward,
                                           .share = share_images };

const td_kernel td_native_grouped_conv_fused = { .name = "native_grouped_conv_fused",
                                                 .op = &td_op_conv2d_fused,
                                                 .accepts = accepts,
                                                 .run = run_forward,
                                                 .share = share_images };

const td_kernel td_native_grouped_conv_grad_x = { .name = "native_grouped_conv_grad_x",
                                                  .op = &td_op_conv2d_grad_x,
                                                  .accepts = accepts,
                                                  .prepare = prepare_grad_x,
                                                  .run = run_grad_x,
                                                  .share = share_images };

const td_kernel td_native_grouped_conv_grad_w = { .name = "native_grouped_conv_grad_w",
                                                  .op = &td_op_conv2d_grad_w,
                                                  .accepts = accepts,
                                                  .prepare = prepare_grad_w,
                                                  .run = run_grad_w,
                                                  .share = share_grad_w };
