/*
 * native_amx_conv.c -- convolutions of bfloat16 with AMX: forward, fused for inference, and the
 * gradients of images if the stride is 1
 *
 * On such processors oneDNN's convolutions reach a quarter of what the tiles can multiply, where
 * pixels and filters come from the L2 cache.
 *
 * A gradient of images is a convolution, too: of dy, with the filter's taps in the reverse order
 * and its channels exchanged, which the layout of the filter does.
 */
#include <string.h>

#include "backend/native/native_amx.h"
#include "backend/native/native_conv.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    CHANNELS_MIN = 32,        /* with fewer most of a tile is zeros */
    STRIP_BYTES = 640 * 1024, /* of cells: a part of the L2 cache */
    CELL_BYTES = TD_AMX_CHANNELS * 2
};

static bool is_grad_x(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_x;
}

static const char *filter_layout(const td_node *n)
{
    return is_grad_x(n) ? TD_AMX_FILTER_BACK : TD_AMX_FILTER;
}

/* --- queries ---------------------------------------------------------------------------------- */

static td_status check_shape(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    if (a->groups != 1 || a->stride > (is_grad_x(n) ? 1 : TD_AMX_STRIDE_MAX))
        return td_error(TD_ENOKERNEL, "in groups, or the stride is %d", a->stride);
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
    TD_TRY(check_types(n));
    TD_TRY(check_shape(n));
    return td_amx_loops_here() ? TD_OK : td_error(TD_ENOKERNEL, "the processor has no AMX");
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    if (n->n_in > 3 && strcmp(td_in_type(n, 3)->layout, TD_CHANNELS_LAST) != 0)
        return td_error(TD_ENOKERNEL, "the residual does not have layout '%s'", TD_CHANNELS_LAST);
    return td_native_conv_check_layouts(n, TD_CHANNELS_LAST, filter_layout(n));
}

bool td_native_amx_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if (!td_native_is_conv(n) || n->op == &td_op_conv2d_grad_w || check(n) != TD_OK)
        return false;
    td_native_conv_layouts(n, TD_CHANNELS_LAST, filter_layout(n), out);
    if (n->n_in > 3)
        memcpy(out->in[3], TD_CHANNELS_LAST, sizeof TD_CHANNELS_LAST);
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

/* what threads divide: rows of the result, or 32 pixels of a flat one */
static int64_t lines_of(const td_amx_geometry *g)
{
    return g->is_flat ? divide_up(g->Q, TD_AMX_PIXELS) : g->N * g->P;
}

static td_native_grid divide(const td_node *n, const td_amx_geometry *g, int threads)
{
    const td_native_conv_types t = td_native_conv_types_of(n);
    return td_native_grid_divide(lines_of(g), divide_up(g->K, TD_AMX_CHANNELS),
                                 (double)td_type_bytes(t.x), (double)td_type_bytes(t.w), threads);
}

static int64_t strip_bytes(const td_amx_geometry *g, int64_t images, int64_t rows)
{
    return td_amx_cells(g, images, rows) * CELL_BYTES;
}

/* the size of equal parts of `all`, of which no more than `most` fit a strip */
static int64_t evenly(int64_t all, int64_t most)
{
    return divide_up(all, divide_up(all, larger(most, 1)));
}

/* the images, or rows, or 32 pixels of a strip */
typedef struct {
    int64_t images, lines;
} strip_size;

static strip_size size_of(const td_amx_geometry *g)
{
    const int64_t all = g->is_flat ? lines_of(g) : g->P;
    const int64_t each = g->is_flat ? TD_AMX_PIXELS : 1;
    const int64_t images = g->is_flat ? 1 : STRIP_BYTES / strip_bytes(g, 1, g->P);
    int64_t lines = all;
    while (lines > 1 && strip_bytes(g, 1, lines * each) > STRIP_BYTES)
        lines = lines > 64 ? lines / 2 : lines - 1;
    return (strip_size){ larger(images, 1), evenly(all, lines) };
}

typedef struct {
    td_amx_geometry g;
    td_native_grid grid;
    strip_size size;
    size_t scratch; /* bytes of each thread */
} state;

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->g = td_amx_geometry_of(n);
    s->grid = divide(n, &s->g, td_threads());
    s->size = size_of(&s->g);
    const int64_t of_thread = divide_up(lines_of(&s->g), s->grid.tile_parts);
    const int64_t images = smaller(s->size.images, divide_up(of_thread, s->size.lines));
    const int64_t lines = smaller(s->size.lines, of_thread);
    s->scratch = (size_t)strip_bytes(&s->g, images, lines * (s->g.is_flat ? TD_AMX_PIXELS : 1));
    out->scratch_bytes = s->scratch * (size_t)(s->grid.tile_parts * s->grid.block_parts);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

/* the strip that begins with line `from` and ends before `to` */
static td_amx_strip strip_at(const state *s, int64_t from, int64_t to)
{
    const td_amx_geometry *g = &s->g;
    if (g->is_flat) {
        const int64_t p = from * TD_AMX_PIXELS, lines = smaller(s->size.lines, to - from);
        return (
            td_amx_strip){ .images = 1, .p = p, .rows = smaller(lines * TD_AMX_PIXELS, g->Q - p) };
    }
    const int64_t p = from % g->P, whole = (to - from) / g->P;
    if (p == 0 && whole > 0 && s->size.lines == g->P)
        return (td_amx_strip){ .image = from / g->P,
                               .images = smaller(whole, s->size.images),
                               .rows = g->P };
    return (td_amx_strip){ .image = from / g->P,
                           .images = 1,
                           .p = p,
                           .rows = smaller(smaller(s->size.lines, to - from), g->P - p) };
}

static int64_t lines_in(const state *s, const td_amx_strip *t)
{
    return s->g.is_flat ? divide_up(t->rows, TD_AMX_PIXELS) : t->images * t->rows;
}

static td_amx_conv operands_of(const td_node *n, const state *s, void *const *args)
{
    const bool is_fused = n->op == &td_op_conv2d_fused;
    return (td_amx_conv){ .g = s->g,
                          .x = args[0],
                          .w = args[1],
                          .bias = is_fused && n->n_in > 2 ? args[2] : NULL,
                          .rest = is_fused && n->n_in > 3 ? args[3] : NULL,
                          .y = args[n->n_in],
                          .act =
                              is_fused ? (td_block_act)td_block_act_of(n->attr) : TD_BLOCK_LINEAR };
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const state *s = p->state;
    const int threads = s->grid.tile_parts * s->grid.block_parts;
    const td_amx_conv v = operands_of(n, s, args);
    char *scratch = args[n->n_in + 1];
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const td_native_cell c = td_native_grid_cell(&s->grid, t);
        for (int64_t from = c.from; from < c.to && c.block_from < c.block_to;) {
            td_amx_strip strip = strip_at(s, from, c.to);
            strip.from = c.block_from;
            strip.to = c.block_to;
            strip.cells = (uint16_t *)(void *)(scratch + s->scratch * (size_t)t);
            td_amx_loops_here()(&v, &strip);
            from += lines_in(s, &strip);
        }
    }
    return TD_OK;
}

/* in products with a channel */
static td_work_share share(const td_node *n, int threads)
{
    const td_amx_geometry g = td_amx_geometry_of(n);
    const td_native_grid d = divide(n, &g, threads);
    const int64_t pixels = g.is_flat ? TD_AMX_PIXELS : g.Q;
    return td_native_grid_share(&d, (double)(pixels * TD_AMX_CHANNELS * g.n_taps), threads);
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
