/*
 * native_pointwise_int8.c -- 1x1 convolutions of 8-bit integers with a result of 8 bits
 *
 *     y = sum (x_scale scale[k] / y_scale) + bias[k] / y_scale
 *         + residual (residual_scale / y_scale)
 *
 * for processors with VNNI and without AMX.  oneDNN spends as much time on the scales, the bias and
 * the residual as on the products where a filter has few channels; here they take two
 * multiplications for each result.  relu is what clipping to u8 does.
 *
 *     thread (i, j) of a x b     pixels i/a of all, channels j/b of all; of all such divisions the
 *                                one with the least work of a thread, then with the least traffic
 *
 * Filters are read from the L2 cache for every tile of 6 pixels if all fit, otherwise for as many
 * pixels as fit.
 */
#include "backend/native/native_pointwise_int8.h"

#include "backend/native/native_conv.h"
#include "backend/native/native_division.h"
#include "base/arena.h"
#include "base/machine.h"
#include "tandem/program.h"

enum {
    FILTER_BYTES = 512 * 1024, /* limit of a filter that is read whole for each tile */
    IMAGE_BYTES = 256 * 1024   /* of a larger filter: images read for each 64 channels */
};

static const td_node_layouts layouts = { .in = { "acdb", "AcdB64a4b", "", "", "acdb" },
                                         .out = "acdb" };

static td_status check_types(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dtype y = n->out[0]->type.dtype;
    if (td_in_type(n, 0)->dtype != TD_DT_U8)
        return td_error(TD_ENOKERNEL, "the input is %s, wanted u8",
                        td_dtype_name(td_in_type(n, 0)->dtype));
    if (y == TD_DT_F32 || (a->relu && (a->relu6 || y != TD_DT_U8)))
        return td_error(TD_ENOKERNEL, "the result is %s%s", td_dtype_name(y),
                        a->relu ? " after relu or relu6" : "");
    return TD_OK;
}

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    TD_TRY(check_types(n));
    if (w->dim[2] != 1 || w->dim[3] != 1 || a->pad || a->pad_extra || a->groups != 1)
        return td_error(TD_ENOKERNEL, "not 1x1, or padded, or in groups");
    if (w->dim[0] % TD_POINTWISE_CHANNELS || w->dim[1] % 4)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld, wanted multiples of 4 and %d",
                        (long long)w->dim[1], (long long)w->dim[0], TD_POINTWISE_CHANNELS);
    if (!td_pointwise_loops_here())
        return td_error(TD_ENOKERNEL, "the processor has no AVX-512 VNNI");
    if (td_cpu_bf16_rate() == TD_BF16_RATE_MATRICES)
        return td_error(TD_ENOKERNEL, "the processor has AMX, which oneDNN uses");
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    return td_native_check_layouts(n, &layouts);
}

bool td_native_pointwise_int8_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if (n->op != &td_op_conv2d_int8 || check(n) != TD_OK)
        return false;
    *out = layouts;
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    int64_t tiles, blocks; /* tiles of 6 pixels, blocks of 64 channels */
    int pixel_parts, channel_parts;
} division;

static division divide(const td_node *n, int threads)
{
    const td_type *x = td_in_type(n, 0), *w = td_in_type(n, 1), *y = &n->out[0]->type;
    const double x_bytes = (double)td_type_count(x), w_bytes = (double)td_type_count(w);
    division d = { .tiles = divide_up(y->dim[0] * y->dim[2] * y->dim[3], TD_POINTWISE_PIXELS),
                   .blocks = w->dim[0] / TD_POINTWISE_CHANNELS };
    int64_t least = INT64_MAX;
    double traffic = 0;
    for (int a = 1; a <= threads; a++) {
        const int b = threads / a;
        const int64_t work = divide_up(d.tiles, a) * divide_up(d.blocks, b);
        const double bytes = a * w_bytes + b * x_bytes;
        if (work < least || (work == least && bytes < traffic)) {
            least = work;
            traffic = bytes;
            d.pixel_parts = a;
            d.channel_parts = b;
        }
    }
    return d;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_pointwise v; /* without pointers */
    division d;
} state;

static void release(td_prepared *p)
{
    td_free(p->state);
    p->state = NULL;
}

static td_pointwise_residual kind_of(const td_node *n)
{
    return n->n_in < 5                           ? TD_POINTWISE_NONE
           : td_in_type(n, 4)->dtype == TD_DT_U8 ? TD_POINTWISE_UNSIGNED
                                                 : TD_POINTWISE_SIGNED;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->d = divide(n, td_threads());
    out->scratch_bytes =
        (size_t)(s->d.pixel_parts * s->d.channel_parts) * 2 * (size_t)y->dim[1] * sizeof(float);
    s->v = (td_pointwise){ .pixels = y->dim[0] * y->dim[2] * y->dim[3],
                           .C = x->dim[1],
                           .K = y->dim[1],
                           .H = x->dim[2],
                           .W = x->dim[3],
                           .P = y->dim[2],
                           .Q = y->dim[3],
                           .stride = a->stride,
                           .is_signed = y->dtype == TD_DT_S8,
                           .residual_kind = kind_of(n),
                           .residual_scale = (float)(a->residual_scale / a->y_scale) };
    return TD_OK;
}

/* part i of `all` things in n parts */
static int64_t part_of(int64_t all, int n, int i)
{
    return all * i / n;
}

/* pixels of part i, channels [64 k_from, 64 k_to) */
static void run_part(const td_pointwise *v, const division *d, int i, int64_t k_from, int64_t k_to)
{
    td_pointwise_loops *loops = td_pointwise_loops_here();
    const int64_t from = part_of(d->tiles, d->pixel_parts, i) * TD_POINTWISE_PIXELS;
    const int64_t end = part_of(d->tiles, d->pixel_parts, i + 1) * TD_POINTWISE_PIXELS;
    const int64_t to = end < v->pixels ? end : v->pixels;
    const bool fits = (k_to - k_from) * TD_POINTWISE_CHANNELS * v->C <= FILTER_BYTES;
    const int64_t tiles = fits ? 1 : divide_up(IMAGE_BYTES, v->C * TD_POINTWISE_PIXELS);
    const int64_t each = tiles * TD_POINTWISE_PIXELS;
    for (int64_t p = from; p < to; p += each)
        for (int64_t k = k_from; k < k_to; k++)
            for (int64_t q = p; q < (p + each < to ? p + each : to); q += TD_POINTWISE_PIXELS)
                loops(v, q, q + TD_POINTWISE_PIXELS < to ? q + TD_POINTWISE_PIXELS : to, k);
}

/* channels [from, to) of the scales and the bias, in steps of y */
static void scale_channels(const td_conv_int8_attr *a, int64_t from, int64_t to, void *const *args,
                           float *scale, float *bias)
{
    const float by = (float)(a->x_scale / a->y_scale), bias_by = (float)(1 / a->y_scale);
    const float *s = args[2], *b = args[3];
    for (int64_t k = from; k < to; k++) {
        scale[k] = s[k] * by;
        bias[k] = b[k] * bias_by;
    }
}

/* own: scratch of a thread */
static td_pointwise with_pointers(const td_node *n, const td_pointwise *shape, void *const *args,
                                  const float *own)
{
    td_pointwise v = *shape;
    v.x = args[0];
    v.w = args[1];
    v.scale = own;
    v.bias = own + v.K;
    v.residual = n->n_in > 4 ? args[4] : NULL;
    v.y = args[n->n_in];
    return v;
}

static void run_thread(const td_node *n, const state *s, int t, void *const *args)
{
    const division *d = &s->d;
    const int i = t / d->channel_parts, j = t % d->channel_parts;
    const int64_t k_from = part_of(d->blocks, d->channel_parts, j);
    const int64_t k_to = part_of(d->blocks, d->channel_parts, j + 1);
    float *own = (float *)args[n->n_in + 1] + t * 2 * s->v.K;
    scale_channels(n->attr, k_from * TD_POINTWISE_CHANNELS, k_to * TD_POINTWISE_CHANNELS, args, own,
                   own + s->v.K);
    const td_pointwise v = with_pointers(n, &s->v, args, own);
    run_part(&v, d, i, k_from, k_to);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const state *s = p->state;
    const int threads = s->d.pixel_parts * s->d.channel_parts;
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++)
        run_thread(n, s, t, args);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const division d = divide(n, threads);
    const double each = (double)(td_in_type(n, 1)->dim[1] * TD_POINTWISE_CHANNELS);
    const int64_t most = divide_up(d.tiles, d.pixel_parts) * divide_up(d.blocks, d.channel_parts);
    return (td_work_share){ (double)most * each, (double)(d.tiles * d.blocks) * each / threads };
}

const td_kernel td_native_pointwise_int8 = { .name = "native_pointwise_int8",
                                             .op = &td_op_conv2d_int8,
                                             .accepts = accepts,
                                             .prepare = prepare,
                                             .run = run,
                                             .release = release,
                                             .share = share };
