/*
 * native_pointwise_blocked.c -- 1x1 convolutions of training in float32 with AVX-512, on channels
 * in blocks of 16
 *
 *     jobs    pixels of an image x groups of panels (native_pointwise_blocked.h)
 *
 * The pixels of a job stay in a core's cache for all panels, and those of its thread's next job are
 * fetched meanwhile.  With a stride a job has whole rows, and the pixels that x has for them are
 * copied together.  Sums do not depend on the division: the same bits with any number of threads.
 */
#include "backend/native/native_pointwise_blocked.h"

#include <omp.h>
#include <string.h>

#include "backend/native/native.h"
#include "backend/native/native_conv.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    LANES = TD_POINT_LANES,
    PIXEL = LANES * (int)sizeof(float),
    BLOCKS = TD_POINT_PANEL / LANES, /* of a panel */
    JOB_BYTES = 256 << 10,           /* limit of the pixels of a job, if these fill two tiles */
    FILTER_BYTES = 256 << 10,        /* filters that stay in the cache beside them */
    TILE_MIN = 11,                   /* mean pixels of a tile */
};

#define UNEVEN_MAX                                                                                 \
    1.125 /* the busiest thread's work over the mean; from this on jobs are smaller */

/* --- supported nodes -------------------------------------------------------------------------- */

static td_status check(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    const td_native_conv_types t = td_native_conv_types_of(n);
    const int64_t area = t.y->dim[2] * t.y->dim[3], tiles = divide_up(area, TD_POINT_PIXELS);
    const int64_t K = t.w->dim[0], C = t.w->dim[1];
    if (t.x->dtype != TD_DT_F32 || t.w->dtype != TD_DT_F32 || !td_point_loops_here())
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(t.x->dtype));
    if (t.w->dim[2] != 1 || t.w->dim[3] != 1 || a->pad || a->pad_extra || a->groups != 1)
        return td_error(TD_ENOKERNEL, "not 1x1, or padded, or in groups");
    if (C % LANES || K % TD_POINT_PANEL)
        return td_error(TD_ENOKERNEL, "%lld x %lld channels are not whole blocks and panels",
                        (long long)K, (long long)C);
    if (area < TILE_MIN * tiles)
        return td_error(TD_ENOKERNEL, "images of %lld pixels fill no tiles", (long long)area);
    return td_native_conv_check(n);
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    return td_native_conv_check_layouts(n, "aBcd16b", "ABcd16b16a");
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    const td_point_loops *loops;
    int64_t N, H, W, P, Q, stride;
    int64_t depth, panels;      /* blocks of channels that are read; panels that are written */
    int64_t unit;               /* jobs have a multiple of so many pixels */
    int64_t per_image, largest; /* jobs of an image; pixels of the largest */
    int64_t groups;             /* of panels */
    bool is_streamed, is_w_fetched;
    int64_t scratch; /* floats of a thread */
    int threads;
} state;

/* the work of the busiest thread over the mean */
static double imbalance_of(const state *s)
{
    const int64_t jobs = s->N * s->per_image * s->groups;
    const int64_t job = s->largest * divide_up(s->panels, s->groups);
    return (double)(divide_up(jobs, s->threads) * s->threads * job) /
           (double)(s->N * s->P * s->Q * s->panels);
}

static void set_jobs(state *s, int64_t per_image, int64_t groups)
{
    s->per_image = per_image;
    s->largest = divide_up(s->P * s->Q / s->unit, per_image) * s->unit;
    s->groups = groups;
}

/* as large jobs as the cache holds; smaller ones, of a tile at least, if these are uneven */
static void divide(state *s)
{
    const int64_t area = s->P * s->Q, room = JOB_BYTES / PIXEL / s->depth;
    const int64_t least = smaller(area, larger(TD_POINT_PIXELS, s->unit));
    const int64_t wanted = larger(room / s->unit * s->unit, smaller(area, 2 * least));
    state best = *s;
    set_jobs(&best, divide_up(area, wanted), 1);
    set_jobs(s, best.per_image, 1);
    for (int64_t k = 1; k <= s->panels && imbalance_of(&best) > UNEVEN_MAX; k++)
        for (int64_t i = divide_up(area, wanted); i <= area / least; i++) {
            set_jobs(s, i, k);
            if (imbalance_of(s) < imbalance_of(&best))
                best = *s;
        }
    *s = best;
}

static state plan(const td_node *n, int threads)
{
    const td_native_conv_types t = td_native_conv_types_of(n);
    const int64_t K = t.w->dim[0], C = t.w->dim[1];
    state s = { .loops = td_point_loops_here(),
                .N = t.x->dim[0],
                .H = t.x->dim[2],
                .W = t.x->dim[3],
                .P = t.y->dim[2],
                .Q = t.y->dim[3],
                .stride = ((const td_conv_attr *)n->attr)->stride,
                .depth = C / LANES,
                .panels = K / TD_POINT_PANEL,
                .is_streamed = td_native_is_streamed(td_type_bytes(&n->out[0]->type)),
                .is_w_fetched = K * C * (int64_t)sizeof(float) > FILTER_BYTES,
                .threads = threads };
    s.unit = s.stride > 1 ? s.Q : 1;
    divide(&s);
    if (s.stride > 1)
        s.scratch = s.largest * LANES * s.depth;
    return s;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    *s = plan(n, td_threads());
    out->state = s;
    out->scratch_bytes = (size_t)(s->threads * s->scratch) * sizeof(float);
    return TD_OK;
}

static void release(td_prepared *p)
{
    td_free(p->state);
    p->state = NULL;
}

/* in results */
static td_work_share share(const td_node *n, int threads)
{
    const state s = plan(n, threads);
    const double mean = (double)(s.N * s.P * s.Q * s.panels * TD_POINT_PANEL) / threads;
    return (td_work_share){ mean * imbalance_of(&s), mean };
}

/* --- running ---------------------------------------------------------------------------------- */

/* pixels of an image and panels */
typedef struct {
    int64_t image, from, n;
    int64_t first, panels;
} job;

static job job_at(const state *s, int64_t i)
{
    const int64_t part = i / s->groups % s->per_image, group = i % s->groups;
    const int64_t units = s->P * s->Q / s->unit, from = units * part / s->per_image * s->unit;
    const int64_t first = s->panels * group / s->groups;
    return (job){ .image = i / (s->groups * s->per_image),
                  .from = from,
                  .n = units * (part + 1) / s->per_image * s->unit - from,
                  .first = first,
                  .panels = s->panels * (group + 1) / s->groups - first };
}

/* row i of those that a strided job reads: block after block, the rows of each */
static const float *strided_row(const state *s, const job *j, const float *x, int64_t i)
{
    const int64_t rows = j->n / s->Q, p = j->from / s->Q + i % rows;
    return x + ((j->image * s->depth + i / rows) * s->H + p * s->stride) * s->W * LANES;
}

/* x's pixels of a strided job, together */
static void gather(const state *s, const job *j, const float *x, float *to)
{
    for (int64_t i = 0; i < s->depth * (j->n / s->Q); i++) {
        const float *row = strided_row(s, j, x, i);
        s->loops->gather(row, s->stride, s->Q, to + i * s->Q * LANES);
    }
}

/* fetches part `part` of `parts` of the pixels that the next job gathers */
static void fetch_strided(const state *s, const job *next, const float *x, int64_t part,
                          int64_t parts)
{
    const int64_t rows = s->depth * (next->n / s->Q);
    for (int64_t i = rows * part / parts; i < rows * (part + 1) / parts; i++) {
        const float *row = strided_row(s, next, x, i);
        for (int64_t q = 0; q < s->Q; q++)
            __builtin_prefetch(row + q * s->stride * LANES, 0, 2);
    }
}

/* the first panel's product */
static td_point_product product_of(const td_node *n, const state *s, const job *j,
                                   void *const *args, float *scratch)
{
    const bool gathers = s->stride > 1;
    const int64_t area = s->P * s->Q * LANES, at = j->from * LANES;
    td_point_product v = { .pixels = j->n,
                           .depth = s->depth,
                           .x_block = gathers ? j->n * LANES : area,
                           .y_block = area,
                           .w_block = s->depth * LANES * LANES,
                           .is_streamed = s->is_streamed,
                           .parts = j->panels };
    v.x = gathers ? scratch : (const float *)args[0] + j->image * s->depth * area + at;
    v.w = (const float *)args[1] + j->first * BLOCKS * v.w_block;
    v.y = (float *)args[n->n_in] + (j->image * s->panels + j->first) * BLOCKS * area + at;
    return v;
}

/* `next`: the job whose pixels are fetched meanwhile, or NULL */
static void run_job(const td_node *n, const state *s, const job *j, const job *next,
                    void *const *args, float *scratch)
{
    const bool gathers = s->stride > 1;
    const int64_t area = s->P * s->Q;
    const float *x = args[0];
    td_point_product v = product_of(n, s, j, args, scratch);
    if (gathers)
        gather(s, j, x, scratch);
    if (next && !gathers) {
        v.next_x = x + (next->image * s->depth * area + next->from) * LANES;
        v.next_block = area * LANES;
    }
    for (; v.part < v.parts; v.part++) {
        v.next_w = s->is_w_fetched && v.part + 1 < v.parts ? v.w + BLOCKS * v.w_block : NULL;
        if (next && gathers)
            fetch_strided(s, next, x, v.part, v.parts);
        s->loops->multiply(&v);
        v.w += BLOCKS * v.w_block;
        v.y += BLOCKS * v.y_block;
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    float *scratch = args[p->node->n_in + 1];
    const int64_t jobs = s->N * s->per_image * s->groups;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t i = 0; i < jobs; i++) {
        const bool fetches = s->groups == 1 && i + 1 < jobs;
        const job j = job_at(s, i), next = job_at(s, fetches ? i + 1 : i);
        run_job(p->node, s, &j, fetches ? &next : NULL, args,
                s->scratch ? scratch + omp_get_thread_num() * s->scratch : NULL);
    }
    return TD_OK;
}

const td_kernel td_native_pointwise_blocked = { .name = "native_pointwise_blocked",
                                                .op = &td_op_conv2d,
                                                .accepts = accepts,
                                                .prepare = prepare,
                                                .run = run,
                                                .release = release,
                                                .share = share };
