/*
 * native_amx_grad_w.c -- filter gradients of bfloat16 with AMX
 *
 * A job is some images, some channels of x and some of dy.  The parts that images are divided into,
 * and a job's strips, decide the order of the sums, so they depend on the shapes only: the same
 * bits with any number of threads.  Parts are few where a gradient is large, since all are written
 * and read.  Channels are divided for more threads only, since each job copies the pixels of its
 * own.
 */
#include "backend/native/amx/native_amx_grad_w.h"

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    PARTS_MAX = 64,
    PARTS_BYTES = 4 << 20, /* of all parts' gradients */
    JOBS_PER_THREAD = 4,
    STRIP_BYTES = 768 * 1024, /* of copied pixels: a part of the L2 cache */
    STRIP_CHANNELS = 512,     /* of x, and of dy, at most; with more of them jobs are divided */
    STRIP_NUMBERS = 1024 /* of pixels: columns and pairs of 32 channels in the L1 cache, nearly */
};

/* --- queries ---------------------------------------------------------------------------------- */

static td_status check_shape(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    const td_type *w = &n->out[0]->type;
    if (a->groups != 1 || a->stride > TD_AMX_STRIDE_MAX)
        return td_error(TD_ENOKERNEL, "in groups, or the stride is %d", a->stride);
    if (w->dim[0] % TD_AMX_CHANNELS || w->dim[1] % TD_AMX_CHANNELS)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld, wanted multiples of %d",
                        (long long)w->dim[1], (long long)w->dim[0], TD_AMX_CHANNELS);
    if (w->dim[2] * w->dim[3] > TD_AMX_TAPS_MAX)
        return td_error(TD_ENOKERNEL, "the filter has more than %d pixels", TD_AMX_TAPS_MAX);
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    const td_native_conv_types t = td_native_conv_types_of(n);
    if (t.x->dtype != TD_DT_BF16 || t.y->dtype != TD_DT_BF16 || t.w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "not bf16 with a float32 gradient");
    TD_TRY(check_shape(n));
    if (!td_amx_grad_loops_here())
        return td_error(TD_ENOKERNEL, "the processor has no AMX");
    return td_native_conv_check_layouts(n, TD_CHANNELS_LAST, TD_AMX_GRADIENT);
}

/* --- division --------------------------------------------------------------------------------- */

/* parts of the pixels, of the channels of x and of dy */
typedef struct {
    int64_t pixels, c, k;
} parts;

/* what parts divide: images, or 32 pixels of a flat geometry */
static int64_t lines_of(const td_amx_geometry *g)
{
    return g->is_flat ? divide_up(g->Q, TD_AMX_PIXELS) : g->N;
}

static int64_t gradient_bytes(const td_amx_geometry *g)
{
    return g->K * g->C * g->n_taps * (int64_t)sizeof(float);
}

static parts divide(const td_amx_geometry *g, int threads)
{
    const int64_t most = smaller(PARTS_BYTES / gradient_bytes(g), PARTS_MAX);
    const int64_t C = g->C / TD_AMX_CHANNELS, K = g->K / TD_AMX_CHANNELS;
    parts p = { larger(1, smaller(most, lines_of(g))), divide_up(g->C, STRIP_CHANNELS),
                divide_up(g->K, STRIP_CHANNELS) };
    while (p.pixels * p.c * p.k < JOBS_PER_THREAD * threads && (p.c < C || p.k < K))
        if (p.k < K && (p.c == C || K / p.k > C / p.c))
            p.k++;
        else
            p.c++;
    return p;
}

static int64_t job_count(const parts *p)
{
    return p->pixels * p->c * p->k;
}

/* where part i of n of some channels begins, in whole blocks */
static int64_t channel_at(int64_t channels, int64_t n, int64_t i)
{
    return channels / TD_AMX_CHANNELS * i / n * TD_AMX_CHANNELS;
}

static int64_t channels_in(int64_t channels, int64_t n)
{
    return divide_up(channels / TD_AMX_CHANNELS, n) * TD_AMX_CHANNELS;
}

/* a strip's images and their rows, or pixels of a flat geometry; scratch of a thread */
typedef struct {
    int64_t images, rows;
    int64_t columns, pairs; /* elements, in whole cache lines */
} strip_size;

/* independent of how channels are divided */
static bool fits(const td_amx_geometry *g, int64_t images, int64_t rows)
{
    const int64_t elements = td_amx_columns(g, images, rows, smaller(g->C, STRIP_CHANNELS)) +
                             td_amx_pairs(g, images, rows, smaller(g->K, STRIP_CHANNELS));
    return elements * (int64_t)sizeof(uint16_t) <= STRIP_BYTES &&
           images * td_amx_numbers(g, rows) <= STRIP_NUMBERS;
}

static strip_size size_of(const td_amx_geometry *g, const parts *p)
{
    const int64_t each = g->is_flat ? TD_AMX_PIXELS : 1;
    int64_t lines = g->is_flat ? STRIP_NUMBERS / TD_AMX_PIXELS : g->P, images = 1;
    while (lines > 1 && !fits(g, 1, lines * each))
        lines--;
    if (!g->is_flat)
        lines = divide_up(g->P, divide_up(g->P, lines));
    while (lines == g->P && images < g->N && fits(g, images + 1, lines))
        images++;
    const int64_t rows = lines * each;
    return (strip_size){ images, rows, td_amx_columns(g, images, rows, channels_in(g->C, p->c)),
                         td_amx_pairs(g, images, rows, channels_in(g->K, p->k)) };
}

typedef struct {
    td_amx_geometry g;
    parts parts;
    strip_size size;
    int threads;
} state;

/* elements of a part's gradient, of a thread's copies */
static int64_t gradient_count(const state *s)
{
    return gradient_bytes(&s->g) / (int64_t)sizeof(float);
}

static size_t copy_bytes(const state *s)
{
    return (size_t)(s->size.columns + s->size.pairs) * sizeof(uint16_t);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->g = td_amx_geometry_of(n);
    s->parts = divide(&s->g, td_threads());
    s->size = size_of(&s->g, &s->parts);
    s->threads = (int)smaller(td_threads(), job_count(&s->parts));
    out->scratch_bytes = (size_t)(s->parts.pixels - 1) * (size_t)gradient_bytes(&s->g) +
                         copy_bytes(s) * (size_t)s->threads + td_native_turns_bytes(s->threads);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

/* the scratch begins with the gradients of all parts but the first */
static float *sums_of(const td_node *n, const state *s, int64_t part, void *const *args)
{
    return part ? (float *)args[n->n_in + 1] + (part - 1) * gradient_count(s) : args[n->n_in];
}

/* the strips of images, or pixels, [from, to) */
static void run_strips(const state *s, void *const *args, int64_t from, int64_t to,
                       td_amx_grad_strip *t)
{
    const td_amx_geometry *g = &s->g;
    const int64_t rows = g->is_flat ? to - from : g->P;
    t->is_first = true;
    for (int64_t i = g->is_flat ? 0 : from; i < (g->is_flat ? 1 : to); i += t->images) {
        t->image = i;
        t->images = g->is_flat ? 1 : smaller(s->size.images, to - i);
        for (int64_t p = 0; p < rows; p += s->size.rows) {
            t->p = (g->is_flat ? from : 0) + p;
            t->rows = smaller(s->size.rows, rows - p);
            td_amx_grad_loops_here()(g, args[1], args[0], t);
            t->is_first = false;
        }
    }
}

typedef struct {
    const td_node *n;
    const state *s;
    void *const *args;
} running;

/* behind the sums; those after the last thread's are for taking turns */
static uint16_t *copies_of(const running *r, int thread)
{
    const state *s = r->s;
    return (uint16_t *)(void *)((char *)sums_of(r->n, s, s->parts.pixels, r->args) +
                                copy_bytes(s) * (size_t)thread);
}

static void run_job(const void *context, int job, int thread)
{
    const running *r = context;
    const td_node *n = r->n;
    const state *s = r->s;
    void *const *args = r->args;
    const td_amx_geometry *g = &s->g;
    const parts *p = &s->parts;
    const int64_t k = job % p->k, c = job / p->k % p->c, part = job / p->k / p->c;
    const int64_t lines = lines_of(g), each = g->is_flat ? TD_AMX_PIXELS : 1;
    const int64_t end = g->is_flat ? g->Q : g->N;
    uint16_t *copies = copies_of(r, thread);
    td_amx_grad_strip t = { .c = channel_at(g->C, p->c, c),
                            .c_to = channel_at(g->C, p->c, c + 1),
                            .k = channel_at(g->K, p->k, k),
                            .k_to = channel_at(g->K, p->k, k + 1),
                            .columns = copies,
                            .pairs = copies + s->size.columns,
                            .sums = sums_of(n, s, part, args) };
    run_strips(s, args, lines * part / p->pixels * each,
               smaller(lines * (part + 1) / p->pixels * each, end), &t);
}

/* elements [from, to) of the parts' sums, in order */
static void add_parts(const td_node *n, const state *s, int64_t from, int64_t to, void *const *args)
{
    float *dw = args[n->n_in];
    for (int64_t part = 1; part < s->parts.pixels; part++) {
        const float *x = sums_of(n, s, part, args);
        for (int64_t i = from; i < to; i++)
            dw[i] += x[i];
    }
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const running r = { p->node, s, args };
    const td_native_pieces d = td_native_divide(gradient_count(s), TD_AMX_TILE, s->threads);
    td_native_take_turns(&(td_native_turns){ (int)job_count(&s->parts), s->threads, run_job, &r },
                         copies_of(&r, s->threads));
#pragma omp parallel for if (s->parts.pixels > 1)
    for (int64_t i = 0; i < d.n; i++)
        add_parts(p->node, s, i * d.each, i * d.each + td_native_piece_at(&d, i * d.each), args);
    return TD_OK;
}

/* in products of 32 channels of x and of dy with a line */
static td_work_share share(const td_node *n, int threads)
{
    const td_amx_geometry g = td_amx_geometry_of(n);
    const parts p = divide(&g, threads);
    const int64_t C = g.C / TD_AMX_CHANNELS, K = g.K / TD_AMX_CHANNELS, lines = lines_of(&g);
    const int64_t largest = divide_up(lines, p.pixels) * divide_up(C, p.c) * divide_up(K, p.k);
    return (td_work_share){ (double)(divide_up(job_count(&p), threads) * largest),
                            (double)(lines * C * K) / threads };
}

const td_kernel td_native_amx_conv_grad_w = { .name = "native_amx_conv_grad_w",
                                              .op = &td_op_conv2d_grad_w,
                                              .accepts = accepts,
                                              .prepare = prepare,
                                              .run = run,
                                              .release = td_native_release_state,
                                              .share = share };
