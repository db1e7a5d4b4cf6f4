/*
 * native_pooled.c -- conv2d_pool_int8: the first convolution of a network with its max pooling
 *
 * Each thread computes consecutive rows of y.  It keeps the last rows of the image and of the
 * convolution's result, pooled along the row, in its scratch, so that of all that is between x and
 * y nothing leaves the core's caches.  A row of the convolution at the border of two threads is
 * computed twice.  Results have the same bits with any number of threads.
 *
 * native_pooled.h has the layouts.  With a filter of bf16 the image is rounded to bf16,
 * too, and one instruction multiplies and adds pairs of neighbours in a row, which begin at even
 * pixels: the stride is even.  What is left of the rows of an odd filter is paired with the next
 * row's.
 */
#include "backend/native/int8/native_pooled.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/simd/native_simd.h"
#include "base/arena.h"
#include "base/isa.h"
#include "tandem/program.h"

enum {
    COLUMNS_MAX = 4096,
    FILTER_BYTES_MAX = 4 << 20 /* limit of a thread's copies of the filter, for tiles */
};

static const td_node_layouts wide_layouts = { .in = { "", "Abcd16a", "" }, .out = "acdb" };
static const td_node_layouts half_layouts = { .in = { "", "AbcD16a2d", "" }, .out = "acdb" };

static void set_rows(const td_conv_pool_int8_attr *a, const td_type *w, td_pooled *v)
{
    const int64_t each = v->is_half ? 2 : 1; /* pixels of an element */
    v->taps = divide_up(w->dim[3], each);
    v->is_odd = w->dim[3] % each != 0;
    v->step = a->stride / each;
    const int64_t read = (v->Q - 1) * v->step + v->taps, held = divide_up(v->W + v->pad, each);
    v->columns = read > held ? read : held;
    td_pooled_set_ring(v);
}

/* are products computed in tiles? */
static bool has_tiles(const td_pooled *v)
{
    return v->is_half && td_isa_has_tiles();
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_pooled *v)
{
    const td_conv_pool_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1), *y = &n->out[0]->type;
    const td_pooled_sizes s = td_pooled_sizes_of(a, x, w);
    *v = (td_pooled){ .N = x->dim[0],
                      .C = x->dim[1],
                      .H = x->dim[2],
                      .W = x->dim[3],
                      .K = w->dim[0],
                      .R = w->dim[2],
                      .is_half = w->dtype == TD_DT_BF16,
                      .P = s.P,
                      .Q = s.Q,
                      .pooled_P = y->dim[2],
                      .pooled_Q = y->dim[3],
                      .stride = a->stride,
                      .pad = a->pad,
                      .kernel = a->kernel,
                      .pool_stride = a->pool_stride,
                      .pool_pad = a->pool_pad,
                      .y_scale = (float)a->y_scale };
    set_rows(a, w, v);
    if (v->K % TD_POOLED_LANES)
        return td_error(TD_ENOKERNEL, "%lld channels, not a multiple of %d", (long long)v->K,
                        TD_POOLED_LANES);
    if (v->is_half && a->stride % 2)
        return td_error(TD_ENOKERNEL, "stride %d is odd", a->stride);
    if (v->kernel > TD_POOLED_KERNEL_MAX)
        return td_error(TD_ENOKERNEL, "windows of %d pixels", a->kernel);
    if (v->columns > COLUMNS_MAX)
        return td_error(TD_ENOKERNEL, "rows of %lld pixels", (long long)v->W);
    if (has_tiles(v) && td_pooled_filter(v) > FILTER_BYTES_MAX / (int64_t)sizeof(float))
        return td_error(TD_ENOKERNEL, "filters are larger than %d bytes", FILTER_BYTES_MAX);
    if (!td_pooled_loops_at(v->is_half, 0))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(w->dtype));
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    td_pooled v;
    TD_TRY(shape_of(n, &v));
    return td_native_check_layouts(n, v.is_half ? &half_layouts : &wide_layouts);
}

bool td_native_pooled_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_pooled v;
    if (n->op != &td_op_conv2d_pool_int8 || shape_of(n, &v) != TD_OK)
        return false;
    *out = v.is_half ? half_layouts : wide_layouts;
    return true;
}

/* --- running ---------------------------------------------------------------------------------- */

/* offsets in a thread's scratch, in elements of 4 bytes */
typedef struct {
    int64_t windows, sums, largest, together, all;
} parts;

static parts parts_of(const td_pooled *v)
{
    const int64_t line = TD_HOST_ALIGN / (int64_t)sizeof(float), row = v->pooled_Q * v->K;
    parts p;
    p.windows = divide_up(td_pooled_rows(v), line) * line;
    p.sums = p.windows + (has_tiles(v) ? td_pooled_windows(v) + td_pooled_filter(v) : 0);
    p.largest = p.sums + td_pooled_pixels(v) * TD_POOLED_CHANNELS;
    p.together = p.largest + v->kernel * row;
    p.all = p.together + divide_up(row, line) * line;
    return p;
}

typedef struct {
    td_pooled v;
    td_native_planes rows; /* of all images */
} state;

static td_native_planes divide(const td_pooled *v, int threads)
{
    const int64_t rows = v->N * v->pooled_P;
    return (td_native_planes){ v->N, v->pooled_P, 1, rows < threads ? (int)rows : threads };
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    TD_CHECK(shape_of(n, &s->v) == TD_OK);
    s->rows = divide(&s->v, td_threads());
    out->scratch_bytes = (size_t)s->rows.threads * (size_t)parts_of(&s->v).all * sizeof(float);
    return TD_OK;
}

/* Tiles multiply what is not read by zero: an image with an infinity has other loops, all of it, so
   that its results do not depend on the number of threads. */
static td_pooled_loops *loops_for(const td_pooled *v, const float *image)
{
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, TD_POOLED_LANES);
    const bool is_finite = !has_tiles(v) || simd->all_finite(v->C * v->H * v->W, image);
    return td_pooled_loops_at(v->is_half, is_finite ? 0 : 1);
}

static void run_thread(const state *s, int t, void *const *args)
{
    const td_pooled *v = &s->v;
    const parts at = parts_of(v);
    float *own = (float *)args[4] + t * at.all;
    td_pooled_job j = { .w = args[1],
                        .bias = args[2],
                        .rows = own,
                        .windows = own + at.windows,
                        .sums = own + at.sums,
                        .largest = own + at.largest,
                        .together = own + at.together };
    for (td_native_span i = td_native_span_first(&s->rows, t); td_native_span_next(&s->rows, &i);) {
        j.from = i.from;
        j.to = i.from + i.n;
        j.x = (const float *)args[0] + i.plane * v->C * v->H * v->W;
        j.y = (uint8_t *)args[3] + i.plane * v->pooled_P * v->pooled_Q * v->K;
        td_pooled_loops *loops = loops_for(v, j.x);
        loops(v, &j);
        j.has_filter = j.has_filter || loops == td_pooled_loops_at(v->is_half, 0);
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const int threads = s->rows.threads;
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++)
        run_thread(s, t, args);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    td_pooled v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const td_native_planes rows = divide(&v, threads);
    return td_native_planes_share(&rows);
}

const td_kernel td_native_conv2d_pool_int8 = { .name = "native_conv2d_pool_int8",
                                               .op = &td_op_conv2d_pool_int8,
                                               .accepts = accepts,
                                               .prepare = prepare,
                                               .run = run,
                                               .release = td_native_release_state,
                                               .share = share };
