/*
 * native_pointwise_grad_w.c -- filter gradients of 1x1 convolutions in float32 with AVX-512, on
 * channels in blocks of 16
 *
 *     parts    of the images; each sums a whole gradient, and these are added in order
 *     jobs     some blocks of output channels, some of input channels, one part
 *     chunks   of a job, one after the other: pixels of an image, or of some images, which stay in
 *              a core's cache beside the job's sums while all its blocks are multiplied, and during
 *              which those of the next chunk are fetched
 *
 * No job waits for another.  A sum is one chain over the pixels of a part; parts depend on shapes
 * only, so the result has the same bits with any number of threads.
 */
#include "backend/native/native.h"
#include "backend/native/native_conv.h"
#include "backend/native/native_pointwise_blocked.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    LANES = TD_POINT_LANES,
    PIXEL = LANES * (int)sizeof(float),
    BLOCK = LANES * LANES,   /* elements of dw of two blocks */
    CHUNK_BYTES = 320 << 10, /* limit of the pixels of a chunk */
    SUM_BLOCKS = 128,        /* limit of a job's pairs of blocks, of 1 KB each */
    KB_MAX = 16,
    CB_MAX = 16,      /* blocks of a job */
    JOBS_WANTED = 32, /* without regard to threads */
    AREA_MIN = 36,
};

/* Ratios of the busiest thread's work to the mean: from the first on jobs are smaller, from the
   second on oneDNN's kernel is used. */
#define UNEVEN_MAX 1.125
#define REFUSED    1.25

typedef struct {
    const td_point_loops *loops;
    int64_t N, KB, CB, area;
    int64_t kb, cb;         /* blocks of a job */
    int64_t k_jobs, c_jobs; /* jobs of a part */
    int64_t parts;
    int64_t images, per_image; /* images of a chunk, or chunks of an image */
    int threads;
} state;

/* --- supported nodes -------------------------------------------------------------------------- */

static td_status check(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1), *dw = &n->out[0]->type;
    if (x->dtype != TD_DT_F32 || dy->dtype != TD_DT_F32 || !td_point_loops_here())
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    if (dw->dim[2] != 1 || dw->dim[3] != 1 || a->pad || a->pad_extra || a->stride != 1 ||
        a->groups != 1)
        return td_error(TD_ENOKERNEL, "not 1x1 with stride 1, or padded, or in groups");
    if (dy->dim[1] % LANES || x->dim[1] % LANES)
        return td_error(TD_ENOKERNEL, "the channels are not whole blocks of 16");
    if (dy->dim[2] * dy->dim[3] < AREA_MIN)
        return td_error(TD_ENOKERNEL, "images of less than %d pixels", AREA_MIN);
    return td_native_conv_check(n);
}

/* --- division --------------------------------------------------------------------------------- */

/* whole images, or else equal parts of an image */
static void size_chunk(state *s)
{
    const int64_t part = divide_up(s->N, s->parts);
    const int64_t room = CHUNK_BYTES / PIXEL / (s->kb + s->cb);
    s->images = larger(smaller(room / s->area, part), 1);
    s->images = divide_up(part, divide_up(part, s->images));
    s->per_image = s->images > 1 ? 1 : divide_up(s->area, room);
}

/* the work of the busiest thread over the mean */
static double imbalance_of(const state *s)
{
    const int64_t jobs = s->parts * s->k_jobs * s->c_jobs;
    const int64_t job = s->kb * s->cb * divide_up(s->N, s->parts);
    return (double)(divide_up(jobs, s->threads) * s->threads * job) /
           (double)(s->KB * s->CB * s->N);
}

static void set_jobs(state *s, int64_t kb, int64_t cb)
{
    s->k_jobs = divide_up(s->KB, kb);
    s->c_jobs = divide_up(s->CB, cb);
    s->kb = divide_up(s->KB, s->k_jobs);
    s->cb = divide_up(s->CB, s->c_jobs);
}

/* as many parts as make enough of the largest jobs; then smaller ones, if these are uneven */
static void divide(state *s)
{
    const int64_t kb = smaller(s->KB, KB_MAX);
    set_jobs(s, kb, smaller(smaller(s->CB, CB_MAX), SUM_BLOCKS / kb));
    s->parts = smaller(divide_up(JOBS_WANTED, s->k_jobs * s->c_jobs), s->N);
    while (imbalance_of(s) > UNEVEN_MAX && s->kb * s->cb > 1)
        if (s->kb > s->cb)
            set_jobs(s, s->kb / 2, s->cb);
        else
            set_jobs(s, s->kb, s->cb / 2);
    size_chunk(s);
}

static state plan(const td_node *n, int threads)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1);
    state s = { .loops = td_point_loops_here(),
                .N = x->dim[0],
                .KB = dy->dim[1] / LANES,
                .CB = x->dim[1] / LANES,
                .area = dy->dim[2] * dy->dim[3],
                .threads = threads };
    divide(&s);
    return s;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    TD_TRY(td_native_conv_check_layouts(n, "aBcd16b", "ABcd16b16a"));
    const state s = plan(n, td_threads());
    if (imbalance_of(&s) > REFUSED)
        return td_error(TD_ENOKERNEL, "%lld jobs for %d threads",
                        (long long)(s.parts * s.k_jobs * s.c_jobs), s.threads);
    return TD_OK;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    *s = plan(n, td_threads());
    out->state = s;
    out->scratch_bytes = (size_t)((s->parts - 1) * s->KB * s->CB * BLOCK) * sizeof(float);
    return TD_OK;
}

static void release(td_prepared *p)
{
    td_free(p->state);
    p->state = NULL;
}

/* in products */
static td_work_share share(const td_node *n, int threads)
{
    const state s = plan(n, threads);
    const double each =
        (double)(s.kb * s.cb * BLOCK) * (double)divide_up(s.N, s.parts) * (double)s.area;
    return td_work_share_of(s.parts * s.k_jobs * s.c_jobs, each, threads);
}

/* --- running ---------------------------------------------------------------------------------- */

/* blocks [kb, kb_end) of dy and [cb, cb_end) of x, images [from, to) */
typedef struct {
    const float *dy, *x;
    float *dw;
    int64_t kb, kb_end, cb, cb_end, from, to;
} job;

/* some pixels of some images */
typedef struct {
    const job *job;
    int64_t image, images, from, n;
} chunk;

/* chunk i of a job, or false */
static bool find_chunk(const state *s, const job *j, int64_t i, chunk *c)
{
    const int64_t part = i % s->per_image;
    c->job = j;
    c->image = j->from + i / s->per_image * s->images;
    if (c->image >= j->to)
        return false;
    c->images = smaller(s->images, j->to - c->image);
    c->from = s->area * part / s->per_image;
    c->n = s->area * (part + 1) / s->per_image - c->from;
    return true;
}

/* the first pixel of block b of a tensor of as many pixels as dy */
static const float *pixels_of(const state *s, const chunk *c, const float *tensor, int64_t blocks,
                              int64_t b)
{
    return tensor + ((c->image * blocks + b) * s->area + c->from) * LANES;
}

/* lets `v` fetch block i of the next chunk, dy's first */
static void fetch_block(const state *s, const chunk *next, int64_t i, td_point_sum *v)
{
    const job *j = next->job;
    const int64_t n = j->kb_end - j->kb, area = s->area * LANES;
    if (i < n) {
        v->next = pixels_of(s, next, j->dy, s->KB, j->kb + i);
        v->next_image = s->KB * area;
    } else {
        v->next = pixels_of(s, next, j->x, s->CB, j->cb + i - n);
        v->next_image = s->CB * area;
    }
}

static int64_t blocks_of(const job *j)
{
    return j->kb_end - j->kb + j->cb_end - j->cb;
}

/* `next`: the chunk to fetch, or NULL */
static void add_chunk(const state *s, const chunk *c, const chunk *next, bool is_first)
{
    const job *j = c->job;
    const int64_t cbs = j->cb_end - j->cb, sums = (j->kb_end - j->kb) * cbs;
    const int64_t blocks = next ? blocks_of(next->job) : 0;
    td_point_sum v = { .images = c->images,
                       .pixels = c->n,
                       .x_image = s->CB * s->area * LANES,
                       .dy_image = s->KB * s->area * LANES,
                       .is_first = is_first };
    for (int64_t i = 0; i < sums; i++) {
        const int64_t k = j->kb + i / cbs, b = j->cb + i % cbs, ahead = blocks * i / sums;
        v.next = NULL;
        if (blocks * (i + 1) / sums > ahead)
            fetch_block(s, next, ahead, &v);
        v.dy = pixels_of(s, c, j->dy, s->KB, k);
        v.x = pixels_of(s, c, j->x, s->CB, b);
        v.dw = j->dw + (k * s->CB + b) * BLOCK;
        s->loops->sum(&v);
    }
}

/* `after`: the job that the thread does next, or NULL */
static void run_job(const state *s, const job *j, const job *after)
{
    chunk c, next;
    bool has_more = find_chunk(s, j, 0, &c);
    for (int64_t i = 0; has_more; i++, c = next) {
        has_more = find_chunk(s, j, i + 1, &next);
        const bool goes_on = has_more || (after && find_chunk(s, after, 0, &next));
        add_chunk(s, &c, goes_on ? &next : NULL, i == 0);
    }
}

static job job_at(const state *s, int64_t i, void *const *args)
{
    const int64_t part = i / (s->k_jobs * s->c_jobs), k = i / s->c_jobs % s->k_jobs;
    const int64_t c = i % s->c_jobs, count = s->KB * s->CB * BLOCK;
    float *scratch = args[4];
    return (job){ .dy = args[0],
                  .x = args[1],
                  .dw = part ? scratch + (part - 1) * count : args[3],
                  .kb = s->KB * k / s->k_jobs,
                  .kb_end = s->KB * (k + 1) / s->k_jobs,
                  .cb = s->CB * c / s->c_jobs,
                  .cb_end = s->CB * (c + 1) / s->c_jobs,
                  .from = s->N * part / s->parts,
                  .to = s->N * (part + 1) / s->parts };
}

/* dw += the sums of parts 1, 2, ... */
static void add_parts(const state *s, const float *scratch, float *dw)
{
    const int64_t count = s->KB * s->CB * BLOCK;
#pragma omp for schedule(static)
    for (int64_t block = 0; block < count; block += BLOCK)
        for (int64_t part = 1; part < s->parts; part++)
#pragma omp simd
            for (int64_t i = block; i < block + BLOCK; i++)
                dw[i] += scratch[(part - 1) * count + i];
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const int64_t jobs = s->parts * s->k_jobs * s->c_jobs;
#pragma omp parallel num_threads(s->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < jobs; i++) {
            const bool is_last = i + 1 == jobs;
            const job j = job_at(s, i, args), after = job_at(s, is_last ? i : i + 1, args);
            run_job(s, &j, is_last ? NULL : &after);
        }
        if (s->parts > 1)
            add_parts(s, args[4], args[3]);
    }
    return TD_OK;
}

const td_kernel td_native_pointwise_grad_w = { .name = "native_pointwise_grad_w",
                                               .op = &td_op_conv2d_grad_w,
                                               .accepts = accepts,
                                               .prepare = prepare,
                                               .run = run,
                                               .release = release,
                                               .share = share };
