/*
 * dnnl_conv_parts.c -- the filter gradient in half precision, divided among the threads by images
 * and output channels
 *
 * In oneDNN's bf16 weight gradients of filters larger than 1 x 1 (on processors with AMX, of all
 * filters), threads wait for each other many times per call, in spin loops.  If another program
 * uses one thread's core, such a call takes 10 to 200 times as long.  Here each thread runs
 * single-threaded primitives over its own images into its own gradient, and the gradients are
 * summed; threads wait only at the end.  On an idle machine both ways are equally fast.
 *
 *                   images 0-3    4-7     8-11         3 parts, 2 groups: 6 jobs
 *     channels 0-31   job 0      job 2    job 4        the sums of parts 1 and 2 are added to
 *     channels 32-63  job 1      job 3    job 5        those of part 0, which are in the result
 *
 * Channels are divided only where images alone would not employ the threads evenly: more threads
 * than images, or 32 images on 24 threads.  The channels of a group are not adjacent in dy across
 * images, so such a job computes one image at a time and adds the gradients.
 *
 * The sum's rounding depends on the number of parts, which follows from the threads at prepare.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "base/machine.h"
#include "ops/ops.h"
#include "tandem/program.h"

enum { DY, X, SHAPE, DW, SCRATCH }; /* the kernel's arguments */

/* maximum memory for gradients in addition to the result */
#define EXTRA_BYTES_MAX ((int64_t)64 << 20)

/* What jobs with some of the channels cost more: an image at a time, and x is read by each. */
#define GROUPED_COST 1.15

/* An uneven division is still better than threads that wait for each other, up to this. */
#define UNEVEN_MAX 2

/* --- dividing --------------------------------------------------------------------------------- */

typedef struct {
    int parts, groups;
} grid;

/* the number of items in share k of n, as even as possible, and the first one */
static int64_t share_of(int64_t items, int n, int k)
{
    return items * (k + 1) / n - items * k / n;
}

static int64_t first_of(int64_t items, int n, int k)
{
    return items * k / n;
}

static int64_t largest_of(int64_t items, int n)
{
    return (items + n - 1) / n;
}

/* The output channels, in blocks that are contiguous in an image of dy and in dw. */
typedef struct {
    int64_t n, size; /* blocks, channels of a block; the last one may be padded */
} channel_blocks;

/* the blocks of dimension d, if position `at` of the outer order is d; n is 0: it is not */
static channel_blocks blocks_of(const td_type *t, int d, int at)
{
    td_blocking b;
    int64_t size = 1;
    if (!td_type_blocking(t, &b) || b.rank != 4 || b.order[at] != d)
        return (channel_blocks){ 0, 1 };
    for (int i = 0; i < b.n_blocks; i++)
        size *= b.block_dim[i] == d ? b.block[i] : 1;
    return (channel_blocks){ b.padded[d] / size, size };
}

/* one block of all channels if they cannot be divided */
static channel_blocks blocks_of_node(const td_node *n)
{
    enum { LANES = 16 };
    const channel_blocks dy = blocks_of(td_in_type(n, DY), 1, 1);
    const channel_blocks dw = blocks_of(&n->out[0]->type, 0, 0);
    if (((const td_conv_attr *)n->attr)->groups > 1 || dy.size != LANES || dw.size != LANES ||
        dy.n != dw.n || dy.n == 0)
        return (channel_blocks){ 1, n->out[0]->type.dim[0] };
    return dy;
}

/* gradients in memory in addition to the result: of parts, and of the image that a job computes */
static double extra_gradients(int64_t images, grid g)
{
    const bool adds = g.groups > 1 && g.parts < images;
    return g.parts - 1 + (adds ? g.parts : 0);
}

/* the work of the busiest thread, in images */
static double cost_of(int64_t images, int64_t blocks, grid g)
{
    const double share = (double)largest_of(blocks, g.groups) / (double)blocks;
    return (double)largest_of(images, g.parts) * share * (g.groups > 1 ? GROUPED_COST : 1);
}

static grid divide(const td_node *n, int threads)
{
    const int64_t images = td_in_type(n, X)->dim[0], blocks = blocks_of_node(n).n;
    const double room = (double)EXTRA_BYTES_MAX / (double)td_type_bytes(&n->out[0]->type);
    grid best = { 1, 1 };
    for (int parts = threads < images ? threads : (int)images; parts > 0; parts--)
        for (int groups = 1; groups <= blocks && groups * parts <= threads; groups++) {
            const grid g = { parts, groups };
            if (extra_gradients(images, g) <= room &&
                cost_of(images, blocks, g) < cost_of(images, blocks, best))
                best = g;
        }
    return best;
}

/* in elements of dy */
static td_work_share share(const td_node *n, int threads)
{
    const int64_t images = td_in_type(n, X)->dim[0], blocks = blocks_of_node(n).n;
    const grid g = divide(n, threads);
    const double image = (double)td_type_count(td_in_type(n, DY)) / (double)images;
    const double largest =
        (double)largest_of(images, g.parts) * (double)largest_of(blocks, g.groups) / (double)blocks;
    return (td_work_share){ largest * image, (double)images * image / threads };
}

static td_status accepts(const td_node *n)
{
    const td_type *dy = td_in_type(n, DY), *x = td_in_type(n, X), *dw = &n->out[0]->type;
    const int threads = td_threads();
    if (x->dtype != TD_DT_BF16 || dw->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "not bf16 with a float32 gradient");
    if (dw->dim[2] == 1 && dw->dim[3] == 1 && td_cpu_bf16_rate() < TD_BF16_RATE_MATRICES)
        return td_error(TD_ENOKERNEL, "the filter is 1 x 1");
    if (threads < 2)
        return td_error(TD_ENOKERNEL, "there is one thread");
    if (!td_dnnl_is_cut_by_image(x) || !td_dnnl_is_cut_by_image(dy))
        return td_error(TD_ENOKERNEL, "the values of an image are not contiguous");
    const td_work_share s = share(n, threads);
    if (s.largest >= s.mean * UNEVEN_MAX)
        return td_error(TD_ENOKERNEL, "%lld images for %d threads", (long long)x->dim[0], threads);
    const grid g = divide(n, threads);
    const channel_blocks c = blocks_of_node(n);
    if (g.groups == 1)
        return td_dnnl_conv_accepts_alone(n, largest_of(x->dim[0], g.parts), 0);
    return td_dnnl_conv_accepts_alone(n, 1, largest_of(c.n, g.groups) * c.size);
}

/* --- preparing -------------------------------------------------------------------------------- */

typedef struct {
    td_prepared call;
    int part;
    int64_t image, n_images;     /* in one call: all of them, or one */
    int64_t block, n_blocks;     /* of output channels */
    size_t scratch_at, image_at; /* offsets in scratch; image_at: an image's gradient */
} job;

typedef struct {
    grid grid;
    int n;
    job jobs[];
} state;

/* a gradient of the whole filter in scratch */
static size_t gradient_bytes(const td_node *n)
{
    return td_round_up((size_t)td_type_bytes(&n->out[0]->type), TD_HOST_ALIGN);
}

static size_t block_bytes(const td_node *n)
{
    return (size_t)(td_type_bytes(&n->out[0]->type) / blocks_of_node(n).n);
}

static void release(td_prepared *p)
{
    state *s = p->state;
    for (int k = 0; s && k < s->n; k++)
        td_dnnl_release(&s->jobs[k].call);
    td_free(s);
    p->state = NULL;
}

static td_status prepare_job(const td_node *n, grid g, int k, job *j, size_t *scratch_bytes)
{
    const int64_t images = td_in_type(n, X)->dim[0], K = n->out[0]->type.dim[0];
    const channel_blocks c = blocks_of_node(n);
    const bool is_grouped = g.groups > 1;
    j->part = k / g.groups;
    j->image = first_of(images, g.parts, j->part);
    j->n_images = share_of(images, g.parts, j->part);
    j->block = first_of(c.n, g.groups, k % g.groups);
    j->n_blocks = share_of(c.n, g.groups, k % g.groups);
    const int64_t end = (j->block + j->n_blocks) * c.size, channels = end < K ? end : K;
    TD_TRY(td_dnnl_conv_prepare(n, is_grouped ? 1 : j->n_images,
                                is_grouped ? channels - j->block * c.size : 0, &j->call));
    j->scratch_at = *scratch_bytes;
    *scratch_bytes += td_round_up(j->call.scratch_bytes, TD_HOST_ALIGN);
    j->image_at = *scratch_bytes;
    if (is_grouped && j->n_images > 1)
        *scratch_bytes += td_round_up(block_bytes(n) * (size_t)j->n_blocks, TD_HOST_ALIGN);
    return TD_OK;
}

static td_status prepare_jobs(const td_node *n, state *s, size_t *scratch_bytes)
{
    for (int k = 0; k < s->n; k++)
        TD_TRY(prepare_job(n, s->grid, k, &s->jobs[k], scratch_bytes));
    return TD_OK;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const int threads = td_threads();
    const grid g = divide(n, threads);
    const int jobs = g.parts * g.groups;
    state *s = td_alloc(1, sizeof *s + (size_t)jobs * sizeof s->jobs[0]);
    if (!s)
        return TD_ENOMEM;
    s->grid = g;
    s->n = jobs;
    out->state = s;
    out->scratch_bytes = gradient_bytes(n) * (size_t)(g.parts - 1);
    td_set_threads(1); /* create single-threaded primitives */
    const td_status st = prepare_jobs(n, s, &out->scratch_bytes);
    td_set_threads(threads);
    if (st != TD_OK)
        release(out);
    else if (g.groups == 1)
        snprintf(out->impl, sizeof out->impl, "%d x %.40s", g.parts, s->jobs[0].call.impl);
    else
        snprintf(out->impl, sizeof out->impl, "%d x %d x %.40s", g.parts, g.groups,
                 s->jobs[0].call.impl);
    return st;
}

/* --- running ---------------------------------------------------------------------------------- */

static void add(int64_t count, const float *x, float *sum)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        sum[i] += x[i];
}

/* the gradient of some images into `to`, a place for the job's channels */
static td_status run_images(const td_node *n, const job *j, int64_t image, void *to,
                            void *const *args)
{
    const int64_t dy_bytes = td_dnnl_image_bytes(td_in_type(n, DY));
    const int64_t x_bytes = td_dnnl_image_bytes(td_in_type(n, X));
    char *dy = (char *)args[DY] + image * dy_bytes + j->block * (dy_bytes / blocks_of_node(n).n);
    void *own[] = { dy, (char *)args[X] + image * x_bytes, args[SHAPE], to,
                    (char *)args[SCRATCH] + j->scratch_at };
    return td_dnnl_run(&j->call, own);
}

static td_status run_job(const td_node *n, const state *s, const job *j, void *const *args)
{
    const size_t bytes = block_bytes(n);
    char *scratch = args[SCRATCH];
    char *sum = j->part ? scratch + gradient_bytes(n) * (size_t)(j->part - 1) : args[DW];
    sum += bytes * (size_t)j->block;
    TD_TRY(run_images(n, j, j->image, sum, args));
    for (int64_t i = 1; s->grid.groups > 1 && i < j->n_images; i++) {
        float *one = (float *)(void *)(scratch + j->image_at);
        TD_TRY(run_images(n, j, j->image + i, one, args));
        add((int64_t)(bytes / sizeof(float)) * j->n_blocks, one, (float *)(void *)sum);
    }
    return TD_OK;
}

enum { SUMMED = 4096 /* elements of all parts at a time */ };

static void sum_parts(int n_parts, int64_t count, float *dw, const float *others, int64_t stride)
{
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < count; from += SUMMED) {
        const int64_t end = count - from < SUMMED ? count : from + SUMMED;
        for (int k = 0; k < n_parts - 1; k++)
#pragma omp simd
            for (int64_t i = from; i < end; i++)
                dw[i] += others[k * stride + i];
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const state *s = p->state;
    atomic_int failed = TD_OK;
    /* by all threads, even if some have no job: libgomp ends threads that a team does not use */
#pragma omp parallel for schedule(static, 1)
    for (int k = 0; k < s->n; k++) {
        const td_status st = run_job(n, s, &s->jobs[k], args);
        if (st != TD_OK)
            atomic_store(&failed, (int)st);
    }
    if (failed != TD_OK)
        return td_error((td_status)failed, "oneDNN could not run a part of a filter's gradient");
    if (s->grid.parts > 1)
        sum_parts(s->grid.parts, td_type_padded_count(&n->out[0]->type), args[DW], args[SCRATCH],
                  (int64_t)(gradient_bytes(n) / sizeof(float)));
    return TD_OK;
}

const td_kernel td_dnnl_conv_grad_w_parts = {
    .name = "dnnl_conv_grad_w_parts",
    .op = &td_op_conv2d_grad_w,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = release,
    .share = share,
};
