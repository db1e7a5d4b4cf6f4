/*
 * native_conv_grad_w.c -- filter gradients of convolutions with one group, in bf16 with a float32
 * result
 *
 *     parts    of the images; each sums a whole gradient, and these are added in order
 *     jobs     some blocks of output channels, some of input channels, all rows of the filter or
 *              one, one part
 *     chunks   of a job, one after the other: rows of some pairs of images, interleaved into the
 *              thread's store, which stays in its cache; then all taps of all its channels
 *
 * No job waits for another.  A sum is one chain over the pixels of a part; parts depend on shapes
 * only, so the result has the same bits with any number of threads, although these decide how many
 * channels a job has.
 */
#include "backend/native/conv/native_conv_grad_w.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/conv/native_conv.h"
#include "base/arena.h"
#include "tandem/program.h"

enum {
    LANES = TD_GRAD_W_LANES,
    TILE = TD_GRAD_W_TILE,
    HALVES = LANES / TILE, /* tiles of a block of channels */
    PIXEL = 4 * LANES,     /* bytes of a pair of pixels of a block */
    BLOCK = LANES * LANES, /* elements of dw of two blocks and one tap */
    SIDE_MAX = 7,
    ODD_IMAGES_MIN = 16 /* the last image without a partner costs a sixteenth at most */
};

/* The store and the sums of a job should fill most of a second-level cache. */
#define STORE_BYTES (384 << 10)
#define SUM_BYTES   (384 << 10)

/* the largest ratio of the busiest thread's work to the mean that is not penalized */
#define UNEVEN_MAX 1.25

/* Pairs of blocks of channels in a unit, see td_native_filter_divide. */
#define UNIT_BLOCKS 4

typedef struct {
    int64_t N, KB, CB; /* images; blocks of channels of dy and x */
    int64_t H, W, P, Q, R, S, stride, pad;
    bool is_point; /* the filter is 1 x 1 */
} shape;

/* Rows [p, p + rows) of dy of pairs [pair, pair + pairs) of images. */
typedef struct {
    int64_t pair, pairs, p, rows;
    int64_t h, x_rows;       /* rows of x that they need */
    int64_t dy_step, x_step; /* bytes of a block in the store */
} chunk;

typedef struct {
    const td_grad_w_loops *loops;
    shape v;
    td_native_filter_parts parts;
    int64_t k_blocks, c_tiles;      /* blocks of dy and tiles of x in a job */
    int64_t r_rows;                 /* rows of the filter in a job */
    int64_t k_jobs, c_jobs, r_jobs; /* jobs in a part, by output channels, input channels, rows */
    int64_t jobs;                   /* jobs in all parts together */
    int64_t pairs, rows;            /* pairs of images and rows in the largest chunk */
    size_t dy_bytes, store_bytes; /* a thread's store: the size of dy, with which it begins; all */
    size_t part_bytes;            /* the parts' sums in scratch, before the stores */
    int threads;
} state;

/* --- supported nodes -------------------------------------------------------------------------- */

static td_status shape_of(const td_node *n, shape *v)
{
    const td_type *dy = td_in_type(n, 0), *x = td_in_type(n, 1), *dw = &n->out[0]->type;
    const td_conv_attr *a = n->attr;
    if (a->groups != 1)
        return td_error(TD_ENOKERNEL, "groups is %d", a->groups);
    if (x->dtype != TD_DT_BF16 || dy->dtype != TD_DT_BF16)
        return td_error(TD_ENOKERNEL, "not bf16");
    if (!td_grad_w_loops_get())
        return td_error(TD_ENOKERNEL, "no loops for this machine");
    if (dy->dim[1] % LANES || x->dim[1] % LANES)
        return td_error(TD_ENOKERNEL, "the channels are not whole blocks of 16");
    if (a->dilation != 1 || a->pad_extra)
        return td_error(TD_ENOKERNEL, "it is dilated or padded unevenly");
    *v = (shape){ .N = x->dim[0],
                  .KB = dy->dim[1] / LANES,
                  .CB = x->dim[1] / LANES,
                  .H = x->dim[2],
                  .W = x->dim[3],
                  .P = dy->dim[2],
                  .Q = dy->dim[3],
                  .R = dw->dim[2],
                  .S = dw->dim[3],
                  .stride = a->stride,
                  .pad = a->pad,
                  .is_point = dw->dim[2] == 1 && dw->dim[3] == 1 && a->pad == 0 };
    if (v->R > SIDE_MAX || v->S > SIDE_MAX || v->pad >= v->R || v->pad >= v->S)
        return td_error(TD_ENOKERNEL, "a filter of %lld x %lld with pad %d", (long long)v->R,
                        (long long)v->S, a->pad);
    return TD_OK;
}

/* Where oneDNN's kernels are slower with one and two threads (Zen 4).  Those for points and for
   large images of many channels are as fast. */
static td_status check_gain(const shape *v)
{
    const int64_t area = v->P * v->Q;
    if (v->N % 2 && v->N < ODD_IMAGES_MIN)
        return td_error(TD_ENOKERNEL, "%lld images are no pairs", (long long)v->N);
    if (v->is_point && area > 4 && (area > 64 || v->KB * v->CB < 64 * 64))
        return td_error(TD_ENOKERNEL, "a 1 x 1 filter, with large images or few channels");
    if (!v->is_point && area > 256 && v->KB >= 8 && v->CB >= 8)
        return td_error(TD_ENOKERNEL, "large images of 128 channels or more");
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    shape v;
    TD_TRY(shape_of(n, &v));
    TD_TRY(check_gain(&v));
    TD_TRY(td_native_conv_check(n));
    return td_native_conv_check_layouts(n, "aBcd16b", "ABcd16b16a");
}

/* --- chunks ----------------------------------------------------------------------------------- */

/* the pixels of a row of x in the store */
static int64_t columns_of(const shape *v)
{
    return v->is_point ? v->Q : v->W;
}

/* the rows of x for so many rows of dy */
static int64_t x_rows_of(const shape *v, int64_t rows)
{
    return v->is_point ? rows : smaller((rows - 1) * v->stride + v->R, v->H);
}

static int64_t dy_bytes(const shape *v, int64_t pairs, int64_t rows)
{
    return pairs * rows * v->Q * PIXEL;
}

static int64_t x_bytes(const shape *v, int64_t pairs, int64_t rows)
{
    return pairs * x_rows_of(v, rows) * columns_of(v) * PIXEL;
}

static int64_t c_blocks_of(int64_t c_tiles)
{
    return divide_up(c_tiles, HALVES);
}

/* whole images, or else rows of a pair of them, as many as fit; in chunks of equal size */
static void size_chunk(state *s)
{
    const shape *v = &s->v;
    const int64_t part = divide_up(s->parts.images, 2), c_blocks = c_blocks_of(s->c_tiles);
    const int64_t image = s->k_blocks * dy_bytes(v, 1, v->P) + c_blocks * x_bytes(v, 1, v->P);
    s->pairs = larger(smaller(STORE_BYTES / image, part), 1);
    s->pairs = divide_up(part, divide_up(part, s->pairs));
    s->rows = v->P;
    while (s->rows > 1 &&
           s->k_blocks * dy_bytes(v, s->pairs, s->rows) + c_blocks * x_bytes(v, s->pairs, s->rows) >
               STORE_BYTES * s->pairs)
        s->rows--;
    s->rows = divide_up(v->P, divide_up(v->P, s->rows));
    s->dy_bytes = (size_t)(s->k_blocks * dy_bytes(v, s->pairs, s->rows));
    s->store_bytes = s->dy_bytes + (size_t)(c_blocks * x_bytes(v, s->pairs, s->rows));
}

/* --- division --------------------------------------------------------------------------------- */

/* an estimate of a job's cycles */
static double job_cycles(const state *s)
{
    const shape *v = &s->v;
    const double chunks =
        (double)(divide_up(divide_up(s->parts.images, 2), s->pairs) * divide_up(v->P, s->rows));
    const double sums = (double)(s->k_blocks * s->c_tiles * s->r_rows * v->S * TILE);
    const double dy = (double)(s->pairs * s->rows * v->Q * s->k_blocks);
    const double x = (double)(x_bytes(v, s->pairs, s->rows) / PIXEL * c_blocks_of(s->c_tiles));
    const double load = sums * PIXEL <= SUM_BYTES ? 4 : 16;
    return chunks * (sums * (double)(s->pairs * s->rows * v->Q) + 3 * (dy + x) + load * sums);
}

static void set_jobs(state *s, int64_t k_blocks, int64_t c_tiles, int64_t rows)
{
    s->k_blocks = k_blocks;
    s->c_tiles = c_tiles;
    s->r_rows = rows;
    s->k_jobs = divide_up(s->v.KB, k_blocks);
    s->c_jobs = divide_up(s->v.CB * HALVES, c_tiles);
    s->r_jobs = divide_up(s->v.R, rows);
    s->jobs = s->k_jobs * s->c_jobs * s->r_jobs * s->parts.n;
    size_chunk(s);
}

/* the work of the busiest thread over the mean */
static double imbalance_of(const state *s)
{
    const double all = (double)(s->v.KB * s->v.CB * HALVES * s->v.R * s->v.N);
    const double job = (double)(s->k_blocks * s->c_tiles * s->r_rows * s->parts.images);
    return (double)(divide_up(s->jobs, s->threads) * s->threads) * job / all;
}

/* keeps in `best` the division whose busiest thread is finished first; if possible an even one */
static void compare_jobs(const state *s, double *least, state *best)
{
    const double penalty = imbalance_of(s) > UNEVEN_MAX ? 1.5 : 1;
    const double cycles = job_cycles(s) * (double)divide_up(s->jobs, s->threads) * penalty;
    if (*least > 0 && cycles >= *least)
        return;
    *least = cycles;
    *best = *s;
}

/* tries all channels, half of them, a quarter and so on, with all rows of the filter or one */
static void divide(state *s)
{
    const int64_t KB = s->v.KB, tiles = s->v.CB * HALVES,
                  units = divide_up(KB * s->v.CB, UNIT_BLOCKS);
    state best = *s;
    double least = 0;
    s->parts = td_native_filter_divide(s->v.N, units, 2);
    for (int64_t k = KB; k; k = k > 1 ? divide_up(k, 2) : 0)
        for (int64_t c = tiles; c; c = c > 1 ? divide_up(c, 2) : 0)
            for (int64_t r = s->v.R; r; r = r > 1 ? 1 : 0) {
                set_jobs(s, k, c, r);
                compare_jobs(s, &least, &best);
            }
    *s = best;
}

static td_status plan(const td_node *n, int threads, state *s)
{
    *s = (state){ .loops = td_grad_w_loops_get(), .threads = threads };
    TD_TRY(shape_of(n, &s->v));
    divide(s);
    return TD_OK;
}

/* in elements of dy */
static td_work_share share(const td_node *n, int threads)
{
    state s;
    TD_CHECK(plan(n, threads, &s) == TD_OK);
    const double all = (double)(s.v.KB * s.v.N * s.v.P * s.v.Q * LANES);
    const double largest = all / threads * imbalance_of(&s);
    return (td_work_share){ largest < all ? largest : all, all / threads };
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    state *s = TD_NEW(state);
    if (!s)
        return TD_ENOMEM;
    TD_CHECK(plan(n, td_threads(), s) == TD_OK);
    out->state = s;
    s->part_bytes = td_native_filter_scratch(&s->parts, &n->out[0]->type);
    out->scratch_bytes = s->part_bytes + s->store_bytes * (size_t)s->threads;
    snprintf(out->impl, sizeof out->impl, "%lldx%lldx%lldx%lld %s", (long long)s->parts.n,
             (long long)s->k_jobs, (long long)s->c_jobs, (long long)s->r_jobs, s->loops->isa);
    return TD_OK;
}

/* --- one chunk -------------------------------------------------------------------------------- */

/* a job: blocks [kb, kb_end) of dy, tiles [c, c_end) of x, rows [r, r_end) of the filter, images
   [from, to) */
typedef struct {
    const uint16_t *dy, *x;
    float *sums;
    int64_t kb, kb_end, c, c_end, r, r_end, from, to;
    char *dy_store, *x_store;
} job;

/* Images 2 pair and, unless there is none, 2 pair + 1, of one block of channels. */
typedef struct {
    const uint16_t *a, *b;
} planes;

static planes planes_at(const uint16_t *t, const job *j, int64_t pair, int64_t blocks,
                        int64_t block, int64_t plane)
{
    const int64_t image = j->from + 2 * pair;
    const uint16_t *a = t + (image * blocks + block) * plane;
    return (planes){ a, image + 1 < j->to ? a + blocks * plane : NULL };
}

static void store_row(const state *s, planes from, int64_t at, int64_t n, int64_t step, char *to)
{
    s->loops->interleave(from.a + at * LANES, from.b ? from.b + at * LANES : NULL, n, step * LANES,
                         to);
}

static void store_dy(const state *s, const job *j, const chunk *k, int64_t block, char *to)
{
    const shape *v = &s->v;
    const int64_t n = k->rows * v->Q;
    for (int64_t i = 0; i < k->pairs; i++, to += n * PIXEL)
        store_row(s, planes_at(j->dy, j, k->pair + i, v->KB, block, v->P * v->Q * LANES),
                  k->p * v->Q, n, 1, to);
}

/* one row of x, or of a 1 x 1 filter what it reads */
static void store_x_row(const state *s, planes from, int64_t h, char *to)
{
    const shape *v = &s->v;
    if (v->is_point)
        store_row(s, from, h * v->stride * v->W, v->Q, v->stride, to);
    else
        store_row(s, from, h * v->W, v->W, 1, to);
}

static void store_x(const state *s, const job *j, const chunk *k, int64_t block, char *to)
{
    const shape *v = &s->v;
    const int64_t row = columns_of(v) * PIXEL;
    for (int64_t i = 0; i < k->pairs; i++) {
        const planes from = planes_at(j->x, j, k->pair + i, v->CB, block, v->H * v->W * LANES);
        if (!v->is_point || v->stride == 1) {
            store_row(s, from, k->h * v->W, k->x_rows * v->W, 1, to);
            to += k->x_rows * row;
            continue;
        }
        for (int64_t h = 0; h < k->x_rows; h++, to += row)
            store_x_row(s, from, k->h + h, to);
    }
}

/* Outputs [from, end) whose input of one tap exists: of rows or of columns. */
typedef struct {
    int64_t from, end;
} range;

/* outputs at inputs stride i + tap - pad, which are `size` */
static range outputs_of(const shape *v, int64_t tap, int64_t size, range all)
{
    const int64_t before = larger(v->pad - tap, 0), last = size - 1 + v->pad - tap;
    const range r = { larger(all.from, divide_up(before, v->stride)),
                      last < 0 ? 0 : smaller(all.end, last / v->stride + 1) };
    return r.from < r.end ? r : (range){ 0, 0 };
}

/* tap (r, t) of the first blocks in the store */
static td_grad_w_product product_of(const state *s, const job *j, const chunk *k, int64_t r,
                                    int64_t t)
{
    const shape *v = &s->v;
    const int64_t step = v->is_point ? 1 : v->stride, dy_row = v->Q * PIXEL;
    const int64_t x_row = columns_of(v) * PIXEL;
    const range p = outputs_of(v, r, v->H, (range){ k->p, k->p + k->rows });
    const range q = outputs_of(v, t, v->W, (range){ 0, v->Q });
    td_grad_w_product to = { .images = k->pairs,
                             .rows = p.end - p.from,
                             .n = q.end - q.from,
                             .dy = j->dy_store,
                             .x = j->x_store,
                             .dy_block = k->dy_step,
                             .dy_row = dy_row,
                             .dy_image = k->rows * dy_row,
                             .x_block = k->x_step,
                             .x_pixel = step * PIXEL,
                             .x_row = step * x_row,
                             .x_image = k->x_rows * x_row,
                             .sum_block = v->CB * v->R * v->S * BLOCK };
    if (to.rows == 0 || to.n == 0)
        return to;
    to.dy += (p.from - k->p) * dy_row + q.from * PIXEL;
    to.x += v->is_point ? 0
                        : (p.from * step + r - v->pad - k->h) * x_row +
                              (q.from * step + t - v->pad) * PIXEL;
    if (v->is_point && v->stride == 1) { /* one long row */
        to.n *= to.rows;
        to.rows = 1;
    }
    return to;
}

/* The chunk that a thread reads next: its blocks of images, in turn. */
typedef struct {
    const job *j;
    const chunk *k;
    int64_t at, n; /* the next block; all blocks */
} ahead;

static ahead ahead_of(const job *j, const chunk *k)
{
    if (!j || !k)
        return (ahead){ 0 };
    return (ahead){ j, k, 0, j->kb_end - j->kb + c_blocks_of(j->c_end) - j->c / HALVES };
}

/* lets `p` fetch the next block, or nothing */
static void fetch(const state *s, ahead *a, td_grad_w_operands *p)
{
    p->ahead[0] = NULL;
    if (a->at == a->n)
        return;
    const shape *v = &s->v;
    const int64_t block = a->at++, n_dy = a->j->kb_end - a->j->kb;
    const bool is_dy = block < n_dy;
    const int64_t W = is_dy ? v->Q : v->W, H = is_dy ? v->P : v->H, step = is_dy ? 1 : v->stride;
    const int64_t blocks = is_dy ? v->KB : v->CB, plane = H * W * LANES;
    const int64_t at = is_dy ? a->j->kb + block : a->j->c / HALVES + block - n_dy;
    const planes from = planes_at(is_dy ? a->j->dy : a->j->x, a->j, a->k->pair, blocks, at, plane);
    const int64_t first = (is_dy ? a->k->p : a->k->h * (v->is_point ? step : 1)) * W * LANES;
    p->ahead[0] = (const char *)(from.a + first);
    p->ahead[1] = (const char *)((from.b ? from.b : from.a) + first);
    p->ahead_pixel = step * LANES * 2;
    p->ahead_row = step * W * LANES * 2;
    p->ahead_image = 2 * blocks * plane * 2;
}

/* The products of a chunk; tap[t] is not set for taps of other jobs. */
typedef struct {
    td_grad_w_product tap[SIDE_MAX * SIDE_MAX];
    bool is_first; /* chunk of a job */
    ahead next;
} products;

/* the job's taps of tile `c` of x and of block `kb` and the next one of dy */
static void multiply(const state *s, const job *j, products *m, int64_t kb, int64_t c)
{
    const int64_t n = s->v.R * s->v.S, cb = c / HALVES, half = c % HALVES * TILE;
    float *sums = j->sums + (kb * s->v.CB + cb) * n * BLOCK + half * LANES;
    td_grad_w_operands o = { .is_first = m->is_first };
    for (int64_t t = j->r * s->v.S; t < j->r_end * s->v.S; t++) {
        const td_grad_w_product *p = &m->tap[t];
        o.dy = p->dy + (kb - j->kb) * p->dy_block;
        o.x = p->x + (cb - j->c / HALVES) * p->x_block + half * 4;
        o.sums = sums + t * BLOCK;
        fetch(s, &m->next, &o);
        s->loops->multiply(p, &o, kb + 1 < j->kb_end ? 2 : 1);
    }
}

static void add_chunk(const state *s, const job *j, const chunk *k, bool is_first, ahead next)
{
    const int64_t first = j->c / HALVES;
    products m;
    m.is_first = is_first;
    m.next = next;
    for (int64_t kb = j->kb; kb < j->kb_end; kb++)
        store_dy(s, j, k, kb, j->dy_store + (kb - j->kb) * k->dy_step);
    for (int64_t cb = first; cb < c_blocks_of(j->c_end); cb++)
        store_x(s, j, k, cb, j->x_store + (cb - first) * k->x_step);
    for (int64_t t = j->r * s->v.S; t < j->r_end * s->v.S; t++)
        m.tap[t] = product_of(s, j, k, t / s->v.S, t % s->v.S);
    for (int64_t kb = j->kb; kb < j->kb_end; kb += 2)
        for (int64_t c = j->c; c < j->c_end; c++)
            multiply(s, j, &m, kb, c);
}

/* --- running ---------------------------------------------------------------------------------- */

static chunk chunk_at(const state *s, int64_t pair, int64_t pairs, int64_t p)
{
    const shape *v = &s->v;
    chunk k = { .pair = pair,
                .pairs = smaller(s->pairs, pairs - pair),
                .p = p,
                .rows = smaller(s->rows, v->P - p) };
    const int64_t end = (p + k.rows - 1) * v->stride + v->R - v->pad;
    k.h = v->is_point ? p : smaller(larger(p * v->stride - v->pad, 0), v->H);
    k.x_rows = v->is_point ? k.rows : larger(smaller(end, v->H) - k.h, 0);
    k.dy_step = dy_bytes(v, k.pairs, k.rows);
    k.x_step = k.pairs * k.x_rows * columns_of(v) * PIXEL;
    return k;
}

/* chunk i of a job: row by row, then the next images */
static bool find_chunk(const state *s, const job *j, int64_t i, chunk *k)
{
    const int64_t bands = divide_up(s->v.P, s->rows), pairs = divide_up(j->to - j->from, 2);
    const int64_t pair = i / bands * s->pairs;
    if (pair >= pairs)
        return false;
    *k = chunk_at(s, pair, pairs, i % bands * s->rows);
    return true;
}

/* `after`: the job that the thread does next, probably, or NULL */
static void run_job(const state *s, const job *j, const job *after)
{
    chunk k, next;
    bool has_more = find_chunk(s, j, 0, &k);
    for (int64_t i = 0; has_more; i++, k = next) {
        has_more = find_chunk(s, j, i + 1, &next);
        const bool goes_on = has_more || (after && find_chunk(s, after, 0, &next));
        add_chunk(s, j, &k, i == 0, ahead_of(has_more ? j : after, goes_on ? &next : NULL));
    }
}

typedef struct {
    void *const *args;
    int64_t count;  /* elements of dw */
    float *scratch; /* sums of parts 1, 2, ... */
    char *stores;
} memory;

static job job_at(const state *s, int64_t i, const memory *m)
{
    const int64_t part = i / (s->k_jobs * s->c_jobs * s->r_jobs);
    const int64_t k = i / (s->c_jobs * s->r_jobs) % s->k_jobs, c = i / s->r_jobs % s->c_jobs;
    const int64_t r = i % s->r_jobs * s->r_rows;
    char *store = m->stores + s->store_bytes * (size_t)omp_get_thread_num();
    return (job){ .dy = m->args[0],
                  .x = m->args[1],
                  .sums = part ? m->scratch + (part - 1) * m->count : m->args[3],
                  .kb = k * s->k_blocks,
                  .kb_end = smaller((k + 1) * s->k_blocks, s->v.KB),
                  .c = c * s->c_tiles,
                  .c_end = smaller((c + 1) * s->c_tiles, s->v.CB * HALVES),
                  .r = r,
                  .r_end = smaller(r + s->r_rows, s->v.R),
                  .from = part * s->parts.images,
                  .to = smaller((part + 1) * s->parts.images, s->v.N),
                  .dy_store = store,
                  .x_store = store + s->dy_bytes };
}

/* dw += the sums of parts 1, 2, ... */
static void add_parts(const state *s, int64_t count, const float *scratch, float *dw)
{
#pragma omp for schedule(static)
    for (int64_t block = 0; block < count; block += BLOCK)
        for (int64_t part = 1; part < s->parts.n; part++)
#pragma omp simd
            for (int64_t i = block; i < block + BLOCK; i++)
                dw[i] += scratch[(part - 1) * count + i];
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    const memory m = { .args = args,
                       .count = td_type_count(&p->node->out[0]->type),
                       .scratch = args[4],
                       .stores = (char *)args[4] + s->part_bytes };
#pragma omp parallel num_threads(s->threads)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < s->jobs; i++) {
            const job j = job_at(s, i, &m);
            const bool is_last = i + s->threads >= s->jobs;
            const job after = job_at(s, is_last ? i : i + s->threads, &m);
            run_job(s, &j, is_last ? NULL : &after);
        }
        if (s->parts.n > 1)
            add_parts(s, m.count, m.scratch, args[3]);
    }
    return TD_OK;
}

const td_kernel td_native_conv_grad_w = { .name = "native_conv_grad_w",
                                          .op = &td_op_conv2d_grad_w,
                                          .accepts = accepts,
                                          .prepare = prepare,
                                          .run = run,
                                          .release = td_native_release_state,
                                          .share = share };
