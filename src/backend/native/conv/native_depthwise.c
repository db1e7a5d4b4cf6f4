/*
 * native_depthwise.c -- depthwise convolutions of 3 x 3, 5 x 5 and 7 x 7, and their gradients
 *
 * What oneDNN lacks on machines with AVX2: those in bf16, and in float32 the filter gradients of
 * 5 x 5 and 7 x 7, which it computes 5 to 9 times as slowly (docs/results/kernels.md), and rows of
 * fewer outputs than there is padding before them, which it computes as matrix products; its
 * other float32 kernels are as fast as memory.  Tensors are in channel blocks of 8, as its 1 x 1
 * convolutions before and after them prefer, and filters in its own layout, so nothing is
 * reordered.  native_depthwise.inc has the loops.
 *
 *     forward, grad_x     rows of all blocks of all images are divided among the threads
 *     grad_w              a job is one block of some images (native_conv.h)
 *
 * Results have the same bits with any number of threads.
 */
#include "backend/native/conv/native_depthwise.h"

#include <math.h>
#include <stdio.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include "tandem/program.h"

/* --- supported nodes -------------------------------------------------------------------------- */

static const char image_layout[] = "aBcd8b";

/* TD_ENOKERNEL where oneDNN is faster, in float32 */
static td_status check_speed(const td_node *n, int64_t side, int64_t Q)
{
    if (n->op == &td_op_conv2d_grad_x)
        return td_error(TD_ENOKERNEL, "oneDNN has a direct kernel");
    if (n->op == &td_op_conv2d_grad_w && side == 3)
        return td_error(TD_ENOKERNEL, "only filter gradients larger than 3 x 3 in f32");
    if (n->op != &td_op_conv2d_grad_w && Q >= ((const td_conv_attr *)n->attr)->pad)
        return td_error(TD_ENOKERNEL, "oneDNN has a direct kernel for rows of %lld", (long long)Q);
    return TD_OK;
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_depthwise *v)
{
    const td_conv_attr *a = n->attr;
    const td_native_conv_types t = td_native_conv_types_of(n);
    const int64_t C = t.x->dim[1], side = t.w->dim[2];
    if (a->groups == 1 || a->groups != C || t.w->dim[0] != C)
        return td_error(TD_ENOKERNEL, "not one filter for each channel");
    if (C % TD_DEPTHWISE_LANES)
        return td_error(TD_ENOKERNEL, "%lld channels do not fill lanes of %d", (long long)C,
                        TD_DEPTHWISE_LANES);
    if (t.w->dim[3] != side || (side != 3 && side != 5 && side != 7) || a->dilation != 1 ||
        a->stride > 2 || a->pad >= side)
        return td_error(TD_ENOKERNEL, "not 3 x 3, 5 x 5 or 7 x 7 with stride 1 or 2");
    if (t.x->dtype != t.y->dtype || !td_depthwise_loops_for(t.x->dtype))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(t.x->dtype));
    if (t.x->dtype == TD_DT_F32)
        TD_TRY(check_speed(n, side, t.y->dim[3]));
    *v = (td_depthwise){ .dtype = t.x->dtype,
                         .side = (int)side,
                         .stride = a->stride,
                         .pad = a->pad,
                         .N = t.x->dim[0],
                         .CB = C / TD_DEPTHWISE_LANES,
                         .H = t.x->dim[2],
                         .W = t.x->dim[3],
                         .P = t.y->dim[2],
                         .Q = t.y->dim[3] };
    v->x_plane = v->H * v->W * TD_DEPTHWISE_LANES;
    v->y_plane = v->P * v->Q * TD_DEPTHWISE_LANES;
    return TD_OK;
}

static void filter_layout(const td_node *n, char layout[TD_LAYOUT_BYTES])
{
    (void)snprintf(layout, TD_LAYOUT_BYTES, "%dgAbcde8a", ((const td_conv_attr *)n->attr)->groups);
}

static td_status accepts(const td_node *n)
{
    td_depthwise v;
    char filter[TD_LAYOUT_BYTES];
    TD_TRY(shape_of(n, &v));
    TD_TRY(td_native_conv_check(n));
    filter_layout(n, filter);
    return td_native_conv_check_layouts(n, image_layout, filter);
}

bool td_native_depthwise_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_depthwise v;
    char filter[TD_LAYOUT_BYTES];
    if (!td_native_is_conv(n) || shape_of(n, &v) != TD_OK || td_native_conv_check(n) != TD_OK)
        return false;
    filter_layout(n, filter);
    td_native_conv_layouts(n, image_layout, filter, out);
    return true;
}

/* --- forward, grad_x -------------------------------------------------------------------------- */

static td_depthwise prepared_shape(const td_prepared *p)
{
    td_depthwise v;
    TD_CHECK(shape_of(p->node, &v) == TD_OK);
    return v;
}

/* rows of the result, in multiples of a few: a thread that begins inside a plane first copies the
   rows above */
static td_native_planes rows_of(const td_depthwise *v, bool is_grad_x, int threads)
{
    return (td_native_planes){ v->N * v->CB, is_grad_x ? v->H : v->P, 4, threads };
}

/* the part of a thread's share in one plane */
static td_depthwise_rows rows_at(const td_depthwise *v, const td_native_span *s)
{
    return (td_depthwise_rows){ s->plane / v->CB, s->plane % v->CB, s->from, s->from + s->n };
}

static float cap_of(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    if (n->op != &td_op_conv2d_fused || !a->relu)
        return 0;
    return a->relu6 ? 6 : INFINITY;
}

static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_depthwise v = prepared_shape(p);
    const td_depthwise_loops *f = td_depthwise_loops_for(v.dtype);
    const td_depthwise_end end = { .bias = n->n_in > 2 ? args[2] : NULL, .cap = cap_of(n) };
    const td_native_planes d = rows_of(&v, false, td_threads());
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span s = td_native_span_first(&d, t); td_native_span_next(&d, &s);) {
            const td_depthwise_rows r = rows_at(&v, &s);
            f->forward(&v, &r, args[0], args[1], &end, args[n->n_in]);
        }
    return TD_OK;
}

static td_status run_grad_x(const td_prepared *p, void *const *args)
{
    const td_depthwise v = prepared_shape(p);
    const td_depthwise_loops *f = td_depthwise_loops_for(v.dtype);
    const td_native_planes d = rows_of(&v, true, td_threads());
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span s = td_native_span_first(&d, t); td_native_span_next(&d, &s);) {
            const td_depthwise_rows r = rows_at(&v, &s);
            f->grad_x(&v, &r, args[0], args[1], args[3]);
        }
    return TD_OK;
}

static td_work_share share_rows(const td_node *n, int threads)
{
    td_depthwise v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const bool is_grad_x = n->op == &td_op_conv2d_grad_x;
    const td_native_planes d = rows_of(&v, is_grad_x, threads);
    const td_work_share rows = td_native_planes_share(&d);
    const double row = (double)((is_grad_x ? v.W : v.Q) * TD_DEPTHWISE_LANES);
    return (td_work_share){ rows.largest * row, rows.mean * row };
}

/* --- grad_w ----------------------------------------------------------------------------------- */

static td_native_filter_parts parts_of(const td_depthwise *v)
{
    return td_native_filter_divide(v->N, v->CB, 1);
}

static td_status prepare_grad_w(const td_node *n, td_prepared *out)
{
    td_depthwise v;
    TD_TRY(shape_of(n, &v));
    const td_native_filter_parts parts = parts_of(&v);
    out->scratch_bytes = td_native_filter_scratch(&parts, &n->out[0]->type);
    return TD_OK;
}

typedef struct {
    const td_depthwise_loops *f;
    td_depthwise v;
    const void *dy, *x;
} sums_context;

static void add_gradients(const void *context, int64_t from, int64_t to, int64_t cb, float *sums)
{
    const sums_context *c = context;
    c->f->grad_w(&c->v, from, to, cb, c->dy, c->x, sums);
}

static td_status run_grad_w(const td_prepared *p, void *const *args)
{
    sums_context c = { .v = prepared_shape(p), .dy = args[0], .x = args[1] };
    c.f = td_depthwise_loops_for(c.v.dtype);
    td_native_filter_run(&(td_native_filter_job){ .parts = parts_of(&c.v),
                                                  .count = td_type_count(&p->node->out[0]->type),
                                                  .dw = args[3],
                                                  .scratch = args[4],
                                                  .context = &c,
                                                  .add = add_gradients });
    return TD_OK;
}

static td_work_share share_grad_w(const td_node *n, int threads)
{
    td_depthwise v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const td_native_filter_parts parts = parts_of(&v);
    return td_native_filter_share(&parts, v.y_plane, threads);
}

/* --- kernels ---------------------------------------------------------------------------------- */

const td_kernel td_native_depthwise_conv = { .name = "native_depthwise_conv",
                                             .op = &td_op_conv2d,
                                             .accepts = accepts,
                                             .run = run_forward,
                                             .share = share_rows };

const td_kernel td_native_depthwise_conv_fused = { .name = "native_depthwise_conv_fused",
                                                   .op = &td_op_conv2d_fused,
                                                   .accepts = accepts,
                                                   .run = run_forward,
                                                   .share = share_rows };

const td_kernel td_native_depthwise_conv_grad_x = { .name = "native_depthwise_conv_grad_x",
                                                    .op = &td_op_conv2d_grad_x,
                                                    .accepts = accepts,
                                                    .run = run_grad_x,
                                                    .share = share_rows };

const td_kernel td_native_depthwise_conv_grad_w = { .name = "native_depthwise_conv_grad_w",
                                                    .op = &td_op_conv2d_grad_w,
                                                    .accepts = accepts,
                                                    .prepare = prepare_grad_w,
                                                    .run = run_grad_w,
                                                    .share = share_grad_w };
