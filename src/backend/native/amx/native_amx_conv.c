/*
 * native_amx_conv.c -- convolutions with AMX: of bfloat16 forward, fused for inference, and the
 * gradients of images if the stride is 1; of 8-bit integers
 *
 * On such processors oneDNN's convolutions reach a quarter of what the tiles can multiply, where
 * pixels and filters come from the L2 cache.
 *
 * A gradient of images is a convolution, too: of dy, with the filter's taps in the reverse order
 * and its channels exchanged, which the layout of the filter does.
 */
#include <math.h>
#include <string.h>

#include "backend/native/amx/native_amx.h"
#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include "backend/native/int8/native_int8_conv.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    CHANNELS_MIN = 32,        /* with fewer most of a tile is zeros */
    STRIP_BYTES = 640 * 1024, /* limit of a strip's cells, to stay in L2; one row may exceed it */
    JOBS_PER_THREAD = 4,
    JOB_NUMBERS = 256, /* minimum of pixels in a job, if the images have as many */
    COPY_COST = 8      /* cost of copying a byte to cells, relative to reading it */
};

static bool is_grad_x(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_x;
}

static bool is_int8(const td_node *n)
{
    return n->op == &td_op_conv2d_int8;
}

static const char *filter_layout(const td_node *n)
{
    return is_grad_x(n) ? TD_AMX_FILTER_BACK : is_int8(n) ? TD_AMX_FILTER_INT8 : TD_AMX_FILTER;
}

/* the number of the operand that is added to the result */
static int rest_of(const td_node *n)
{
    return is_int8(n) ? 4 : 3;
}

/* --- queries ---------------------------------------------------------------------------------- */

static td_status check_shape(const td_node *n)
{
    const td_amx_windows v = td_amx_windows_of(n);
    const td_type *w = td_in_type(n, 1);
    if (v.groups != 1 || v.stride > (is_grad_x(n) ? 1 : TD_AMX_STRIDE_MAX))
        return td_error(TD_ENOKERNEL, "in groups, or the stride is %d", v.stride);
    if (w->dim[0] < CHANNELS_MIN || w->dim[1] < CHANNELS_MIN)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld", (long long)w->dim[1],
                        (long long)w->dim[0]);
    if (w->dim[2] * w->dim[3] > TD_AMX_TAPS_MAX)
        return td_error(TD_ENOKERNEL, "the filter has more than %d pixels", TD_AMX_TAPS_MAX);
    return TD_OK;
}

/* operand i, and the result, are bf16; biases are float32 */
static td_status check_types(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const td_dtype d = td_in_type(n, i)->dtype;
        if (d != (i == 2 && !is_grad_x(n) ? TD_DT_F32 : TD_DT_BF16))
            return td_error(TD_ENOKERNEL, "operand %d is %s", i, td_dtype_name(d));
    }
    return n->out[0]->type.dtype == TD_DT_BF16
               ? TD_OK
               : td_error(TD_ENOKERNEL, "the result is %s", td_dtype_name(n->out[0]->type.dtype));
}

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    TD_TRY(is_int8(n) ? td_native_int8_check_forms(n) : check_types(n));
    TD_TRY(check_shape(n));
    return td_amx_loops_here() ? TD_OK : td_error(TD_ENOKERNEL, "the processor has no AMX");
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    const int rest = rest_of(n);
    if (n->n_in > rest && strcmp(td_in_type(n, rest)->layout, TD_CHANNELS_LAST) != 0)
        return td_error(TD_ENOKERNEL, "the residual does not have layout '%s'", TD_CHANNELS_LAST);
    return td_native_conv_check_layouts(n, TD_CHANNELS_LAST, filter_layout(n));
}

bool td_native_amx_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if ((!td_native_is_conv(n) && !is_int8(n)) || n->op == &td_op_conv2d_grad_w ||
        check(n) != TD_OK)
        return false;
    td_native_conv_layouts(n, TD_CHANNELS_LAST, filter_layout(n), out);
    if (n->n_in > rest_of(n))
        memcpy(out->in[rest_of(n)], TD_CHANNELS_LAST, sizeof TD_CHANNELS_LAST);
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

/* what jobs divide: lines by blocks of channels */
typedef struct {
    td_native_grid grid;
    int64_t rows; /* of a line; pixels of a flat one */
} division;

static td_native_grid divide_lines(const td_node *n, const td_amx_geometry *g, int64_t lines,
                                   int64_t jobs)
{
    const bool is_copied = !g->is_flat || g->C % g->channels != 0;
    return td_native_grid_divide(lines, divide_up(g->K, TD_AMX_CHANNELS),
                                 (double)td_type_bytes(td_in_type(n, 0)) *
                                     (is_copied ? COPY_COST : 1),
                                 (double)td_type_bytes(td_in_type(n, 1)), (int)jobs);
}

/* The images of a job: enough pixels, since filters are read for each job. */
static int64_t images_of(const td_amx_geometry *g, int threads)
{
    const int64_t needed = divide_up(JOB_NUMBERS, td_amx_numbers(g, g->P));
    return larger(needed, g->N / (JOBS_PER_THREAD * threads));
}

/* has the busiest thread at most a quarter more than the mean? */
static bool is_even(int64_t if_all_were, int64_t all)
{
    return 4 * if_all_were <= 5 * all;
}

/*
 * Images, if there are enough, since parts of one are rarely whole tiles; otherwise rows; 32 pixels
 * of a flat geometry.
 */
static division divide(const td_node *n, const td_amx_geometry *g, int threads)
{
    if (g->is_flat) {
        const int64_t lines = divide_up(g->Q, TD_AMX_PIXELS), most = g->Q / JOB_NUMBERS / threads;
        const int64_t each = larger(1, smaller(JOBS_PER_THREAD, most));
        return (division){ divide_lines(n, g, lines, each * threads), TD_AMX_PIXELS };
    }
    const int64_t images = images_of(g, threads), jobs = divide_up(g->N, images);
    const td_native_grid by_image = { jobs, divide_up(g->K, TD_AMX_CHANNELS), (int)jobs, 1 };
    if (jobs >= 2 * threads && is_even(divide_up(jobs, threads) * images * threads, g->N))
        return (division){ by_image, images * g->P };
    return (division){ divide_lines(n, g, g->N * g->P, threads), 1 };
}

static int64_t strip_bytes(const td_amx_geometry *g, int64_t images, int64_t rows)
{
    return td_amx_cells(g, images, rows) * TD_AMX_CELL_BYTES;
}

/* the size of equal parts of `all`, of which no more than `most` fit a strip */
static int64_t evenly(int64_t all, int64_t most)
{
    return divide_up(all, divide_up(all, larger(most, 1)));
}

/* the images and rows, or pixels, of a strip */
typedef struct {
    int64_t images, rows;
} strip_size;

static strip_size size_of(const td_amx_geometry *g)
{
    const int64_t all = g->is_flat ? g->Q : g->P, each = g->is_flat ? TD_AMX_PIXELS : 1;
    const int64_t images = g->is_flat ? 1 : STRIP_BYTES / strip_bytes(g, 1, g->P);
    int64_t n = divide_up(all, each);
    while (n > 1 && strip_bytes(g, 1, n * each) > STRIP_BYTES)
        n = n > 64 ? n / 2 : n - 1;
    return (strip_size){ larger(images, 1), evenly(divide_up(all, each), n) * each };
}

typedef struct {
    td_amx_geometry g;
    division division;
    strip_size size;
    int jobs, threads;
    size_t scratch; /* bytes of each thread */
    size_t scales;  /* bytes of those of all results, before it */
} state;

static size_t whole_lines(size_t bytes)
{
    return (bytes + TD_AMX_CELL_BYTES - 1) / TD_AMX_CELL_BYTES * TD_AMX_CELL_BYTES;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->g = td_amx_geometry_of(n);
    s->division = divide(n, &s->g, td_threads());
    s->size = size_of(&s->g);
    const td_native_grid *grid = &s->division.grid;
    const int64_t rows = divide_up(grid->tiles, grid->tile_parts) * s->division.rows;
    const int64_t images = smaller(s->size.images, divide_up(rows, s->size.rows));
    s->jobs = grid->tile_parts * grid->block_parts;
    s->threads = (int)smaller(td_threads(), s->jobs);
    s->scratch = (size_t)strip_bytes(&s->g, images, smaller(s->size.rows, rows));
    s->scales = is_int8(n) ? whole_lines(2 * (size_t)s->g.K * sizeof(float)) : 0;
    out->scratch_bytes =
        s->scales + s->scratch * (size_t)s->threads + td_native_turns_bytes(s->threads);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

/* the strip that begins with row, or pixel, `from` and ends before `to` */
static td_amx_strip strip_at(const state *s, int64_t from, int64_t to)
{
    const td_amx_geometry *g = &s->g;
    if (g->is_flat)
        return (td_amx_strip){ .images = 1, .p = from, .rows = smaller(s->size.rows, to - from) };
    const int64_t p = from % g->P, whole = (to - from) / g->P;
    const bool is_whole = p == 0 && whole > 0 && s->size.rows == g->P;
    return (td_amx_strip){ .image = from / g->P,
                           .images = is_whole ? smaller(whole, s->size.images) : 1,
                           .p = p,
                           .rows = smaller(smaller(s->size.rows, to - from), g->P - p) };
}

/* in steps of the result; `scales`: of all results */
static td_amx_int8 int8_of(const td_node *n, const td_int8_scales *scales)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dtype y = n->out[0]->type.dtype;
    const double step = td_native_int8_step(n);
    td_amx_int8 v = { .scale = scales->scale,
                      .bias = scales->bias,
                      .rest_step = y == TD_DT_F32 ? 1 : (float)(a->residual_scale / step),
                      .low = a->relu ? 0 : -INFINITY,
                      .high = a->relu && a->relu6 ? (float)(6 / step) : INFINITY,
                      .rest = n->n_in > 4 ? td_in_type(n, 4)->dtype : y,
                      .y = y };
    if (y == TD_DT_F32)
        return v;
    v.is_simple = scales->is_bounded && !(a->relu && (a->relu6 || y == TD_DT_S8));
    v.low = fmaxf(v.low, INT8_MIN); /* so that they fit 32 bits */
    v.high = fminf(v.high, UINT8_MAX);
    return v;
}

static td_amx_conv operands_of(const td_node *n, const state *s, void *const *args)
{
    const bool is_fused = n->op == &td_op_conv2d_fused;
    return (td_amx_conv){ .g = s->g,
                          .x = args[0],
                          .w = args[1],
                          .bias = is_fused && n->n_in > 2 ? args[2] : NULL,
                          .rest = n->n_in > rest_of(n) ? args[rest_of(n)] : NULL,
                          .y = args[n->n_in],
                          .act =
                              is_fused ? (td_block_act)td_block_act_of(n->attr) : TD_BLOCK_LINEAR };
}

typedef struct {
    const state *s;
    td_amx_conv v;
    char *scratch;
} running;

static void run_job(const void *context, int job, int thread)
{
    const running *r = context;
    const state *s = r->s;
    const td_native_cell c = td_native_grid_cell(&s->division.grid, job);
    const int64_t rows = s->division.rows, all = s->g.is_flat ? s->g.Q : s->g.N * s->g.P;
    const int64_t to = smaller(c.to * rows, all);
    for (int64_t from = c.from * rows; from < to && c.block_from < c.block_to;) {
        td_amx_strip strip = strip_at(s, from, to);
        strip.block_from = c.block_from;
        strip.block_to = c.block_to;
        strip.cells = r->scratch + s->scratch * (size_t)thread;
        td_amx_loops_here()(&r->v, &strip);
        from += strip.images * strip.rows;
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const state *s = p->state;
    char *scratch = args[n->n_in + 1];
    running r = { s, operands_of(n, s, args), scratch + s->scales };
    td_amx_int8 int8;
    if (is_int8(n)) {
        const td_int8_scales scales =
            td_native_int8_scales(n, args, 0, s->g.K, (float *)(void *)scratch);
        int8 = int8_of(n, &scales);
        r.v.int8 = &int8;
    }
    td_native_take_turns(&(td_native_turns){ s->jobs, s->threads, run_job, &r },
                         r.scratch + s->scratch * (size_t)s->threads);
    return TD_OK;
}

/* in products with a channel */
static td_work_share share(const td_node *n, int threads)
{
    const td_amx_geometry g = td_amx_geometry_of(n);
    const division d = divide(n, &g, threads);
    const int64_t pixels = d.rows * (g.is_flat ? 1 : g.Q), all = g.N * g.P * g.Q;
    const double each = (double)(TD_AMX_CHANNELS * g.n_taps);
    td_work_share s = td_native_grid_share(&d.grid, (double)pixels * each, threads);
    s.largest *= (double)divide_up(d.grid.tile_parts * d.grid.block_parts, threads);
    s.mean = (double)(all * d.grid.blocks) * each / threads;
    return s;
}

#define AMX(name_, op_)                                                                            \
    const td_kernel td_native_##name_ = { .name = "native_" #name_,                                \
                                          .op = &td_op_##op_,                                      \
                                          .accepts = accepts,                                      \
                                          .prepare = prepare,                                      \
                                          .run = run,                                              \
                                          .release = td_native_release_state,                      \
                                          .share = share }

AMX(amx_conv, conv2d);
AMX(amx_conv_fused, conv2d_fused);
AMX(amx_conv_grad_x, conv2d_grad_x);
AMX(amx_conv_int8, conv2d_int8);
