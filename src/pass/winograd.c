/*
 * winograd.c -- computes 3x3 convolutions of stride 1 or 2 in tiles by Winograd's algorithm
 *
 *     conv2d_fused(x, w, bias, residual) {pad, stride, relu}
 *         conv2d_winograd(x, winograd_filter(w) {stride}, bias, residual) {pad, stride, relu}
 *     conv2d(x, w) {pad, stride}
 *         conv2d_winograd(x, winograd_filter(w) {stride}) {pad, stride}
 *     conv2d_grad_x(dy, w, x) {pad}
 *         conv2d_winograd(dy, winograd_filter(w) {grad_x}) {2 - pad}
 *     conv2d_grad_x(dy, w, x) {pad=1, stride=2}
 *         conv2d_winograd_grad_x(dy, winograd_filter(w) {grad_x, stride=2}, x)
 *     conv2d_grad_w(dy, x, w) {pad, stride}
 *         conv2d_winograd_grad_w(dy, x, w) {pad, stride}
 *
 * Images are float32 or bfloat16; filters and sums are float32, so a filter that is cast to
 * bfloat16 is transformed as it is before.  For results and images' gradients in bfloat16 {tile=2}
 * may be faster, with products of bfloat16: 16 C K, at their rate, for 36 C K of the direct
 * convolution.
 *
 * It applies if the device has a kernel for it on channel blocks (the reference device has none).
 * If w depends on parameters only, which the graph does not change, winograd_filter runs once.  In
 * training it runs in every step; then the device must prefer the same layouts for the direct
 * convolution: in others every image would be reordered.
 *
 * Whether it is faster is estimated from counts.  A tile costs 36 C K multiplications for up to 144
 * C K of the direct convolution, one of 3 x 3 results 25 for 81, with stride 2 81 for 144 and 49
 * for 81; transforms cost about as much as 36 (C + K) 32 more, with stride 2 81 (C + K) 20; and the
 * filters, four times as large, are read once per run of tiles, which costs too much for few tiles,
 * and in training transformed.  The counts depend on shapes, the batch included, the type of images
 * and how fast the processor multiplies bfloat16, and on nothing else: ranks and accumulated
 * batches of one size choose alike, whatever their number of threads.  Where programs of smaller
 * batches run beside this one, which share its filters, a large filter that only this one would
 * keep transformed has to save more.
 */
#include <math.h>
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* --- choosing convolutions -------------------------------------------------------------------- */

#define CHANNELS_MIN 32 /* channels of input and output */

/* costs in multiplications: the transforms of a tile, per channel; reading a transformed filter,
   and making it, per element */
#define TRANSFORM_COST         (36 * 32)
#define TRANSFORM_HALF_COST    (36 * 20) /* if images are bfloat16 */
#define TRANSFORM_SMALL_COST   (16 * 5)
#define TRANSFORM_STRIDED_COST (81 * 20)
#define READ_COST              4
#define READ_SMALL_COST        2
#define FILTER_COST            40

/* Elements from which a transformed filter that is kept has to save this factor of multiplications,
   because of its memory: with 8 images of 5x5 and 256 or 512 channels, which save 1.14 to 1.25, the
   direct convolution is as fast or faster, with 3x3, 1.29, it is slower. */
#define LARGE_FILTER    (1 << 20)
#define LEAST_GAIN      1.27
#define LEAST_HALF_GAIN 1.15
#define LEAST_OWN_GAIN  2 /* if programs of the smallest batch keep the filter as it is, too */

/* a filter's gradient from bfloat16, per element of a transformed filter: the sums are transformed
   once, and read and written for every SUM_TILES tiles more; half as many with stride 2 */
#define SUM_COST     28
#define SUM_ADD_COST 20
#define SUM_TILES    128
#define LEAST_SUM    1.05

static bool is_grad_x(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_x;
}

static bool is_grad_w(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_w;
}

static const td_type *filter_of(const td_node *conv)
{
    return td_in_type(conv, is_grad_w(conv) ? 2 : 1);
}

static bool is_half(const td_node *conv)
{
    return td_in_type(conv, 0)->dtype == TD_DT_BF16;
}

static int stride_of(const td_node *conv)
{
    return ((const td_conv_attr *)conv->attr)->stride;
}

static td_winograd_form large_form(const td_node *conv)
{
    return stride_of(conv) == 1 ? TD_WINO_LARGE
           : is_grad_x(conv)    ? TD_WINO_TRANSPOSED
                                : TD_WINO_STRIDED;
}

/* along one side: how often a result of y meets a pixel of x, which is not of the padding */
static double count_taps(int64_t x, int64_t y, int64_t pad, int64_t stride)
{
    int64_t n = 0;
    for (int64_t p = 0; p < y; p++)
        for (int64_t tap = 0, at = p * stride - pad; tap < 3; tap++, at++)
            n += at >= 0 && at < x;
    return (double)n;
}

/* what is in tiles */
static const td_type *tiled_of(const td_node *conv, td_winograd_form form)
{
    return is_grad_w(conv) || form == TD_WINO_TRANSPOSED ? td_in_type(conv, 0)
                                                         : &conv->out[0]->type;
}

/* per channel and filter; from images in bfloat16 without those of the padding, which are left out,
   except in filter gradients */
static double direct_products(const td_node *conv)
{
    const bool is_grad = is_grad_x(conv) || is_grad_w(conv);
    const td_type *y = is_grad ? td_in_type(conv, 0) : &conv->out[0]->type;
    const td_type *x = is_grad ? &conv->out[0]->type : td_in_type(conv, 0);
    const int pad = ((const td_conv_attr *)conv->attr)->pad, stride = stride_of(conv);
    if (!is_half(conv) || is_grad_w(conv))
        return 9 * (double)(y->dim[0] * y->dim[2] * y->dim[3]);
    return (double)y->dim[0] * count_taps(x->dim[2], y->dim[2], pad, stride) *
           count_taps(x->dim[3], y->dim[3], pad, stride);
}

/* How the filter and the device bear on the choice. */
typedef struct {
    bool is_fixed; /* the filter is transformed once */
    double rate;   /* direct products in the time of one in float32 */
    double share;  /* smallest batch that shares the filter, divided by this batch; 1: none does */
} choice;

/* without the filter */
static double cost_of_tiles(const td_node *conv, td_winograd_form form, const choice *by, double c,
                            double k)
{
    const td_type *tiled = tiled_of(conv, form);
    const double tiles = (double)td_winograd_tiles(tiled, form);
    const double products = (double)td_winograd_products(tiled, form) * c * k;
    if (form == TD_WINO_SMALL)
        return products / by->rate + tiles * TRANSFORM_SMALL_COST * (c + k);
    const double transform = form != TD_WINO_LARGE ? TRANSFORM_STRIDED_COST
                             : is_half(conv)       ? TRANSFORM_HALF_COST
                                                   : TRANSFORM_COST;
    return products + tiles * transform * (c + k);
}

static bool is_faster_half_grad_w(const td_node *conv, td_winograd_form form, const choice *by,
                                  double c, double k)
{
    const double tiles = (double)td_winograd_tiles(tiled_of(conv, form), form);
    const double each = form == TD_WINO_LARGE ? SUM_TILES : SUM_TILES / 2;
    const double groups = tiles > each ? tiles / each - 1 : 0;
    const double sums = 36 * c * k * (SUM_COST + SUM_ADD_COST * groups);
    return LEAST_SUM * (cost_of_tiles(conv, form, by, c, k) + sums) <
           direct_products(conv) * c * k / by->rate;
}

/* with tiles of this form for a share of the images: the cost, and that without tiles */
static double cost_of_share(const td_node *conv, td_winograd_form form, const choice *by,
                            double share, double *direct)
{
    const td_type *w = filter_of(conv);
    const double k = (double)w->dim[0], c = (double)w->dim[1];
    const double points = form == TD_WINO_SMALL ? TD_WINO_SMALL_POINTS : TD_WINO_POINTS;
    const double read = form == TD_WINO_SMALL ? READ_SMALL_COST : READ_COST;
    const double filter = points * c * k * (read + (by->is_fixed ? 0 : FILTER_COST));
    *direct = share * direct_products(conv) * c * k / by->rate;
    return share * cost_of_tiles(conv, form, by, c, k) + filter;
}

/* is the filter kept, and its memory that of many others? */
static bool is_large_filter(const td_node *conv, td_winograd_form form, const choice *by)
{
    const td_type *w = filter_of(conv);
    return by->is_fixed && form != TD_WINO_SMALL &&
           TD_WINO_POINTS * (double)w->dim[0] * (double)w->dim[1] > LARGE_FILTER;
}

/* the cost by tiles of this form; INFINITY: the direct convolution is as fast */
static double cost_of(const td_node *conv, td_winograd_form form, const choice *by)
{
    double direct, least = 1;
    if (is_large_filter(conv, form, by)) {
        least = is_half(conv) ? LEAST_HALF_GAIN : LEAST_GAIN;
        if (least * cost_of_share(conv, form, by, by->share, &direct) >= direct)
            least = LEAST_OWN_GAIN;
    }
    const double cost = cost_of_share(conv, form, by, 1, &direct);
    return least * cost < direct ? cost : INFINITY;
}

static bool is_faster_filter_gradient(const td_node *conv, td_winograd_form form, const choice *by)
{
    const td_type *w = filter_of(conv);
    return is_half(conv)
               ? is_faster_half_grad_w(conv, form, by, (double)w->dim[1], (double)w->dim[0])
               : cost_of(conv, form, by) < INFINITY;
}

static bool is_wide_vector(const td_node *n, int i)
{
    return n->op == &td_op_conv2d_fused && i == 2;
}

/* float32, or bfloat16 with float32 vectors and filter gradients */
static bool has_dtypes(const td_node *n)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i) &&
            td_in_type(n, i)->dtype != (is_wide_vector(n, i) ? TD_DT_F32 : d))
            return false;
    return d == TD_DT_F32 ||
           (d == TD_DT_BF16 && (!is_grad_w(n) || ((const td_conv_attr *)n->attr)->wide));
}

static bool has_shape(const td_node *n)
{
    if (n->op != &td_op_conv2d_fused && n->op != &td_op_conv2d && !is_grad_x(n) && !is_grad_w(n))
        return false;
    const td_conv_attr *a = n->attr;
    if (a->stride > 2 || a->dilation != 1 || a->groups != 1 || a->pad_extra || a->tf32 || a->act)
        return false;
    if (is_grad_x(n) && (a->stride == 1 ? a->pad > 2 : a->pad != 1))
        return false;
    const td_type *w = filter_of(n);
    return has_dtypes(n) && w->dim[2] == 3 && w->dim[3] == 3 && w->dim[0] % TD_WINO_LANES == 0 &&
           w->dim[1] % TD_WINO_LANES == 0 && w->dim[0] >= CHANNELS_MIN && w->dim[1] >= CHANNELS_MIN;
}

static const td_op *op_of(const td_node *conv)
{
    return is_grad_w(conv)                          ? &td_op_conv2d_winograd_grad_w
           : large_form(conv) == TD_WINO_TRANSPOSED ? &td_op_conv2d_winograd_grad_x
                                                    : &td_op_conv2d_winograd;
}

/* the attributes of op_of(conv); conv2d_winograd_grad_x has none */
static td_winograd_attr attr_of(const td_node *conv, td_winograd_form form)
{
    const td_conv_attr *a = conv->attr;
    return (td_winograd_attr){ .tile = td_winograd_tile(form),
                               .pad = is_grad_x(conv) ? 2 - a->pad : a->pad,
                               .stride = a->stride,
                               .relu = a->relu,
                               .relu6 = a->relu6,
                               .wide = a->wide };
}

/* operands of op_of: an image's gradient of stride 1 reads no x */
static int operands_of(const td_node *conv)
{
    return is_grad_x(conv) && stride_of(conv) == 1 ? 2 : conv->n_in;
}

static bool is_supported_in(const td_target *target, const td_node *conv, td_winograd_form form,
                            const td_node_layouts *layouts)
{
    const td_type *w = filter_of(conv);
    const int64_t k = w->dim[is_grad_x(conv) ? 1 : 0], c = w->dim[is_grad_x(conv) ? 0 : 1];
    td_winograd_attr attr = attr_of(conv, form);
    td_probe p;
    td_probe_init(&p, conv);
    p.node.op = op_of(conv);
    p.node.attr = form == TD_WINO_TRANSPOSED ? NULL : &attr;
    p.node.n_in = operands_of(conv);
    if (!is_grad_w(conv))
        p.node.in[1]->type = td_winograd_filter_type(form, k, c, TD_DT_F32);
    td_probe_set_layouts(&p, layouts);
    return target->supports(target->ctx, &p.node);
}

/* does the device have a kernel for channel blocks, and for the layouts of the direct form? */
static bool is_supported(const td_target *target, const td_node *conv, td_winograd_form form,
                         bool is_fixed)
{
    static const td_node_layouts blocks = { .in = { "aBcd16b", "", "", "aBcd16b" },
                                            .out = "aBcd16b" };
    td_node_layouts direct = { 0 };
    if (!target || target->direct_only)
        return false;
    if (!is_grad_w(conv) && !is_supported_in(target, conv, form, &blocks))
        return false;
    if (is_fixed)
        return true;
    if (!target->preferred_layout(target->ctx, conv, &direct))
        return false;
    if (!is_grad_w(conv)) /* transformed filters are plain */
        memset(direct.in[1], 0, sizeof direct.in[1]);
    return is_supported_in(target, conv, form, &direct);
}

/* cost_of where the device can, which takes longer to find out: INFINITY if not */
static double possible_cost(const td_target *target, const td_node *conv, td_winograd_form form,
                            const choice *by)
{
    const double cost = cost_of(conv, form, by);
    return cost < INFINITY && is_supported(target, conv, form, by->is_fixed) ? cost : INFINITY;
}

/* --- the pass --------------------------------------------------------------------------------- */

/* is_fixed[node]: its results depend only on parameters that the graph does not overwrite */
static td_status begin(td_rewriter *rw)
{
    const td_graph *g = rw->old;
    bool *is_fixed = td_alloc((size_t)g->n_nodes + 1, sizeof *is_fixed);
    if (!is_fixed)
        return TD_ENOMEM;
    (void)td_plan_mark_setup(g, is_fixed);
    for (int i = 0; i < g->n_nodes; i++)
        is_fixed[i] |= g->nodes[i]->n_out && td_value_is_param(g->nodes[i]->out[0]);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->op->writes >> k & 1)
                is_fixed[g->nodes[i]->in[k]->producer->id] = false;
    rw->state = is_fixed;
    return TD_OK;
}

static void end(td_rewriter *rw)
{
    td_free(rw->state);
    rw->state = NULL;
}

/* the smallest batch compiled for the same filters, divided by that of n; 1: none is smaller */
static double smallest_share(const td_target *target, const td_node *n)
{
    const int smallest = target ? target->smallest_batch : 0;
    const int64_t images = td_in_type(n, 0)->dim[0];
    return smallest && smallest < images ? (double)smallest / (double)images : 1;
}

/* TD_WINO_FORMS: direct */
static td_winograd_form chosen_form(const td_rewriter *rw, const td_node *n)
{
    const bool *is_fixed = rw->state;
    if (!has_shape(n))
        return TD_WINO_FORMS;
    const choice by = { .is_fixed = !is_grad_w(n) && is_fixed[n->in[1]->producer->id],
                        .rate = is_half(n) && rw->target ? rw->target->bf16_rate : 1,
                        .share = smallest_share(rw->target, n) };
    const td_winograd_form form = large_form(n);
    if (is_grad_w(n))
        return is_faster_filter_gradient(n, form, &by) &&
                       is_supported(rw->target, n, form, by.is_fixed)
                   ? form
                   : TD_WINO_FORMS;
    const double large = possible_cost(rw->target, n, form, &by);
    const double small = is_half(n) && form == TD_WINO_LARGE
                             ? possible_cost(rw->target, n, TD_WINO_SMALL, &by)
                             : INFINITY;
    return small < large ? TD_WINO_SMALL : large < INFINITY ? form : TD_WINO_FORMS;
}

/* the filter to transform: what a cast reads if that is float32, which is more exact */
static td_value *uncast(td_rewriter *rw, const td_node *n, td_value *w)
{
    const td_node *cast = n->in[1]->producer;
    return cast->op == &td_op_cast && td_in_type(cast, 0)->dtype == TD_DT_F32 &&
                   !td_overwritten_between(rw->old, cast->id, n->id, cast)
               ? td_rw_get(rw, cast->in[0])
               : w;
}

static void node(td_rewriter *rw, const td_node *n, td_value **in)
{
    const td_winograd_form form = chosen_form(rw, n);
    if (form == TD_WINO_FORMS) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    const td_winograd_attr attr = attr_of(n, form);
    const td_winograd_filter_attr filter = { .grad_x = is_grad_x(n),
                                             .tile = td_winograd_tile(form),
                                             .stride = stride_of(n) };
    if (!is_grad_w(n))
        in[1] = td_emit(rw->b, &td_op_winograd_filter, &filter, uncast(rw, n, in[1]));
    td_rw_set(rw, n->out[0],
              td_emit_n(rw->b, op_of(n), form == TD_WINO_TRANSPOSED ? NULL : &attr, operands_of(n),
                        in, NULL));
    rw->n_changed++;
}

const td_pass td_pass_winograd = {
    .name = "winograd",
    .summary = "3x3 convolutions with fewer multiplications",
    .counts = "convolutions in tiles",
    .node = node,
    .begin = begin,
    .end = end,
};
