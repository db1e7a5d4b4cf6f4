/*
 * native_inverted_bf16.c -- inverted residual blocks in bfloat16, on processors that multiply pairs
 *
 * As native_inverted.c, but d has all M channels and is rounded to bfloat16, so that a sum of the
 * projection is one chain.
 *
 *     jobs    images x bands of rows: e, d and y of one band after the other
 *     split   a few small images: images x parts of the M channels, until d is whole; then images x
 *             chunks of pixels x vectors of channels of y
 *
 * An image has the same bits in any batch and with any number of threads.
 */
#include <stdio.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/inverted_residual/native_inverted.h"
#include "base/arena.h"
#include "base/half.h"
#include "tandem/program.h"

/* bytes of x, e, d and y of a band: some of an L2 cache */
#define BAND_BYTES (384 << 10)

/* results of an image that is split, at most; pixels of a chunk */
#define PIXELS_MAX 256
#define CHUNK      98

/* --- supported nodes -------------------------------------------------------------------------- */

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_inverted *v)
{
    TD_TRY(td_inverted_shape_of(n, v));
    for (int i = 0; i < n->n_in; i++) {
        const td_type *t = td_in_type(n, i);
        const td_dtype wanted = t->rank == 1 ? TD_DT_F32 : TD_DT_BF16;
        if (t->dtype != wanted || !td_inverted_loops_bf16())
            return td_error(TD_ENOKERNEL, "no loops in %s for this machine",
                            td_dtype_name(t->dtype));
    }
    if (v->has_expansion && v->C % 2)
        return td_error(TD_ENOKERNEL, "%lld channels are no pairs", (long long)v->C);
    return TD_OK;
}

/* operands x, w1, b1, w2, b2, w3, b3, where the block has them */
static td_node_layouts layouts_of(const td_inverted *v)
{
    td_node_layouts l = { .in = { "acdb" }, .out = "acdb" };
    const int w2 = v->has_expansion ? 3 : 1;
    if (v->has_expansion)
        (void)snprintf(l.in[1], TD_LAYOUT_BYTES, "ABcd8a2b");
    (void)snprintf(l.in[w2], TD_LAYOUT_BYTES, "Abcd8a");
    if (v->has_projection)
        (void)snprintf(l.in[w2 + 2], TD_LAYOUT_BYTES, "ABcd8a2b");
    return l;
}

static td_status accepts(const td_node *n)
{
    td_inverted v;
    TD_TRY(shape_of(n, &v));
    const td_node_layouts l = layouts_of(&v);
    return td_native_check_layouts(n, &l);
}

bool td_native_inverted_bf16_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_inverted v;
    if (shape_of(n, &v) != TD_OK)
        return false;
    *out = layouts_of(&v);
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    int threads;
    int64_t bands, rows; /* rows of the largest band */
    int64_t parts;       /* jobs that divide the M channels; 1: not divided */
    int64_t chunks;      /* with parts: jobs that divide an image's pixels */
    int64_t vectors;     /* and vectors that divide its channels */
} division;

static division divide(const td_inverted *v, int threads)
{
    const int64_t each = (int64_t)sizeof(uint16_t), pixels = v->P * v->Q;
    const int64_t row =
        v->stride * v->W * (v->C * each + TD_INVERTED_BLOCK * (int64_t)sizeof(float)) +
        (v->has_projection ? v->Q * (v->K + v->M) * each : 0);
    const int64_t most = BAND_BYTES / row > 1 ? BAND_BYTES / row : 1;
    const int64_t least = divide_up(v->P, most), blocks = divide_up(v->M, TD_INVERTED_BLOCK);
    division d = { .threads = threads, .bands = least, .parts = 1 };
    if (pixels <= PIXELS_MAX && least == 1 && v->N % threads && v->N < 2 * threads) {
        d.parts = divide_up(threads, v->N);
        d.parts = d.parts < blocks ? d.parts : blocks;
        d.chunks = divide_up(pixels, CHUNK);
        d.vectors = divide_up(v->K, TD_PROJECT_CHANNELS);
    } else {
        d.bands = td_inverted_bands(v, least, threads);
    }
    d.rows = divide_up(v->P, d.bands);
    return d;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_inverted v;
    division d;
    td_inverted_loops *loops;
    td_project_bf16 *project;
    int64_t sums; /* floats of the sums of rows */
    int64_t wide; /* floats of d of all images, if there are parts */
    int64_t each; /* floats of a thread's scratch, after these */
    int64_t part; /* floats in it of d, unless there are parts */
} state;

static int64_t aligned(int64_t floats)
{
    return (int64_t)td_round_up((size_t)floats, TD_HOST_ALIGN / sizeof(float));
}

static int64_t floats_of_d(const td_inverted *v, int64_t rows)
{
    return aligned(divide_up(rows * v->Q * v->M, 2));
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    TD_CHECK(shape_of(n, &s->v) == TD_OK);
    s->d = divide(&s->v, td_threads());
    s->loops = td_inverted_loops_bf16();
    s->project = td_project_loops_bf16();
    if (!s->v.has_projection)
        s->sums = aligned(s->v.N * s->v.P * s->v.M);
    else if (s->d.parts > 1)
        s->wide = s->v.N * floats_of_d(&s->v, s->v.P);
    else
        s->part = floats_of_d(&s->v, s->d.rows);
    s->each = s->part + aligned(td_inverted_scratch(&s->v, s->d.rows));
    out->state = s;
    out->scratch_bytes = (size_t)(s->sums + s->wide + s->d.threads * s->each) * sizeof(float) +
                         td_native_turns_bytes(s->d.threads);
    (void)snprintf(out->impl, sizeof out->impl, "avx512_bf16, bands of %d", (int)s->d.rows);
    return TD_OK;
}

typedef struct {
    const state *s;
    td_inverted_in in;
    uint16_t *y;
    float *sums; /* [N, P, M], sums of rows */
    float *wide; /* d of all images */
    float *own;  /* the threads' scratch */
} call;

static uint16_t *wide_of(const call *c, int64_t n)
{
    return (uint16_t *)(c->wide + n * floats_of_d(&c->s->v, c->s->v.P));
}

static td_projection_bf16 projection_of(const call *c, int64_t n, int64_t p, int64_t q,
                                        int64_t pixels, const uint16_t *d)
{
    const td_inverted *v = &c->s->v;
    const int64_t at = ((n * v->P + p) * v->Q + q) * v->K;
    return (td_projection_bf16){ .n = pixels,
                                 .M = v->M,
                                 .K = v->K,
                                 .d = d,
                                 .w = c->in.w3,
                                 .b = c->in.b3,
                                 .rest = v->has_residual ? (const uint16_t *)c->in.x + at : NULL,
                                 .y = c->y + at };
}

/* number i of the images' bands */
static void run_band(const void *context, int i, int thread)
{
    const call *c = context;
    float *own = c->own + thread * c->s->each;
    const td_inverted *v = &c->s->v;
    const int64_t bands = c->s->d.bands, n = i / bands, band = i % bands;
    const int64_t from = v->P * band / bands, to = v->P * (band + 1) / bands;
    uint16_t *d = v->has_projection ? (uint16_t *)own : c->y + (n * v->P + from) * v->Q * v->M;
    c->s->loops(v, &c->in,
                &(td_inverted_job){ .n = n,
                                    .p_from = from,
                                    .p_to = to,
                                    .m_to = v->M,
                                    .y = d,
                                    .sums = c->sums + (n * v->P + from) * v->M,
                                    .scratch = own + c->s->part });
    if (!v->has_projection)
        return;
    const td_projection_bf16 p = projection_of(c, n, from, 0, (to - from) * v->Q, d);
    for (int64_t k = 0; k < v->K; k += TD_PROJECT_CHANNELS)
        c->s->project(&p, k / TD_INVERTED_BLOCK);
}

/* number i of the images' parts */
static void run_part(const void *context, int i, int thread)
{
    const call *c = context;
    float *own = c->own + thread * c->s->each;
    const td_inverted *v = &c->s->v;
    const int64_t parts = c->s->d.parts, n = i / parts, part = i % parts;
    const int64_t blocks = divide_up(v->M, TD_INVERTED_BLOCK);
    const int64_t to = blocks * (part + 1) / parts * TD_INVERTED_BLOCK;
    c->s->loops(
        v, &c->in,
        &(td_inverted_job){ .n = n,
                            .p_to = v->P,
                            .m_from = blocks * part / parts * TD_INVERTED_BLOCK,
                            .m_to = to < v->M ? to : v->M,
                            .y = v->has_projection ? wide_of(c, n) : c->y + n * v->P * v->Q * v->M,
                            .sums = c->sums + n * v->P * v->M,
                            .scratch = own });
}

/* number i of the images' chunks and vectors */
static void run_chunk(const void *context, int i, int thread)
{
    const call *c = context;
    (void)thread;
    const td_inverted *v = &c->s->v;
    const int64_t chunks = c->s->d.chunks, each = chunks * c->s->d.vectors, pixels = v->P * v->Q;
    const int64_t n = i / each, vector = i % each / chunks, chunk = i % chunks;
    const int64_t from = pixels * chunk / chunks, to = pixels * (chunk + 1) / chunks;
    const td_projection_bf16 p =
        projection_of(c, n, 0, from, to - from, wide_of(c, n) + from * v->M);
    c->s->project(&p, vector * TD_PROJECT_VECTORS);
}

static void for_all(const call *c, int64_t jobs, void (*job)(const void *, int, int))
{
    const int threads = c->s->d.threads;
    td_native_take_turns(&(td_native_turns){ (int)jobs, threads, job, c },
                         c->own + threads * c->s->each);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const division *d = &s->d;
    const int n_in = p->node->n_in;
    float *scratch = args[n_in + p->node->n_out];
    const call c = { .s = s,
                     .in = td_inverted_inputs(&s->v, args),
                     .y = args[n_in],
                     .sums = scratch,
                     .wide = scratch + s->sums,
                     .own = scratch + s->sums + s->wide };
    if (d->parts == 1)
        for_all(&c, s->v.N * d->bands, run_band);
    else
        for_all(&c, s->v.N * d->parts, run_part);
    if (!s->v.has_projection)
        td_inverted_means(&s->v, c.sums, TD_DT_BF16, args[n_in + 1]);
    else if (d->parts > 1)
        for_all(&c, s->v.N * d->chunks * d->vectors, run_chunk);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    td_inverted v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const division d = divide(&v, threads);
    return td_work_share_of(v.N * d.bands * d.parts, (double)(d.rows * v.Q * v.M) / (double)d.parts,
                            threads);
}

const td_kernel td_native_inverted_residual_bf16 = { .name = "native_inverted_residual_bf16",
                                                     .op = &td_op_inverted_residual,
                                                     .accepts = accepts,
                                                     .prepare = prepare,
                                                     .run = run,
                                                     .release = td_native_release_state,
                                                     .share = share };

const td_kernel td_native_expand_depthwise_bf16 = { .name = "native_expand_depthwise_bf16",
                                                    .op = &td_op_expand_depthwise,
                                                    .accepts = accepts,
                                                    .prepare = prepare,
                                                    .run = run,
                                                    .release = td_native_release_state,
                                                    .share = share };
