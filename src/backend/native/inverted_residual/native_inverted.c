/*
 * native_inverted.c -- inverted residual blocks without their wide tensors in memory
 *
 * The M channels between a block's first and last convolution are several times those at its ends,
 * and as tensors they are what such a network reads and writes most.  native_inverted.h describes
 * how a job computes a band of rows without them.
 *
 *     jobs    images x bands of rows [x parts of the M channels], divided among the threads
 *
 * A small image's sums over M are made of parts, which are added in order.  If there are few
 * images, as in a batch of one, each part is a job: shorter bands would compute more rows of e
 * twice, where two of them meet.  The number of parts depends on the image's size only, so it has
 * the same bits in any batch and with any number of threads.
 *
 * The means of expand_depthwise are sums of rows, each made by the job that computes it, which are
 * added from top to bottom in float64.
 */
#include "backend/native/inverted_residual/native_inverted.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/simd/native_simd.h"
#include "base/arena.h"
#include "base/half.h"
#include "tandem/program.h"

/* bytes of x, e, d and y, which every block of channels goes over again: half an L2 cache */
#define BAND_BYTES (256 << 10)

/* results of an image with several parts, at most; parts, if as few as a quarter of it */
#define PIXELS_MAX 256
#define PARTS_MAX  4

#define COLUMNS_MAX 8192

/* --- supported nodes -------------------------------------------------------------------------- */

td_status td_inverted_shape_of(const td_node *n, td_inverted *v)
{
    const td_inverted_residual_attr *a = n->attr;
    if (n->op != &td_op_inverted_residual && n->op != &td_op_expand_depthwise)
        return td_error(TD_ENOKERNEL, "not an inverted residual block");
    const int depthwise = td_block_depthwise(a);
    const td_type *x = td_in_type(n, 0), *w2 = td_in_type(n, depthwise), *y = &n->out[0]->type;
    *v = (td_inverted){ .N = x->dim[0],
                        .C = x->dim[1],
                        .H = x->dim[2],
                        .W = x->dim[3],
                        .M = w2->dim[0],
                        .K = y->dim[1],
                        .P = y->dim[2],
                        .Q = y->dim[3],
                        .side = (int)w2->dim[2],
                        .stride = a->stride,
                        .pad = a->pad,
                        .act = a->act,
                        .has_expansion = a->expand,
                        .has_projection = n->op == &td_op_inverted_residual,
                        .has_residual = a->residual };
    const int64_t read = (v->Q - 1) * v->stride + w2->dim[2];
    v->columns = read > v->W + v->pad ? read : v->W + v->pad;
    if (v->M % TD_INVERTED_LANES || v->K % TD_INVERTED_LANES)
        return td_error(TD_ENOKERNEL, "%lld or %lld channels do not fill lanes of %d",
                        (long long)v->M, (long long)v->K, TD_INVERTED_LANES);
    if ((w2->dim[2] != 3 && w2->dim[2] != 5) || a->stride > 2 || a->pad >= v->side)
        return td_error(TD_ENOKERNEL, "not 3 x 3 or 5 x 5 with stride 1 or 2");
    if (v->columns > COLUMNS_MAX)
        return td_error(TD_ENOKERNEL, "rows of %lld pixels", (long long)v->columns);
    return TD_OK;
}

/* checks everything except layouts */
static td_status shape_of(const td_node *n, td_inverted *v)
{
    TD_TRY(td_inverted_shape_of(n, v));
    for (int i = 0; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32 || !td_inverted_loops_at(0))
            return td_error(TD_ENOKERNEL, "no loops in %s for this machine",
                            td_dtype_name(td_in_type(n, i)->dtype));
    return TD_OK;
}

static const td_node_layouts channels_last = {
    .in = { "acdb", "Abcd8a", "", "Abcd8a", "", "Abcd8a", "" }, .out = "acdb"
};

static td_status accepts(const td_node *n)
{
    td_inverted v;
    TD_TRY(shape_of(n, &v));
    return td_native_check_layouts(n, &channels_last);
}

bool td_native_inverted_preferred_layout(const td_node *n, td_node_layouts *out)
{
    td_inverted v;
    if (shape_of(n, &v) != TD_OK)
        return false;
    *out = channels_last;
    return true;
}

/* --- division --------------------------------------------------------------------------------- */

typedef struct {
    int threads;
    int64_t parts, bands, jobs;
    int64_t rows;  /* rows of the largest band */
    bool is_split; /* parts are jobs */
} division;

/* rows of x that the busiest thread reads, with so many bands */
static int64_t cost_of(const td_inverted *v, int64_t bands, int threads)
{
    return divide_up(v->N * bands, threads) * ((divide_up(v->P, bands) - 1) * v->stride + v->side);
}

int64_t td_inverted_bands(const td_inverted *v, int64_t least, int threads)
{
    int64_t bands = least;
    for (int64_t b = least; b < least + threads && b <= v->P; b++)
        if (cost_of(v, b, threads) < cost_of(v, bands, threads))
            bands = b;
    return bands;
}

static int64_t parts_of(const td_inverted *v)
{
    const int64_t pixels = v->P * v->Q, most = v->M / TD_INVERTED_DEPTH;
    const int64_t parts = pixels <= PIXELS_MAX / 4 ? PARTS_MAX : pixels <= PIXELS_MAX ? 2 : 1;
    return parts <= most ? parts : most > 1 ? 2 : 1;
}

static division divide(const td_inverted *v, int threads)
{
    const int64_t row = 4 * (v->stride * v->W * (v->C + TD_INVERTED_BLOCK) +
                             (v->has_projection ? v->Q * (v->K + TD_INVERTED_DEPTH) : 0));
    const int64_t most = BAND_BYTES / row > 1 ? BAND_BYTES / row : 1;
    const int64_t least = divide_up(v->P, most);
    division d = { .threads = threads, .parts = parts_of(v), .bands = least };
    d.is_split = d.parts > 1 && v->N * least % threads != 0 && v->N * least < 2 * threads;
    if (!d.is_split)
        d.bands = td_inverted_bands(v, least, threads);
    d.jobs = v->N * d.bands * (d.is_split ? d.parts : 1);
    d.rows = divide_up(v->P, d.bands);
    return d;
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
    td_inverted v;
    division d;
    int64_t count; /* elements of y */
    int64_t sums;  /* floats of the sums of parts after the first that are jobs of their own, or of
                      the sums of rows */
    int64_t each;  /* floats of a thread's scratch, after that */
    int64_t part;  /* floats in it of a part's sums */
} state;

static int64_t aligned(int64_t floats)
{
    return (int64_t)td_round_up((size_t)floats, TD_HOST_ALIGN / sizeof(float));
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    TD_CHECK(shape_of(n, &s->v) == TD_OK);
    s->d = divide(&s->v, td_threads());
    s->count = td_type_count(&n->out[0]->type);
    const bool has_sums = s->v.has_projection && s->d.parts > 1;
    if (!s->v.has_projection)
        s->sums = aligned(s->v.N * s->v.P * s->v.M);
    else if (has_sums && s->d.is_split)
        s->sums = aligned((s->d.parts - 1) * s->count);
    else if (has_sums)
        s->part = aligned(s->d.rows * s->v.Q * s->v.K);
    s->each = s->part + aligned(td_inverted_scratch(&s->v, s->d.rows));
    out->state = s;
    out->scratch_bytes = (size_t)(s->sums + s->d.threads * s->each) * sizeof(float) +
                         td_native_turns_bytes(s->d.threads);
    (void)snprintf(out->impl, sizeof out->impl, "%s, bands of %d",
                   td_native_is_avx2() ? "avx2" : "avx512", (int)s->d.rows);
    return TD_OK;
}

static void add(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

typedef struct {
    const state *s;
    td_inverted_in in;
    float *y, *sums; /* sums [parts - 1, count], or of rows: [N, P, M] */
    td_inverted_loops *loops;
} call;

static void run_part(const call *c, td_inverted_job *j, int64_t part, float *y)
{
    const td_inverted *v = &c->s->v;
    const int64_t blocks = divide_up(v->M, TD_INVERTED_BLOCK), parts = c->s->d.parts;
    const int64_t m_to = blocks * (part + 1) / parts * TD_INVERTED_BLOCK;
    j->m_from = blocks * part / parts * TD_INVERTED_BLOCK;
    j->m_to = m_to < v->M ? m_to : v->M;
    j->adds_rest = part == 0;
    j->y = y;
    c->loops(v, &c->in, j);
}

static void run_job(const void *context, int i, int thread)
{
    const call *c = context;
    float *own = c->sums + c->s->sums + thread * c->s->each;
    const td_inverted *v = &c->s->v;
    const division *d = &c->s->d;
    const int64_t part = d->is_split ? i % d->parts : 0, unit = d->is_split ? i / d->parts : i;
    const int64_t band = unit % d->bands;
    td_inverted_job j = { .n = unit / d->bands,
                          .p_from = v->P * band / d->bands,
                          .p_to = v->P * (band + 1) / d->bands,
                          .scratch = own + c->s->part };
    j.sums = c->sums + (j.n * v->P + j.p_from) * v->M;
    const int64_t at = (j.n * v->P + j.p_from) * v->Q * v->K;
    float *y = c->y + at;
    if (d->is_split) {
        run_part(c, &j, part,
                 part && v->has_projection ? c->sums + (part - 1) * c->s->count + at : y);
        return;
    }
    run_part(c, &j, 0, y);
    for (int64_t k = 1; k < d->parts; k++) {
        run_part(c, &j, k, v->has_projection ? own : y);
        if (v->has_projection)
            add((j.p_to - j.p_from) * v->Q * v->K, own, y);
    }
}

/* y += the sums of parts that were jobs of their own */
static void add_parts(const call *c)
{
    const state *s = c->s;
    const int threads = s->d.threads;
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++)
        for (int64_t k = 0; k < s->d.parts - 1; k++) {
            const int64_t from = s->count * t / threads, to = s->count * (t + 1) / threads;
            add(to - from, c->sums + k * s->count + from, c->y + from);
        }
}

/* the means of channels m to m + n of one image, from the sums [P, M] of its rows */
static void mean_of_rows(const td_inverted *v, const float *sums, int64_t m, int64_t n,
                         float *means)
{
    double sum[TD_INVERTED_BLOCK] = { 0 };
    for (int64_t p = 0; p < v->P; p++)
        for (int64_t k = 0; k < n; k++)
            sum[k] += (double)sums[p * v->M + m + k];
    for (int64_t k = 0; k < n; k++)
        means[k] = (float)(sum[k] / (double)(v->P * v->Q));
}

void td_inverted_means(const td_inverted *v, const float *sums, td_dtype dtype, void *means)
{
    const int64_t blocks = divide_up(v->M, TD_INVERTED_BLOCK);
#pragma omp parallel for
    for (int64_t i = 0; i < v->N * blocks; i++) {
        const int64_t image = i / blocks, m = i % blocks * TD_INVERTED_BLOCK;
        const int64_t n = smaller(v->M - m, TD_INVERTED_BLOCK), at = image * v->M + m;
        float mean[TD_INVERTED_BLOCK];
        mean_of_rows(v, sums + image * v->P * v->M, m, n, mean);
        if (dtype == TD_DT_BF16)
            td_f32_to_bf16_n(mean, (size_t)n, (uint16_t *)means + at);
        else
            memcpy((float *)means + at, mean, (size_t)n * sizeof *mean);
    }
}

td_inverted_in td_inverted_inputs(const td_inverted *v, void *const *args)
{
    const int w2 = v->has_expansion ? 3 : 1;
    return (td_inverted_in){ .x = args[0],
                             .w1 = v->has_expansion ? args[1] : NULL,
                             .b1 = v->has_expansion ? args[2] : NULL,
                             .w2 = args[w2],
                             .b2 = args[w2 + 1],
                             .w3 = v->has_projection ? args[w2 + 2] : NULL,
                             .b3 = v->has_projection ? args[w2 + 3] : NULL };
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const int n_in = p->node->n_in, threads = s->d.threads;
    const call c = { .s = s,
                     .in = td_inverted_inputs(&s->v, args),
                     .y = args[n_in],
                     .sums = args[n_in + p->node->n_out],
                     .loops = td_inverted_loops_at(0) };
    td_native_take_turns(&(td_native_turns){ (int)s->d.jobs, threads, run_job, &c },
                         c.sums + s->sums + threads * s->each);
    if (!s->v.has_projection)
        td_inverted_means(&s->v, c.sums, TD_DT_F32, args[n_in + 1]);
    else if (s->sums)
        add_parts(&c);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    td_inverted v;
    TD_CHECK(shape_of(n, &v) == TD_OK);
    const division d = divide(&v, threads);
    const double each = (double)(d.rows * v.Q * v.M) / (double)(d.is_split ? d.parts : 1);
    return td_work_share_of(d.jobs, each, threads);
}

const td_kernel td_native_inverted_residual = { .name = "native_inverted_residual",
                                                .op = &td_op_inverted_residual,
                                                .accepts = accepts,
                                                .prepare = prepare,
                                                .run = run,
                                                .release = td_native_release_state,
                                                .share = share };

const td_kernel td_native_expand_depthwise = { .name = "native_expand_depthwise",
                                               .op = &td_op_expand_depthwise,
                                               .accepts = accepts,
                                               .prepare = prepare,
                                               .run = run,
                                               .release = td_native_release_state,
                                               .share = share };
