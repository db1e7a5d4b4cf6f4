/*
 * native_grouped.c -- 3 x 3 convolutions in groups of 4, 8, 16 and 32 channels, and their gradients
 *
 * The convolutions of ResNeXt.  Tensors are in channel blocks of 16, as the networks' other layers
 * prefer, so nothing is reordered.  native_grouped.h has the layouts, native_grouped.inc the loops,
 * for AVX-512; on other machines oneDNN computes these convolutions.
 *
 *     forward, grad_x     a job is one unit (the blocks of one or several groups) of one image
 *     grad_w              a job is one unit of some images; no job waits for another, and the
 *                         parts' sums are added in order
 *
 * The number of parts depends on the shapes only: the result has the same bits with any number of
 * threads.
 */
#include "backend/native/native_grouped.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/native.h"

enum { TAP_SIDE = 3, JOBS_WANTED = 64 };

/* --- supported nodes -------------------------------------------------------------------------- */

/* the types of x, w and y in whichever of the ops */
typedef struct {
    const td_type *x, *w, *y;
} conv_types;

static conv_types types_of(const td_node *n)
{
    if (n->op == &td_op_conv2d_grad_x)
        return (conv_types){ &n->out[0]->type, td_in_type(n, 1), td_in_type(n, 0) };
    if (n->op == &td_op_conv2d_grad_w)
        return (conv_types){ td_in_type(n, 1), &n->out[0]->type, td_in_type(n, 0) };
    return (conv_types){ td_in_type(n, 0), td_in_type(n, 1), &n->out[0]->type };
}

static void filter_layout(int64_t width, td_dtype dtype, char layout[TD_LAYOUT_BYTES])
{
    const int64_t n = width < TD_GROUPED_LANES ? width : TD_GROUPED_LANES;
    if (td_dtype_is_half(dtype))
        (void)snprintf(layout, TD_LAYOUT_BYTES, "AcdB%db16a2b", (int)n / 2);
    else
        (void)snprintf(layout, TD_LAYOUT_BYTES, "AcdB%db16a", (int)n);
}

static const char image_layout[] = "aBcd16b";

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_grouped *v)
{
    const td_conv_attr *a = n->attr;
    const conv_types t = types_of(n);
    const int64_t width = t.w->dim[1], C = t.x->dim[1];
    if (a->groups == 1)
        return td_error(TD_ENOKERNEL, "groups is 1");
    if (width != 4 && width != 8 && width != 16 && width != 32)
        return td_error(TD_ENOKERNEL, "%lld channels a group", (long long)width);
    if (t.w->dim[0] != C || C % TD_GROUPED_LANES)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld", (long long)C,
                        (long long)t.w->dim[0]);
    if (t.w->dim[2] != TAP_SIDE || t.w->dim[3] != TAP_SIDE || a->pad != 1 || a->pad_extra ||
        a->dilation != 1 || a->stride > 2)
        return td_error(TD_ENOKERNEL, "not 3 x 3 with pad 1 and stride 1 or 2");
    if (t.x->dtype != t.y->dtype || !td_grouped_loops_for(t.x->dtype))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(t.x->dtype));
    *v = (td_grouped){ .dtype = t.x->dtype,
                       .width = (int)width,
                       .stride = a->stride,
                       .N = t.x->dim[0],
                       .CB = C / TD_GROUPED_LANES,
                       .H = t.x->dim[2],
                       .W = t.x->dim[3],
                       .P = t.y->dim[2],
                       .Q = t.y->dim[3],
                       .blocks = width > TD_GROUPED_LANES ? width / TD_GROUPED_LANES : 1 };
    v->units = v->CB / v->blocks;
    v->x_plane = v->H * v->W * TD_GROUPED_LANES;
    v->y_plane = v->P * v->Q * TD_GROUPED_LANES;
    return TD_OK;
}

static td_status check_layouts(const conv_types *t)
{
    char filter[TD_LAYOUT_BYTES];
    filter_layout(t->w->dim[1], t->w->dtype, filter);
    if (strcmp(t->x->layout, image_layout) != 0 || strcmp(t->y->layout, image_layout) != 0)
        return td_error(TD_ENOKERNEL, "the images do not have layout '%s'", image_layout);
    if (strcmp(t->w->layout, filter) != 0)
        return td_error(TD_ENOKERNEL, "the filter does not have layout '%s'", filter);
    return TD_OK;
}

static td_status check_types(const td_node *n)
{
    if (td_is_tf32(n))
        return td_error(TD_ENOKERNEL, "tf32 is set");
    if (n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->relu6)
        return td_error(TD_ENOKERNEL, "a relu6 is fused into it");
    const conv_types t = types_of(n);
    if (n->op == &td_op_conv2d_grad_w && t.w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the gradient is not f32");
    if (n->op == &td_op_conv2d_fused && n->n_in > 3)
        return td_error(TD_ENOKERNEL, "there is a residual");
    if (n->op == &td_op_conv2d_fused && n->n_in > 2 && td_in_type(n, 2)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the bias is not f32");
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    td_grouped v;
    const conv_types t = types_of(n);
    TD_TRY(shape_of(n, &v));
    TD_TRY(check_types(n));
    return check_layouts(&t);
}

bool td_native_grouped_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_grouped v;
    char filter[TD_LAYOUT_BYTES] = "";
    const bool is_grad_x = n->op == &td_op_conv2d_grad_x, is_grad_w = n->op == &td_op_conv2d_grad_w;
    const bool is_forward = n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused;
    if ((!is_forward && !is_grad_x && !is_grad_w) || shape_of(n, &v) != TD_OK ||
        check_types(n) != TD_OK)
        return false;
    filter_layout(v.width, types_of(n).w->dtype, filter);
    *out = (td_node_layouts){ 0 };
    memcpy(out->in[0], image_layout, sizeof image_layout);
    memcpy(is_grad_w ? out->in[1] : out->out, image_layout, sizeof image_layout);
    memcpy(is_grad_w ? out->out : out->in[1], filter, sizeof filter);
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

/* how many parts the images are divided into; *images per part is a multiple of a step's images */
static int64_t parts_of(const td_grouped *v, int64_t *images)
{
    const int64_t step = td_grouped_loops_for(v->dtype)->images;
    const int64_t wanted = (JOBS_WANTED + v->units - 1) / v->units;
    const int64_t steps = (v->N + step - 1) / step, each = (steps + wanted - 1) / wanted;
    *images = each * step;
    return (v->N + *images - 1) / *images;
}

/* scratch for the parts' sums; the first part's sums are the result itself */
static td_status prepare_grad_w(const td_node *n, td_prepared *out)
{
    td_grouped v;
    int64_t images;
    TD_TRY(shape_of(n, &v));
    out->scratch_bytes =
        (size_t)(parts_of(&v, &images) - 1) * (size_t)td_type_bytes(&n->out[0]->type);
    return TD_OK;
}

typedef struct {
    const td_grouped_loops *f;
    td_grouped v;
    int64_t images; /* in a part */
    int64_t count;  /* elements of dw */
    const void *dy, *x;
    float *dw, *others; /* the first part's sums, the others' sums */
} sums_job;

/* sums part k of one unit */
static void sum_part(const sums_job *j, int64_t k, int64_t unit)
{
    const int64_t size = j->count / j->v.units, from = k * j->images, to = from + j->images;
    float *sums = (k ? j->others + (k - 1) * j->count : j->dw) + unit * size;
    memset(sums, 0, (size_t)size * sizeof *sums);
    j->f->grad_w(&j->v, from, to < j->v.N ? to : j->v.N, unit, j->dy, j->x, sums);
}

static void add_parts(const sums_job *j, int64_t n_parts, int64_t unit)
{
    const int64_t size = j->count / j->v.units;
    for (int64_t k = 1; k < n_parts; k++)
        for (int64_t i = unit * size; i < (unit + 1) * size; i++)
            j->dw[i] += j->others[(k - 1) * j->count + i];
}

static td_status run_grad_w(const td_prepared *p, void *const *args)
{
    sums_job j = { .v = prepared_shape(p),
                   .count = td_type_count(&p->node->out[0]->type),
                   .dy = args[0],
                   .x = args[1],
                   .dw = args[3],
                   .others = args[4] };
    const int64_t n_parts = parts_of(&j.v, &j.images);
    j.f = td_grouped_loops_for(j.v.dtype);
#pragma omp parallel for collapse(2)
    for (int64_t k = 0; k < n_parts; k++)
        for (int64_t unit = 0; unit < j.v.units; unit++)
            sum_part(&j, k, unit);
#pragma omp parallel for if (n_parts > 1)
    for (int64_t unit = 0; unit < j.v.units; unit++)
        add_parts(&j, n_parts, unit);
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
    int64_t images;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const int64_t n_parts = parts_of(&v, &images);
    return td_work_share_of(n_parts * v.units, (double)(images * v.y_plane * v.blocks), threads);
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
