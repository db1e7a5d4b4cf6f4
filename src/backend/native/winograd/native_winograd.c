/*
 * native_winograd.c -- 3 x 3 convolutions of stride 1 and 2, and their images' gradients of stride
 * 2, by Winograd's algorithm
 *
 *     a job: a run of tiles, and a part of the filters
 *
 *         all channels     B' x B     ->  v, stays in the second-level cache
 *         32 filters:      36 products    v u  ->  m, a hundred kilobytes; 81 with stride 2
 *                          A' m A * scale + bias + residual, relu  ->  y
 *         the next 32 filters: ...
 *
 * Jobs write separate results, so threads take them in turn, each its own share first, and wait for
 * each other only at the end.  Filters are divided if a small batch has too few tiles for all
 * threads; each part then transforms the inputs again.  A tile's arithmetic is the same in every
 * job: its bits depend on neither the batch size nor the number of threads.
 *
 * Compared with a direct convolution it saves three of four multiplications (fewer if tiles extend
 * past the image's edge), and it costs transforms (C + K per tile, compared with C K products) and
 * filters of four times the size (native_winograd_filter.c).
 */
#include "backend/native/winograd/native_winograd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "tandem/program.h"

#define LANES TD_WINO_LANES

#define BLOCKS "aBcd16b"
#define HALVES "aBcd8b"
#define LAST   "acdb"

/* tiles per job: enough to amortise reading u once per job; half as many with stride 2 */
#define ROOM       28
#define ROOM_LARGE 56 /* if u exceeds one core's share of a cache */

/* tiles of 2 x 2: half as many with the channels from which v would fill the second-level cache */
#define ROOM_SMALL_TILES 56
#define MANY_CHANNELS    256

/* --- convolution: division into jobs ---------------------------------------------------------- */

typedef struct {
    const td_native_wino_simd *simd;
    td_native_wino w;
    int64_t tiles, runs, shares; /* there are runs x shares jobs */
    int64_t products; /* multiplications of all tiles for one input and one output channel */
    int threads;
    int64_t points;            /* of a whole tile */
    size_t v_elem;             /* bytes of an element of v and u */
    size_t v_bytes, job_bytes; /* size of v; of v and m, for one thread */
} state;

/* --- convolution: kernels --------------------------------------------------------------------- */

static bool has_layout(const td_type *t, const char *layout)
{
    return strcmp(t->layout, layout) == 0;
}

/* does t have this layout, one of the three, with whole blocks? */
static bool is_image(const td_type *t, const char *layout)
{
    return has_layout(t, layout) && t->dim[1] % LANES == 0 &&
           (has_layout(t, BLOCKS) || has_layout(t, HALVES) || has_layout(t, LAST));
}

static bool is_residual(const td_node *n, int i)
{
    return n->op == &td_op_conv2d_winograd && i == 3 && n->n_in > 3;
}

static bool has_small_tiles(const td_node *n)
{
    return td_winograd_form_of(n) == TD_WINO_SMALL;
}

static td_status accepts_conv(const td_node *n)
{
    if (has_small_tiles(n) && !td_native_wino_pairs())
        return td_error(TD_ENOKERNEL, "this processor has no products of bf16");
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = i < n->n_in ? td_in_type(n, i) : &n->out[0]->type;
        if (td_is_shape_only(n, i))
            continue;
        const bool must_be_image = i == 0 || i == n->n_in || is_residual(n, i);
        const bool may_be_half = must_be_image || (i == 1 && has_small_tiles(n));
        if (t->dtype != TD_DT_F32 && !(may_be_half && t->dtype == TD_DT_BF16))
            return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(t->dtype));
        if (!must_be_image && !td_type_is_plain(t))
            return td_error(TD_ENOKERNEL, "tensor %d is not plain", i);
        if (must_be_image && !is_image(t, td_in_type(n, 0)->layout))
            return td_error(TD_ENOKERNEL,
                            "tensor %d is not " BLOCKS ", " HALVES " or " LAST
                            " with whole blocks of 16 channels, the same for all",
                            i);
    }
    return has_layout(td_in_type(n, 0), HALVES) ? td_native_wino_check_halves() : TD_OK;
}

static const td_native_wino_simd *simd_for(const td_node *n)
{
    return has_small_tiles(n) ? td_native_wino_pairs()
                              : td_native_wino_simd_at(td_in_type(n, 0)->dtype, 0);
}

static td_native_wino geometry_of(const td_node *n)
{
    const td_winograd_attr *a = n->attr; /* NULL: a gradient */
    td_native_wino w = td_native_wino_geometry(n, td_in_type(n, 0), &n->out[0]->type);
    w.relu = a && a->relu;
    w.cap = a && a->relu6 ? 6 : INFINITY;
    return w;
}

/* the tiles of run i */
static td_native_wino_range run_of(const state *s, int64_t i)
{
    return (td_native_wino_range){ td_native_wino_part(&s->w, i, s->runs),
                                   td_native_wino_part(&s->w, i + 1, s->runs) };
}

/* the work of a job with so many parts of the filters, if there is one job for each thread; 0: the
   filters cannot be divided so, or the runs would be longer */
static int64_t job_work(const state *s, int64_t groups, int64_t shares)
{
    const int64_t runs = smaller(s->threads / shares, s->tiles);
    return groups % shares || runs < s->runs ? 0 : divide_up(s->products, runs) * (groups / shares);
}

/* With fewer runs than threads: one job for each thread.  Of the divisions that are within 5 % of
   the most even one, that which reads least: u in each run, the images in each share. */
static void divide_filters(state *s, int64_t groups)
{
    int64_t least = INT64_MAX, least_read = INT64_MAX, shares = 1;
    for (int64_t i = 1, work; i <= groups; i++)
        if ((work = job_work(s, groups, i)))
            least = smaller(least, work);
    for (int64_t i = 1; i <= groups; i++) {
        const int64_t work = job_work(s, groups, i), runs = smaller(s->threads / i, s->tiles);
        const int64_t read = runs * s->w.K + i * s->tiles;
        if (!work || work * 100 > least * 105 || read >= least_read)
            continue;
        least_read = read;
        shares = i;
    }
    s->shares = shares;
    s->runs = smaller(s->threads / shares, s->tiles);
}

static int64_t room_for(const state *s, int64_t u_bytes)
{
    if (s->w.form == TD_WINO_SMALL)
        return s->w.C < MANY_CHANNELS ? ROOM_SMALL_TILES : ROOM_SMALL_TILES / 2;
    const int64_t room = u_bytes > (int64_t)16 << 20 ? ROOM_LARGE : ROOM;
    return s->w.form == TD_WINO_LARGE ? room : room / 2;
}

/* divides the tiles into runs of as many products, if possible a multiple of the threads */
static void divide(state *s, int64_t u_bytes)
{
    const int64_t room = room_for(s, u_bytes);
    const int64_t groups = divide_up(s->w.K / LANES, s->simd->blocks);
    s->points = (int64_t)s->w.side * s->w.side;
    s->tiles = s->w.ends[TD_WINO_KINDS - 1];
    s->products = td_native_wino_products(&s->w, s->tiles);
    s->runs = divide_up(s->products, room * s->points);
    s->shares = 1;
    if (s->runs >= s->threads && s->runs < 8 * s->threads)
        s->runs = divide_up(s->runs, s->threads) * s->threads;
    if (s->runs < s->threads)
        divide_filters(s, groups);
    s->w.room = 1;
    for (int64_t i = 0; i < s->runs; i++) {
        const td_native_wino_range r = run_of(s, i);
        s->w.room = r.to - r.from > s->w.room ? r.to - r.from : s->w.room;
    }
}

/* threads take jobs as they come: all have as many, or one less */
static td_work_share share(const td_node *n, int threads)
{
    state s = { .simd = simd_for(n), .threads = threads, .w = geometry_of(n) };
    divide(&s, td_type_bytes(td_in_type(n, 1)));
    const int64_t blocks = s.w.K / LANES, groups = divide_up(blocks, s.simd->blocks);
    const int64_t most = smaller(divide_up(groups, s.shares) * s.simd->blocks, blocks);
    const int64_t jobs = divide_up(s.runs * s.shares, threads);
    const int64_t largest = jobs * divide_up(s.products, s.runs) * most, all = s.products * blocks;
    const int tile = td_winograd_tile(s.w.form);
    const double each = LANES / (double)s.points * tile * tile;
    return (td_work_share){ (double)smaller(largest, all) * each, (double)all * each / threads };
}

static td_status prepare_conv(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    s->simd = simd_for(n);
    s->threads = td_threads();
    s->w = geometry_of(n);
    divide(s, td_type_bytes(td_in_type(n, 1)));
    s->w.v_step = td_native_wino_step(s->w.C, s->w.room);
    s->v_elem = has_small_tiles(n) ? td_dtype_bytes(TD_DT_BF16) : sizeof(float);
    s->w.piece = smaller(s->simd->tiles, s->w.room);
    const size_t line = LANES * sizeof(float) * (size_t)(s->points * s->w.piece);
    s->v_bytes = td_round_up((size_t)(s->points * s->w.v_step) * s->v_elem, TD_HOST_ALIGN);
    s->job_bytes = s->v_bytes + td_round_up(line * (size_t)s->simd->blocks, TD_HOST_ALIGN);
    out->state = s;
    out->scratch_bytes = s->job_bytes * (size_t)s->threads + td_native_turns_bytes(s->threads);
    const int tile = td_winograd_tile(s->w.form);
    snprintf(out->impl, sizeof out->impl, "F(%dx%d,3x3)%s %s", tile, tile,
             s->w.side == TD_WINO_STRIDED_SIDE ? "/2" : "", s->simd->isa);
    return TD_OK;
}

static void release_conv(td_prepared *p)
{
    td_free(p->state);
    p->state = NULL;
}

/* --- convolution: one job --------------------------------------------------------------------- */

typedef struct {
    const void *x, *u, *residual;
    const float *scale, *bias;
    void *y;
} tensors;

/* a run of tiles, and what it works on */
typedef struct {
    const state *s;
    const tensors *t;
    const char *v;
    float *m;
    int64_t first, n; /* tiles, which may be none */
} run;

/* the products for `blocks` blocks of filters from block kb on, n tiles from tile `at` of the run
   on, and point f of the filters */
static void multiply_point(const run *r, int64_t at, int64_t n, int64_t kb, int blocks, int64_t f)
{
    const state *s = r->s;
    const td_native_wino *w = &s->w;
    const int64_t u_step = (int64_t)w->filters * w->filters * w->C * LANES;
    const char *u = (const char *)r->t->u + (size_t)(kb * u_step + f * w->C * LANES) * s->v_elem;
    const td_native_wino_range rows = td_native_wino_points(w, f / w->filters);
    const td_native_wino_range cols = td_native_wino_points(w, f % w->filters);
    for (int64_t i = rows.from; i < rows.to; i++)
        for (int64_t j = cols.from; j < cols.to; j++) {
            const int64_t p = i * w->side + j;
            const td_native_wino_range t = td_native_wino_with_point(w, r->first + at, n, p);
            if (t.from < t.to)
                s->simd->product(w, (int)(t.to - t.from), blocks,
                                 r->v + (size_t)(p * w->v_step + (at + t.from) * LANES) * s->v_elem,
                                 u, u_step, r->m + (p * blocks * w->piece + t.from) * LANES);
        }
}

/* the results of `blocks` blocks of filters from block kb on */
static void run_blocks(const run *r, int64_t kb, int blocks)
{
    const state *s = r->s;
    const int64_t m_step = blocks * s->w.piece * LANES, pieces = divide_up(r->n, s->w.piece);
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = r->n * i / pieces, n = r->n * (i + 1) / pieces - at;
        for (int64_t f = 0; f < (int64_t)s->w.filters * s->w.filters; f++)
            multiply_point(r, at, n, kb, blocks, f);
        for (int b = 0; b < blocks; b++) {
            const int64_t k = (kb + b) * LANES;
            const td_native_wino_end out = { .scale = r->t->scale ? r->t->scale + k : NULL,
                                             .bias = r->t->bias ? r->t->bias + k : NULL,
                                             .residual = r->t->residual,
                                             .y = r->t->y,
                                             .block = kb + b };
            s->simd->forms[s->w.form].output(&s->w, r->first + at, n, r->m + b * s->w.piece * LANES,
                                             m_step, &out);
        }
    }
}

/* what all jobs work with */
typedef struct {
    const state *s;
    const tensors *t;
    char *scratch;
} work;

static void run_job(const void *context, int job, int thread)
{
    const work *all = context;
    const state *s = all->s;
    const tensors *t = all->t;
    char *scratch = all->scratch + s->job_bytes * (size_t)thread;
    const td_native_wino *w = &s->w;
    const int64_t index = job / s->shares, share = job % s->shares;
    const td_native_wino_range tiles = run_of(s, index);
    const int64_t groups = divide_up(w->K / LANES, s->simd->blocks);
    const int64_t from = groups * share / s->shares * s->simd->blocks;
    const int64_t to = smaller(groups * (share + 1) / s->shares * s->simd->blocks, w->K / LANES);
    const run r = { .s = s,
                    .t = t,
                    .v = scratch,
                    .m = (float *)(scratch + s->v_bytes),
                    .first = tiles.from,
                    .n = tiles.to - tiles.from };

    s->simd->forms[w->form].input(w, r.first, r.n, t->x, scratch);
    for (int64_t kb = from; kb < to; kb += s->simd->blocks)
        run_blocks(&r, kb, (int)smaller(to - kb, s->simd->blocks));
}

static td_status run_tensors(const state *s, const tensors *t, char *scratch)
{
    const work all = { s, t, scratch };
    td_native_take_turns(
        &(td_native_turns){ (int)(s->runs * s->shares), s->threads, run_job, &all },
        scratch + s->job_bytes * (size_t)s->threads);
    return TD_OK;
}

static td_status run_conv(const td_prepared *p, void *const *args)
{
    const int n_in = p->node->n_in;
    const tensors t = { .x = args[0],
                        .u = args[1],
                        .bias = n_in > 2 ? args[2] : NULL,
                        .residual = n_in > 3 ? args[3] : NULL,
                        .y = args[n_in] };
    return run_tensors(p->state, &t, args[n_in + 1]);
}

static td_status run_grad_x(const td_prepared *p, void *const *args)
{
    const tensors t = { .x = args[0], .u = args[1], .y = args[3] };
    return run_tensors(p->state, &t, args[4]);
}

static td_status run_scaled(const td_prepared *p, void *const *args)
{
    const tensors t = {
        .x = args[0], .u = args[1], .scale = args[2], .bias = args[3], .y = args[4]
    };
    return run_tensors(p->state, &t, args[5]);
}

const td_kernel td_native_conv2d_winograd = {
    .name = "native_conv2d_winograd",
    .op = &td_op_conv2d_winograd,
    .accepts = accepts_conv,
    .prepare = prepare_conv,
    .run = run_conv,
    .release = release_conv,
    .share = share,
};

const td_kernel td_native_conv2d_winograd_scaled = {
    .name = "native_conv2d_winograd",
    .op = &td_op_conv2d_winograd_scaled,
    .accepts = accepts_conv,
    .prepare = prepare_conv,
    .run = run_scaled,
    .release = release_conv,
    .share = share,
};

const td_kernel td_native_conv2d_winograd_grad_x = {
    .name = "native_conv2d_winograd_grad_x",
    .op = &td_op_conv2d_winograd_grad_x,
    .accepts = accepts_conv,
    .prepare = prepare_conv,
    .run = run_grad_x,
    .release = release_conv,
    .share = share,
};

/* prefers the layout that the images have; without one, that of the direct kernels */
bool td_native_winograd_preferred_layout(const td_node *n, td_node_layouts *out)
{
    static const td_node_layouts plain[] = {
        { .in = { BLOCKS, "", "", BLOCKS }, .out = BLOCKS },
        { .in = { HALVES, "", "", HALVES }, .out = HALVES },
        { .in = { LAST, "", "", LAST }, .out = LAST },
    };
    static const td_node_layouts scaled[] = {
        { .in = { BLOCKS, "", "", "" }, .out = BLOCKS },
        { .in = { HALVES, "", "", "" }, .out = HALVES },
        { .in = { LAST, "", "", "" }, .out = LAST },
    };
    if (n->op == &td_op_conv2d_winograd_grad_w)
        return td_native_winograd_grad_w_preferred_layout(n, out);
    if (n->op == &td_op_winograd_filter)
        return td_native_winograd_filter_preferred_layout(n, out);
    const td_type *x = td_in_type(n, 0);
    const bool is_scaled = n->op == &td_op_conv2d_winograd_scaled;
    const bool is_grad_x = n->op == &td_op_conv2d_winograd_grad_x;
    if ((n->op != &td_op_conv2d_winograd && !is_scaled && !is_grad_x) ||
        (x->dtype != TD_DT_F32 && x->dtype != TD_DT_BF16))
        return false;
    const int i = has_layout(x, LAST) ? 2 : td_native_wino_prefers_halves(x) ? 1 : 0;
    *out = is_scaled || is_grad_x ? scaled[i] : plain[i];
    return true;
}
