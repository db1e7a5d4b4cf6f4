/*
 * native_depthwise_tiles.c -- filter gradients of depthwise convolutions
 *
 * oneDNN's direct kernels are for 3 x 3, and want as many rows as the filter has and little
 * padding; it computes the others as matrix products or with padded groups, 4 to 300 times as
 * slowly (docs/results/kernels.md).  The last block of channels may be padded with zeros, whose
 * gradients are zero, too.  With AVX2 its kernels are float32; the rest is
 * native_depthwise.c's, which is slower if a plane fits into a tile.  native_taps.inc has the
 * loops, for blocks of 8 and 16 channels and for channels last.
 *
 * A job is one block of some images (native_conv.h): the bits do not depend on the threads.
 */
#include <stdio.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include "backend/native/conv/native_depthwise.h"
#include "backend/native/simd/native_simd.h"
#include "base/half.h"
#include "tandem/program.h"

/* outputs whose products are added in one chain, of small planes: several images */
#define OUTPUTS_WANTED 64

/* --- supported nodes -------------------------------------------------------------------------- */

static bool is_avx512(void)
{
    return strncmp(td_half_simd_at(0)->name, "avx512", 6) == 0;
}

static int lanes_of(const char *layout)
{
    if (strcmp(layout, "aBcd8b") == 0)
        return 8;
    return strcmp(layout, "aBcd16b") == 0 || is_avx512() ? 16 : 8;
}

/* taps [*first, *first + *n) of one side meet a pixel: of `size` inputs, `count` outputs */
static void taps_in_use(const td_conv_attr *a, int64_t side, int64_t size, int64_t count,
                        int *first, int *n)
{
    const int64_t above = a->pad - (count - 1) * a->stride, last = size + a->pad - 1;
    *first = above > 0 ? (int)above : 0;
    *n = (int)(last < side - 1 ? last : side - 1) - *first + 1;
}

/* there are loops for 1, 2, 3, 5 and 7 columns of taps */
static void widen_columns(td_native_depthwise *v)
{
    v->cols += v->cols == 4 || v->cols == 6;
    if (v->first_col + v->cols > v->side)
        v->first_col = v->side - v->cols;
}

static int64_t tile_pixels(const td_native_depthwise *v)
{
    return ((v->tile_P - 1) * v->stride + v->rows) * ((v->tile_Q - 1) * v->stride + v->cols);
}

/* whole planes of some images, or a part of one plane that is not much wider than high */
static void choose_tile(td_native_depthwise *v, int64_t N)
{
    v->tile_P = v->P;
    v->tile_Q = v->Q;
    v->images = 1;
    if (tile_pixels(v) <= TD_NATIVE_TILE_PIXELS) {
        const int64_t most = TD_NATIVE_TILE_PIXELS / tile_pixels(v), area = v->P * v->Q;
        const int64_t wanted = (OUTPUTS_WANTED + area - 1) / area;
        v->images = wanted < most ? wanted : most;
        v->images = v->images < N ? v->images : N;
        return;
    }
    for (int64_t k = 1; tile_pixels(v) > TD_NATIVE_TILE_PIXELS; k++) {
        v->tile_Q = (v->Q + k - 1) / k;
        const int64_t width = (v->tile_Q - 1) * v->stride + v->cols;
        const int64_t rows = (TD_NATIVE_TILE_PIXELS / width - v->rows) / v->stride + 1;
        if (rows >= 8 || rows >= v->P || (v->tile_Q <= 16 && rows > 0))
            v->tile_P = rows < v->P ? rows : v->P;
    }
}

static bool is_whole(const td_native_depthwise *v)
{
    return v->tile_P == v->P && v->tile_Q == v->Q;
}

/* TD_ENOKERNEL where another kernel is faster */
static td_status check_speed(const td_native_depthwise *v, td_dtype d)
{
    const bool has_direct = v->side == 3 && (is_avx512() ? d != TD_DT_F16 : d == TD_DT_F32);
    if (has_direct && v->H >= v->side + v->pad % v->stride && v->pad <= v->side / 2)
        return td_error(TD_ENOKERNEL, "oneDNN has a direct kernel");
    if (!is_avx512() && !has_direct && d != TD_DT_F16 && !is_whole(v))
        return td_error(TD_ENOKERNEL, "a plane does not fit into a tile");
    return TD_OK;
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_native_depthwise *v)
{
    const td_conv_attr *a = n->attr;
    if (n->op != &td_op_conv2d_grad_w)
        return td_error(TD_ENOKERNEL, "not a filter gradient");
    const td_native_conv_types t = td_native_conv_types_of(n);
    const int64_t C = t.x->dim[1], side = t.w->dim[2];
    if (a->groups == 1 || a->groups != C || t.w->dim[0] != C)
        return td_error(TD_ENOKERNEL, "not one filter for each channel");
    if (t.w->dim[3] != side || (side != 3 && side != 5 && side != 7) || a->dilation != 1 ||
        a->pad >= side)
        return td_error(TD_ENOKERNEL, "not 3 x 3, 5 x 5 or 7 x 7");
    if (t.x->dtype != t.y->dtype || !td_native_knows(t.x->dtype))
        return td_error(TD_ENOKERNEL, "no loops for %s", td_dtype_name(t.x->dtype));
    *v = (td_native_depthwise){ .side = (int)side,
                                .stride = a->stride,
                                .pad = a->pad,
                                .H = t.x->dim[2],
                                .W = t.x->dim[3],
                                .P = t.y->dim[2],
                                .Q = t.y->dim[3] };
    taps_in_use(a, side, v->H, v->P, &v->first_row, &v->rows);
    taps_in_use(a, side, v->W, v->Q, &v->first_col, &v->cols);
    widen_columns(v);
    choose_tile(v, t.x->dim[0]);
    return check_speed(v, t.x->dtype);
}

static td_status filter_layout(const td_node *n, const char *image, char filter[TD_LAYOUT_BYTES])
{
    const int64_t C = td_in_type(n, 1)->dim[1];
    const int lanes = lanes_of(image);
    if (C % lanes && strcmp(image, "acdb") == 0)
        return td_error(TD_ENOKERNEL, "%lld channels do not fill lanes of %d", (long long)C, lanes);
    (void)snprintf(filter, TD_LAYOUT_BYTES, "%lldgAbcde%da", (long long)C, lanes);
    return TD_OK;
}

static bool is_known(const char *image)
{
    return strcmp(image, "acdb") == 0 || strcmp(image, "aBcd8b") == 0 ||
           strcmp(image, "aBcd16b") == 0;
}

static td_status accepts(const td_node *n)
{
    td_native_depthwise v;
    char filter[TD_LAYOUT_BYTES];
    TD_TRY(shape_of(n, &v));
    TD_TRY(td_native_conv_check(n));
    const char *image = td_in_type(n, 1)->layout;
    if (!is_known(image))
        return td_error(TD_ENOKERNEL, "the images are neither in blocks nor channels last");
    TD_TRY(filter_layout(n, image, filter));
    return td_native_conv_check_layouts(n, image, filter);
}

/* the layout that the images have */
bool td_native_depthwise_tiles_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_native_depthwise v;
    char filter[TD_LAYOUT_BYTES];
    if (shape_of(n, &v) != TD_OK || td_native_conv_check(n) != TD_OK)
        return false;
    const char *dy = td_in_type(n, 0)->layout, *x = td_in_type(n, 1)->layout;
    const char *image = is_known(x) ? x : is_known(dy) ? dy : NULL;
    if (!image)
        image = is_avx512() ? "aBcd16b" : "aBcd8b";
    if (filter_layout(n, image, filter) != TD_OK)
        return false;
    td_native_conv_layouts(n, image, filter, out);
    return true;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    const td_native_simd *simd;
    td_native_depthwise v;
    int64_t x_block, y_block; /* elements from one channel block to the next */
    int64_t each;             /* bytes of an element */
    const char *dy, *x;
} job;

static job job_of(const td_node *n)
{
    job j;
    const td_type *x = td_in_type(n, 1);
    const int lanes = lanes_of(x->layout);
    const int64_t C = divide_up(x->dim[1], lanes) * lanes;
    TD_CHECK(shape_of(n, &j.v) == TD_OK);
    j.simd = td_native_simd_for(x->dtype, lanes);
    j.each = (int64_t)td_dtype_bytes(x->dtype);
    j.v.pixel = strcmp(x->layout, "acdb") == 0 ? C : lanes;
    j.v.x_image = j.v.H * j.v.W * C;
    j.v.y_image = j.v.P * j.v.Q * C;
    j.x_block = j.v.pixel == C ? lanes : j.v.H * j.v.W * lanes;
    j.y_block = j.v.pixel == C ? lanes : j.v.P * j.v.Q * lanes;
    return j;
}

static td_native_filter_parts parts_of(const td_node *n)
{
    const td_type *x = td_in_type(n, 1);
    return td_native_filter_divide(x->dim[0], divide_up(x->dim[1], lanes_of(x->layout)), 1);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_native_filter_parts parts = parts_of(n);
    out->scratch_bytes = td_native_filter_scratch(&parts, &n->out[0]->type);
    return TD_OK;
}

static void add_gradients(const void *context, int64_t from, int64_t to, int64_t cb, float *sums)
{
    const job *j = context;
    j->simd->depthwise_grad_w(&j->v, to - from,
                              j->dy + (from * j->v.y_image + cb * j->y_block) * j->each,
                              j->x + (from * j->v.x_image + cb * j->x_block) * j->each, sums);
}

static td_status run(const td_prepared *p, void *const *args)
{
    job j = job_of(p->node);
    j.dy = args[0];
    j.x = args[1];
    td_native_filter_run(
        &(td_native_filter_job){ .parts = parts_of(p->node),
                                 .count = td_type_padded_count(&p->node->out[0]->type),
                                 .dw = args[3],
                                 .scratch = args[4],
                                 .context = &j,
                                 .add = add_gradients });
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const job j = job_of(n);
    const td_native_filter_parts parts = parts_of(n);
    return td_native_filter_share(&parts, j.v.P * j.v.Q * j.simd->lanes, threads);
}

const td_kernel td_native_depthwise_tiles_grad_w = { .name = "native_depthwise_tiles_grad_w",
                                                     .op = &td_op_conv2d_grad_w,
                                                     .accepts = accepts,
                                                     .prepare = prepare,
                                                     .run = run,
                                                     .share = share };
