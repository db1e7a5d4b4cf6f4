/*
 * native_winograd_grad.c -- filter gradients of 3 x 3 convolutions by Winograd's F(3 x 3, 4 x 4)
 *
 *     dw [k, c]  =  G' [ sum over tiles of (A dy[k] A') . (B' x[c] B) ] G
 *
 * the transpose of the forward algorithm (native_winograd.c), with the same matrices.  The tiles
 * are divided into groups:
 *
 *     jobs: runs of tiles            B' x B -> v,  or A dy A' -> d   for all tiles of the group
 *     jobs: 16 filters, 16 channels  36 products v d, added to m; with stride 2 81, of which those
 *                                    of one point of the filter make one sum
 *                                    after the last group: G' m G -> dw
 *
 * With one group m stays in a core's cache; with several, v and d stay in the last-level cache.
 * If there are too few such jobs for all threads, the filter's 36 points are divided, too:
 *
 *     jobs: 16 filters, 16 channels, some of the 36 points       m is in memory
 *     after the last group, jobs: 16 filters, 16 channels        G' m G -> dw
 *
 * Where tiles are many, m is the sum of several chains of groups:
 *
 *     chain 0: | group 0 | group 1 | ...    chain 1: | group 4 | group 5 | ...    chain 2: ...
 *
 * and if chains can be divided evenly, each thread runs whole chains, one group after the other:
 * its v and d come from its own cache.  Otherwise all threads run each group as above, and half of
 * what a thread multiplies was written by others, which takes twice the time if their cores have no
 * last-level cache in common.
 *
 * A sum is one chain of fused multiply-adds over the tiles of a group, with stride 2 up to 16, one
 * for each point of a tile; they, groups and chains are added in their order.  Groups and chains
 * depend on shapes only, so the result does not depend on the number of threads.
 */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/winograd/native_winograd.h"
#include "base/arena.h"
#include "tandem/program.h"

#define LANES  TD_WINO_LANES
#define POINTS TD_WINO_POINTS

#define TAPS 9

/* Tiles per group: as many as fill GROUP_BYTES with v and d, which then stay in the last-level
   cache, but at least TILES_MIN, so that reading and writing m costs little; half as many with
   stride 2, which has more products for each sum.  64 and 256 tiles, 1 and 8 MiB were slower by 0
   to 20 % in ResNet's layers. */
#define TILES_MIN   128
#define GROUP_BYTES ((int64_t)4 << 20)

/* Chains, and the tiles that one has at least: in ResNet's layers of 256 channels chains of 256
   tiles were slower by a seventh with a common last-level cache, and faster by as much without. */
#define CHAINS_MAX  8
#define CHAIN_TILES 512

#define RUN_MAX 8 /* tiles of a job that transforms, if there are enough for 4 jobs per thread */

/* Blocks of channels of a job that multiplies, and the jobs per thread that there should be.  A job
   reads the v of its blocks once and the d from the first-level cache. */
#define CB_MAX          4
#define JOBS_PER_THREAD 2
#define KB_MAX          2 /* blocks of filters of a job */

#define BLOCK_FLOATS (LANES * LANES)
#define SUM_FLOATS   (POINTS * BLOCK_FLOATS)

typedef struct {
    const td_native_wino_simd *simd;
    td_native_wino w;
    const td_native_wino_transforms *transforms;
    td_winograd matrices;
    td_native_wino_dw dw;
    int64_t dw_block; /* from 16 channels to the next 16 */
    int64_t tiles, groups, chains;
    bool by_chain;              /* each thread runs whole chains */
    int64_t jobs;               /* jobs that multiply */
    int64_t cb_count, kb_count; /* their blocks of channels and of filters */
    int64_t parts;         /* the number of parts of the filter's points; there are jobs x parts */
    int64_t part_products; /* the products of the largest part, for one tile, channel and filter */
    int64_t first_point[POINTS + 1]; /* part i has points [first_point[i], first_point[i + 1]) */
    int64_t run;                     /* tiles of a job that transforms */
    int64_t own_floats;              /* sums of one job, with one group */
    bool has_own;                    /* the sums of a job stay with its thread */
    int threads;
    size_t v_bytes, d_bytes; /* sizes in the scratch */
} state;

/* layouts: images in blocks, and the result in blocks of as many channels */
static const char *const layouts[][2] = {
    { "aBcd16b", "ABcd16b16a" },
    { "aBcd8b", "ABcd8b8a" },
};

static bool has_layouts(const td_type *dy, const td_type *x, const td_type *dw, int i)
{
    return strcmp(dy->layout, layouts[i][0]) == 0 && strcmp(x->layout, layouts[i][0]) == 0 &&
           strcmp(dw->layout, layouts[i][1]) == 0;
}

static td_status accepts(const td_node *n)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1), *dw = &n->out[0]->type;
    if (dy->dtype != TD_DT_F32 && dy->dtype != TD_DT_BF16)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(dy->dtype));
    if (dw->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the result is %s", td_dtype_name(dw->dtype));
    if (dy->dim[1] % LANES || x->dim[1] % LANES)
        return td_error(TD_ENOKERNEL, "the channels are not whole blocks");
    if (has_layouts(dy, x, dw, 1))
        return td_native_wino_check_halves();
    if (!has_layouts(dy, x, dw, 0))
        return td_error(TD_ENOKERNEL,
                        "wanted images in aBcd16b, the result in ABcd16b16a, or images in aBcd8b, "
                        "the result in ABcd8b8a");
    return TD_OK;
}

static const td_native_wino_simd *simd_for(const td_node *n)
{
    return td_native_wino_simd_at(td_in_type(n, 0)->dtype, 0);
}

static td_native_wino geometry_of(const td_node *n)
{
    return td_native_wino_geometry(n, td_in_type(n, 1), td_in_type(n, 0));
}

/* the strides within 16 filters and 16 channels of the result */
static td_native_wino_dw result_of(const td_node *n)
{
    enum { HALF = TD_WINO_HALF };
    const td_type *dw = &n->out[0]->type;
    if (strcmp(dw->layout, layouts[0][1]) == 0)
        return (td_native_wino_dw){ LANES * LANES, LANES, LANES * HALF, HALF };
    return (td_native_wino_dw){ HALF * HALF, HALF, TAPS * HALF * HALF, TAPS * HALF * dw->dim[1] };
}

/* products of the filter's points [0, f), for one tile, channel and filter */
static int64_t products_before(const td_native_wino *w, int64_t f)
{
    const int64_t row = f / w->filters, col = f % w->filters;
    const td_native_wino_range rows = td_native_wino_points(w, row);
    return row == w->filters ? (int64_t)w->side * w->side
                             : row * w->side + col * (rows.to - rows.from);
}

/* the end of a part from point f on that has at most `most` products */
static int64_t part_end(const td_native_wino *w, int64_t f, int64_t most)
{
    int64_t end = f;
    while (end < POINTS && products_before(w, end + 1) - products_before(w, f) <= most)
        end++;
    return end;
}

/* divides the points into s->parts, the largest of which is as small as can be */
static void divide_points(state *s)
{
    s->part_products = divide_up(products_before(&s->w, POINTS), s->parts);
    for (;; s->part_products++) {
        for (int64_t i = 0; i < s->parts; i++)
            s->first_point[i + 1] =
                s->parts == POINTS ? i + 1 : part_end(&s->w, s->first_point[i], s->part_products);
        if (s->first_point[s->parts] == POINTS)
            return;
    }
}

/* threads that run one group */
static int team_of(const state *s)
{
    return s->by_chain ? 1 : s->threads;
}

/* Products of the busiest thread, for one tile, channel and filter of each job.  Single points have
   as many products as the square of the last one's, as that one's, or 1.  Those with most are the
   first jobs, and threads take jobs as they come, so the second with most may end last. */
static int64_t busiest(const state *s)
{
    const int64_t last = s->w.side - s->w.filters + 1, all = products_before(&s->w, POINTS);
    if (s->parts < POINTS || last == 1)
        return divide_up(s->jobs * s->parts, team_of(s)) * s->part_products;
    const int64_t squares = divide_up(s->jobs, team_of(s)) * last * last;
    const int64_t others = divide_up(s->jobs * all, team_of(s)) + last;
    return squares > others ? squares : others;
}

/* has it at most an eighth more than the mean? */
static bool is_even(const state *s)
{
    return busiest(s) * team_of(s) * 8 <= s->jobs * products_before(&s->w, POINTS) * 9;
}

/* jobs of s->kb_count blocks of filters: as many blocks of channels as leave enough jobs; then as
   few parts of the points as divide them evenly, or the most even */
static void divide_products(state *s)
{
    const int64_t CB = s->w.C / LANES, rows = divide_up(s->w.K / LANES, s->kb_count);
    int64_t best = 1, least = INT64_MAX;
    s->cb_count = CB_MAX;
    while (s->cb_count > 1 && rows * divide_up(CB, s->cb_count) < JOBS_PER_THREAD * team_of(s))
        s->cb_count /= 2;
    s->jobs = rows * divide_up(CB, s->cb_count);
    for (s->parts = 1; s->parts <= POINTS; s->parts++) {
        divide_points(s);
        if (is_even(s))
            return;
        if (busiest(s) < least) {
            least = busiest(s);
            best = s->parts;
        }
    }
    s->parts = best;
    divide_points(s);
}

/* floats of the sums of a chain */
static int64_t sums_of(const state *s)
{
    return POINTS * s->w.C * s->w.K;
}

static void divide_chains(state *s)
{
    s->chains = 1;
    while (s->chains < CHAINS_MAX && s->tiles >= 2 * s->chains * CHAIN_TILES)
        s->chains *= 2;
    const int64_t most = divide_up(s->chains, s->threads);
    s->by_chain = s->chains > 1 && most * s->threads * 8 <= s->chains * 9;
}

static void divide(state *s)
{
    const int64_t points = products_before(&s->w, POINTS);
    const int64_t tile_bytes = points * (s->w.C + s->w.K) * (int64_t)sizeof(float);
    const int64_t fill = GROUP_BYTES / tile_bytes;
    const int64_t least = s->w.form == TD_WINO_LARGE ? TILES_MIN : TILES_MIN / 2;
    s->tiles = s->w.ends[TD_WINO_KINDS - 1];
    divide_chains(s);
    s->groups = s->chains * divide_up(divide_up(s->tiles, s->chains), larger(fill, least));
    s->w.room = divide_up(s->tiles, s->groups) | 1; /* odd: strides are no powers of two */
    s->w.v_step = td_native_wino_step(s->w.C, s->w.room);
    s->w.d_step = td_native_wino_step(s->w.K, s->w.room);
    s->run = smaller(s->tiles / s->groups / (4 * team_of(s)), RUN_MAX);
    s->run = s->run > 1 ? s->run : 1;
    s->kb_count = KB_MAX;
    divide_products(s);
    if (!is_even(s)) {
        s->kb_count = 1;
        divide_products(s);
    }
    s->has_own = s->groups == 1 && s->parts == 1;
    s->own_floats = s->kb_count * s->cb_count * SUM_FLOATS;
}

/* both kinds of jobs, one after the other, in elements of transformed tiles written and read */
static td_work_share share(const td_node *n, int threads)
{
    state s = { .simd = simd_for(n), .threads = threads, .w = geometry_of(n) };
    divide(&s);
    const int64_t tiles = divide_up(s.tiles, s.groups);
    const double line = LANES * (double)s.groups, points = (double)products_before(&s.w, POINTS);
    const double tile = line * points, read = (double)(tiles * (s.cb_count + s.kb_count)) * line;
    const int64_t most_blocks = larger(s.w.C, s.w.K) / LANES;
    const int64_t blocks = (s.w.C + s.w.K) / LANES, runs = 2 * divide_up(tiles, s.run);
    const int64_t most = smaller(divide_up(runs, threads) * s.run * most_blocks, tiles * blocks);
    const double all = (double)(tiles * blocks) * tile + (double)s.jobs * points * read;
    if (s.by_chain)
        return td_work_share_of(s.chains, all / (double)s.chains, threads);
    return (td_work_share){ (double)most * tile + (double)busiest(&s) * read, all / threads };
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    s->simd = simd_for(n);
    s->threads = td_threads();
    s->w = geometry_of(n);
    s->dw = result_of(n);
    s->dw_block = s->dw.channel == LANES ? TAPS * BLOCK_FLOATS : 2 * s->dw.channel_half;
    s->transforms = &s->simd->forms[s->w.form];
    td_winograd_matrices(s->w.form, &s->matrices);
    divide(s);
    const size_t points = (size_t)products_before(&s->w, POINTS);
    s->v_bytes = td_round_up(points * (size_t)s->w.v_step * sizeof(float), TD_HOST_ALIGN);
    s->d_bytes = td_round_up(points * (size_t)s->w.d_step * sizeof(float), TD_HOST_ALIGN);
    out->state = s;
    out->scratch_bytes = (s->v_bytes + s->d_bytes) * (size_t)(s->threads / team_of(s));
    const int64_t sums = s->has_own ? s->own_floats * s->threads : s->chains * sums_of(s);
    out->scratch_bytes += (size_t)sums * sizeof(float);
    snprintf(out->impl, sizeof out->impl, "F(3x3,4x4)%s %s",
             s->w.form == TD_WINO_STRIDED ? "/2" : "", s->simd->isa);
    return TD_OK;
}

typedef struct {
    const void *dy, *x;
    float *dw, *v, *d, *sum;
} tensors;

/* a job: kb_count blocks of filters, cb_count of channels, the filter's points [from, to); those of
   the last points are first */
typedef struct {
    int64_t kb, cb, kb_count, cb_count, from, to;
} job;

static job job_at(const state *s, int64_t index)
{
    const int64_t CB = s->w.C / LANES, KB = s->w.K / LANES, columns = divide_up(CB, s->cb_count);
    const int64_t i = index % s->jobs, part = s->parts - 1 - index / s->jobs;
    job j = { .kb = i / columns * s->kb_count,
              .cb = i % columns * s->cb_count,
              .from = s->first_point[part],
              .to = s->first_point[part + 1] };
    j.kb_count = smaller(KB - j.kb, s->kb_count);
    j.cb_count = smaller(CB - j.cb, s->cb_count);
    return j;
}

/* 16 filters and 16 channels of the result */
static void end_block(const state *s, const tensors *t, int64_t kb, int64_t cb, const float *m)
{
    const int64_t CB = s->w.C / LANES;
    s->transforms->gradient_end(&s->matrices, m, &s->dw,
                                t->dw + kb * CB * TAPS * BLOCK_FLOATS + cb * s->dw_block);
}

/* the first tile of a group */
static int64_t first_of(const state *s, int64_t group)
{
    return s->tiles * group / s->groups;
}

static int64_t groups_of_chain(const state *s)
{
    return s->groups / s->chains;
}

/* adds the products of one group for point f of the filters; m: the sums of the job */
static void multiply_point(const state *s, const tensors *t, int64_t group, const job *j, int64_t f,
                           float *m, int64_t m_step)
{
    const td_native_wino *w = &s->w;
    const int64_t first = first_of(s, group), tiles = first_of(s, group + 1) - first;
    const int64_t line = w->room * LANES;
    const td_native_wino_range rows = td_native_wino_points(w, f / w->filters);
    const td_native_wino_range cols = td_native_wino_points(w, f % w->filters);
    bool add = group % groups_of_chain(s) > 0;
    for (int64_t r = rows.from; r < rows.to; r++)
        for (int64_t q = cols.from; q < cols.to; q++, add = true) {
            const int64_t p = r * w->side + q;
            const td_native_wino_range at = td_native_wino_with_point(w, first, tiles, p);
            const float *v = t->v + p * w->v_step + at.from * LANES;
            const float *d = t->d + p * w->d_step + at.from * LANES;
            for (int64_t c = 0; c < j->cb_count; c++)
                s->simd->gradient_product(at.to - at.from, (int)j->kb_count, v + (j->cb + c) * line,
                                          d + j->kb * line, line,
                                          m + c * SUM_FLOATS + f * BLOCK_FLOATS, m_step, add);
        }
}

/* adds the products of one group; `own`: room for the sums of a job */
static void run_job(const state *s, const tensors *t, int64_t group, const job *j, float *own)
{
    const int64_t CB = s->w.C / LANES;
    const int64_t m_step = (s->has_own ? j->cb_count : CB) * SUM_FLOATS;
    float *sums = t->sum + group / groups_of_chain(s) * sums_of(s);
    float *m = s->has_own ? own : sums + (j->kb * CB + j->cb) * SUM_FLOATS;
    for (int64_t f = j->from; f < j->to; f++)
        multiply_point(s, t, group, j, f, m, m_step);
    if (group < s->groups - 1 || s->parts > 1 || s->chains > 1)
        return;
    for (int64_t k = 0; k < j->kb_count; k++)
        for (int64_t c = 0; c < j->cb_count; c++)
            end_block(s, t, j->kb + k, j->cb + c, m + k * m_step + c * SUM_FLOATS);
}

/* job i of those that transform the n tiles of a group */
static void transform(const state *s, const tensors *t, int64_t first, int64_t n, int64_t i)
{
    const int64_t at = i / 2 * s->run, tiles = smaller(n - at, s->run);
    if (i % 2 == 0)
        s->transforms->input(&s->w, first + at, tiles, t->x, t->v + at * LANES);
    else
        s->transforms->gradient(&s->w, first + at, tiles, t->dy, t->d + at * LANES);
}

/* groups [from, to), one after the other, each divided among the threads of a team: of a chain, the
   calling thread alone */
static void run_groups(const state *s, const tensors *t, int64_t from, int64_t to)
{
#pragma omp parallel num_threads(team_of(s))
    for (int64_t group = from; group < to; group++) {
        const int64_t first = first_of(s, group), n = first_of(s, group + 1) - first;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < 2 * divide_up(n, s->run); i++)
            transform(s, t, first, n, i);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < s->jobs * s->parts; i++) {
            const job j = job_at(s, i);
            run_job(s, t, group, &j, t->sum + omp_get_thread_num() * s->own_floats);
        }
    }
}

/* each thread has its own v and d */
static void run_chains(const state *s, const tensors *t)
{
    const int64_t groups = groups_of_chain(s);
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t chain = 0; chain < s->chains; chain++) {
        const size_t own = (s->v_bytes + s->d_bytes) / sizeof(float) * (size_t)omp_get_thread_num();
        tensors of_thread = *t;
        of_thread.v += own;
        of_thread.d += own;
        run_groups(s, &of_thread, chain * groups, (chain + 1) * groups);
    }
}

/* the sum of all chains, in that of the first */
static void add_chains(const state *s, float *m)
{
    for (int64_t chain = 1; chain < s->chains; chain++) {
        const float *other = m + chain * sums_of(s);
#pragma omp simd
        for (int64_t i = 0; i < SUM_FLOATS; i++)
            m[i] += other[i];
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const bool is_ended = s->parts == 1 && s->chains == 1;
    const int64_t CB = s->w.C / LANES, blocks = is_ended ? 0 : CB * (s->w.K / LANES);
    char *scratch = args[4];
    const size_t sums_at = (s->v_bytes + s->d_bytes) * (size_t)(s->threads / team_of(s));
    const tensors t = { .dy = args[0],
                        .x = args[1],
                        .dw = args[3],
                        .v = (float *)scratch,
                        .d = (float *)(scratch + s->v_bytes),
                        .sum = (float *)(scratch + sums_at) };
    if (s->by_chain)
        run_chains(s, &t);
    else
        run_groups(s, &t, 0, s->groups);
#pragma omp parallel for num_threads(s->threads) schedule(static) if (blocks > 0)
    for (int64_t i = 0; i < blocks; i++) {
        add_chains(s, t.sum + i * SUM_FLOATS);
        end_block(s, &t, i / CB, i % CB, t.sum + i * SUM_FLOATS);
    }
    return TD_OK;
}

const td_kernel td_native_conv2d_winograd_grad_w = {
    .name = "native_conv2d_winograd_grad_w",
    .op = &td_op_conv2d_winograd_grad_w,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = td_native_release_state,
    .share = share,
};

bool td_native_winograd_grad_w_preferred_layout(const td_node *n, td_node_layouts *out)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1);
    if (dy->dtype != TD_DT_F32 && dy->dtype != TD_DT_BF16)
        return false;
    const char *const *l =
        layouts[td_native_wino_prefers_halves(td_type_is_plain(dy) ? x : dy) ? 1 : 0];
    *out = (td_node_layouts){ 0 };
    memcpy(out->in[0], l[0], strlen(l[0]) + 1);
    memcpy(out->in[1], l[0], strlen(l[0]) + 1);
    memcpy(out->out, l[1], strlen(l[1]) + 1);
    return true;
}
