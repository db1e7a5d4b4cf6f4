/*
 * native_pointwise_int8.c -- 1x1 convolutions of 8-bit integers with a result of 8 bits or of
 * float32
 *
 *     y = sum (x_scale scale[k] / y_scale) + bias[k] / y_scale
 *         + residual (residual_scale / y_scale)
 *
 * for processors with VNNI and without AMX.  oneDNN spends as much time on the scales, the bias and
 * the residual as on the products where a filter has few channels; here they take two
 * multiplications for each result.  relu is what clipping to u8 does; the step of a
 * float32 result is 1.
 *
 * Filters are read from the L2 cache for every tile of 6 pixels if all fit, otherwise for as many
 * pixels as fit.
 */
#include "backend/native/int8/native_pointwise_int8.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

enum { FILTER_BYTES = 512 * 1024 /* limit of a filter that is read whole for each tile */ };

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    if (w->dim[2] != 1 || w->dim[3] != 1 || a->pad || a->pad_extra || a->groups != 1)
        return td_error(TD_ENOKERNEL, "not 1x1, or padded, or in groups");
    return td_native_int8_check(n, td_pointwise_loops_here() != NULL);
}

static td_status accepts(const td_node *n)
{
    return td_native_int8_accepts(n, check);
}

bool td_native_pointwise_int8_preferred_layout(const td_node *n, td_node_layouts *out)
{
    return td_native_int8_preferred_layout(n, check, out);
}

/* --- division --------------------------------------------------------------------------------- */

/* divides pixels; one instruction multiplies four channels of a pixel by 16 filters */
static td_native_grid divide(const td_node *n, int threads)
{
    const td_type *y = &n->out[0]->type;
    const double cycles = (double)td_in_type(n, 1)->dim[1] * TD_INT8_CHANNELS / 64;
    return td_native_int8_divide(n, y->dim[0] * y->dim[2] * y->dim[3], cycles, threads);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_pointwise v; /* without pointers */
    td_native_grid d;
} state;

static td_int8_residual kind_of(const td_node *n)
{
    if (n->n_in < 5)
        return TD_INT8_NO_RESIDUAL;
    const td_dtype d = td_in_type(n, 4)->dtype;
    return d == TD_DT_U8 ? TD_INT8_UNSIGNED : d == TD_DT_S8 ? TD_INT8_SIGNED : TD_INT8_FLOAT;
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
    out->scratch_bytes = td_native_int8_scratch(n, &s->d);
    s->v = (td_pointwise){ .C = x->dim[1],
                           .K = y->dim[1],
                           .H = x->dim[2],
                           .W = x->dim[3],
                           .P = y->dim[2],
                           .Q = y->dim[3],
                           .stride = a->stride,
                           .is_signed = y->dtype == TD_DT_S8,
                           .is_float = y->dtype == TD_DT_F32,
                           .relu = a->relu,
                           .residual_kind = kind_of(n),
                           .residual_scale = (float)(a->residual_scale / a->y_scale) };
    return TD_OK;
}

/* pixels [from, to) of 64 channels; has_next: the filter of the next 64 is fetched */
static void run_block(const td_pointwise *v, int64_t from, int64_t to, int64_t k, bool has_next)
{
    td_pointwise_loops *loops = td_pointwise_loops_here();
    const int64_t bytes = v->C * TD_INT8_CHANNELS, step = bytes / TD_INT8_AHEAD_TILES;
    const int64_t each = TD_POINTWISE_PIXELS - !v->is_bounded;
    const int8_t *next = has_next ? v->w + (k + 1) * bytes : NULL;
    for (int64_t q = from, i = 0; q < to; q += each, i++) {
        const td_pointwise_tile t = { .from = q,
                                      .to = smaller(q + each, to),
                                      .k = k,
                                      .ahead = next && i < TD_INT8_AHEAD_TILES ? next + i * step
                                                                               : NULL };
        loops(v, &t);
    }
}

static void run_blocks(const td_pointwise *v, const td_native_cell *t)
{
    const int64_t bytes = (t->block_to - t->block_from) * TD_INT8_CHANNELS * v->C;
    const bool fits = bytes <= FILTER_BYTES && bytes <= (t->to - t->from) * v->C;
    const int64_t tiles = fits ? 1 : divide_up(TD_INT8_IMAGE_BYTES, v->C * TD_POINTWISE_PIXELS);
    const int64_t each = tiles * TD_POINTWISE_PIXELS;
    for (int64_t p = t->from; p < t->to; p += each)
        for (int64_t k = t->block_from; k < t->block_to; k++)
            run_block(v, p, smaller(p + each, t->to), k, !fits && k + 1 < t->block_to);
}

static void run_part(const td_prepared *p, void *const *args, const td_native_cell *part,
                     const td_int8_scales *scales)
{
    const td_node *n = p->node;
    td_pointwise v = ((const state *)p->state)->v;
    v.x = args[0];
    v.w = args[1];
    v.scale = scales->scale;
    v.bias = scales->bias;
    v.is_bounded = scales->is_bounded;
    v.residual = n->n_in > 4 ? args[4] : NULL;
    v.y = args[n->n_in];
    run_blocks(&v, part);
}

static td_status run(const td_prepared *p, void *const *args)
{
    td_native_int8_run(p, args, &((const state *)p->state)->d, run_part);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_native_grid d = divide(n, threads);
    return td_native_grid_share(&d, (double)(td_in_type(n, 1)->dim[1] * TD_INT8_CHANNELS), threads);
}

const td_kernel td_native_pointwise_int8 = { .name = "native_pointwise_int8",
                                             .op = &td_op_conv2d_int8,
                                             .accepts = accepts,
                                             .prepare = prepare,
                                             .run = run,
                                             .release = td_native_release_state,
                                             .share = share };
