/*
 * native_taps_int8.c -- 3x3 convolutions of 8-bit integers with a result of 8 bits
 *
 *     y = sum (x_scale scale[k] / y_scale) + bias[k] / y_scale
 *
 * for processors with VNNI and without AMX.  oneDNN divides small planes by rows, of which one
 * thread has 4 and another 3; here planes or channels are divided.  Each thread fetches the filter
 * of the next 64 channels from memory while it computes these.  relu is what clipping to u8 does.
 */
#include "backend/native/int8/native_taps_int8.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1), *y = &n->out[0]->type;
    if (w->dim[2] != 3 || w->dim[3] != 3 || a->pad != 1 || a->pad_extra || a->groups != 1 ||
        a->dilation != 1)
        return td_error(TD_ENOKERNEL, "not 3x3 with a padding of 1, or in groups");
    if (n->n_in > 4 || y->dim[3] % TD_TAPS_PIXELS)
        return td_error(TD_ENOKERNEL, "a residual, or rows of %lld pixels, not a multiple of %d",
                        (long long)y->dim[3], TD_TAPS_PIXELS);
    if (y->dtype == TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the result is float32");
    return td_native_int8_check(n, td_taps_loops_here() != NULL);
}

static td_status accepts(const td_node *n)
{
    return td_native_int8_accepts(n, check);
}

bool td_native_taps_int8_preferred_layout(const td_node *n, td_node_layouts *out)
{
    return td_native_int8_preferred_layout(n, check, out);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_taps v; /* without pointers */
    td_native_grid d;
} state;

static td_native_grid divide(const td_node *n, int threads)
{
    const td_type *y = &n->out[0]->type;
    const double cycles = TD_TAPS_PIXELS * 9.0 * (double)td_in_type(n, 1)->dim[1];
    return td_native_int8_divide(n, y->dim[0] * y->dim[2] * (y->dim[3] / TD_TAPS_PIXELS), cycles,
                                 threads);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->d = divide(n, td_threads());
    out->scratch_bytes = td_native_int8_scratch(n, &s->d);
    s->v = (td_taps){ .N = y->dim[0],
                      .C = x->dim[1],
                      .K = y->dim[1],
                      .H = x->dim[2],
                      .W = x->dim[3],
                      .P = y->dim[2],
                      .Q = y->dim[3],
                      .stride = ((const td_conv_int8_attr *)n->attr)->stride,
                      .is_signed = y->dtype == TD_DT_S8 };
    return TD_OK;
}

/* tiles [from, to) of 64 channels; has_next: the filter of the next 64 is fetched */
static void run_block(const td_taps *v, int64_t from, int64_t to, int64_t k, bool has_next)
{
    td_taps_loops *loops = td_taps_loops_here();
    const int64_t bytes = 9 * v->C * TD_INT8_CHANNELS;
    for (int64_t i = from; i < to; i++) {
        const bool fetches = has_next && i - from < TD_INT8_AHEAD_TILES;
        loops(v, i, k,
              fetches ? v->w + (k + 1) * bytes + (i - from) * (bytes / TD_INT8_AHEAD_TILES) : NULL);
    }
}

static void run_blocks(const td_taps *v, const td_native_cell *t)
{
    const int64_t each =
        larger(1, TD_INT8_IMAGE_BYTES / (TD_TAPS_PIXELS * v->stride * v->stride * v->C));
    for (int64_t i = t->from; i < t->to; i += each)
        for (int64_t k = t->block_from; k < t->block_to; k++)
            run_block(v, i, smaller(i + each, t->to), k, k + 1 < t->block_to);
}

static void run_part(const td_prepared *p, void *const *args, const td_native_cell *part,
                     const td_int8_scales *scales)
{
    td_taps v = ((const state *)p->state)->v;
    v.x = args[0];
    v.w = args[1];
    v.scale = scales->scale;
    v.bias = scales->bias;
    v.y = args[p->node->n_in];
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
    return td_native_grid_share(&d, (double)(9 * td_in_type(n, 1)->dim[1] * TD_INT8_CHANNELS),
                                threads);
}

const td_kernel td_native_taps_int8 = { .name = "native_taps_int8",
                                        .op = &td_op_conv2d_int8,
                                        .accepts = accepts,
                                        .prepare = prepare,
                                        .run = run,
                                        .release = td_native_release_state,
                                        .share = share };
