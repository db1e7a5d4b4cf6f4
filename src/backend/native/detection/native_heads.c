/*
 * native_heads.c -- channel biases, nearest-neighbour resize, joining a detector's heads
 *
 * All on channel blocks (native_simd.h).  Heads may have channels that do not fill their last
 * block: the remaining lanes are zeros in memory: skipped in tables, and written as zeros.  Heads
 * with channels last may have any number.
 *
 * A table's rows of a pixel are adjacent (order pixel) or far apart (order channel); either way a
 * pixel's channels are collected in float32 first.  Bias gradients are summed over TILE pixels in
 * float32 and over tiles in float64, always in the same order: the bits do not depend on the number
 * of threads.
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define L    TD_NATIVE_LANES_MAX
#define TILE 64 /* pixels */

/* --- biases ----------------------------------------------------------------------------------- */

static td_status accepts_bias(const td_node *n)
{
    return td_native_accepts(n, td_in_type(n, 0));
}

static td_status run_bias_add(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &s));
    const float *bias = args[1];
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
    const td_native_planes d = td_native_planes_of(&s, TD_NATIVE_GRAIN, td_threads());
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span k = td_native_span_first(&d, t); td_native_span_next(&d, &k);) {
            const td_native_part q = td_native_part_of(&s, &k);
            td_native_coefs c = { .mean = { 0 } };
            for (int i = 0; i < s.lanes; i++) {
                c.scale[i] = 1;
                c.shift[i] = bias[q.cb * s.lanes + i];
            }
            simd->norm_apply(&q.plane, &c, (const char *)args[0] + q.at * s.each, NULL,
                             (char *)args[2] + q.at * s.each, 0, NULL);
        }
    return TD_OK;
}

static td_work_share share_bias(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_shape_of(td_in_type(n, 0), &s) == TD_OK);
    return td_native_shape_share(&s, TD_NATIVE_GRAIN, threads);
}

static int64_t chunks_of(const td_native_shape *s)
{
    return (s->plane.n_pixels + TD_NATIVE_CHUNK - 1) / TD_NATIVE_CHUNK;
}

static td_status prepare_bias_add_grad(const td_node *n, td_prepared *out)
{
    td_native_shape s;
    TD_TRY(td_native_shape_of(td_in_type(n, 0), &s));
    out->scratch_bytes = (size_t)(s.N * s.CB * chunks_of(&s)) * L * sizeof(double);
    return TD_OK;
}

static td_work_share share_bias_grad(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_shape_of(td_in_type(n, 0), &s) == TD_OK);
    return td_native_shape_share(&s, TD_NATIVE_CHUNK, threads);
}

/* sums [planes, chunks, L] of dy over each chunk of a span of one plane */
static void sum_chunks(const td_native_shape *s, const td_native_span *k, const char *dy,
                       double *sums)
{
    const td_native_simd *simd = td_native_simd_for(s->dtype, s->lanes);
    const td_native_coefs c = { .mean = { 0 } };
    td_native_part q = td_native_part_of(s, k);
    const char *x = dy + q.at * s->each;
    double dot[L];
    double *out = sums + (k->plane * chunks_of(s) + k->from / TD_NATIVE_CHUNK) * L;
    for (int64_t rest = k->n; rest > 0; rest -= TD_NATIVE_CHUNK, out += L) {
        q.plane.n_pixels = rest < TD_NATIVE_CHUNK ? rest : TD_NATIVE_CHUNK;
        simd->norm_grad_sums(&q.plane, &c, x, NULL, x, out, dot);
        x += TD_NATIVE_CHUNK * s->plane.stride * s->each;
    }
}

/* adds the chunks of each plane, then the planes */
static void join_bias(const td_native_shape *s, int64_t cb, const double *sums, float *dbias)
{
    const int64_t chunks = chunks_of(s);
    for (int i = 0; i < s->lanes; i++) {
        double total = 0;
        for (int64_t n = 0; n < s->N; n++) {
            const double *plane = sums + (n * s->CB + cb) * chunks * L;
            double sum = 0;
            for (int64_t k = 0; k < chunks; k++)
                sum += plane[k * L + i];
            total += sum;
        }
        dbias[cb * s->lanes + i] = (float)total;
    }
}

static td_status run_bias_add_grad(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &s));
    double *sums = args[2];
    const td_native_planes d = td_native_planes_of(&s, TD_NATIVE_CHUNK, td_threads());
#pragma omp parallel
    {
#pragma omp for schedule(static, 1)
        for (int t = 0; t < d.threads; t++)
            for (td_native_span k = td_native_span_first(&d, t); td_native_span_next(&d, &k);)
                sum_chunks(&s, &k, args[0], sums);
#pragma omp for
        for (int64_t cb = 0; cb < s.CB; cb++)
            join_bias(&s, cb, sums, args[1]);
    }
    return TD_OK;
}

/* --- nearest-neighbour resize ----------------------------------------------------------------- */

static td_status accepts_resize(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_native_shape s;
    TD_TRY(td_native_shape_of(x, &s));
    if (strcmp(x->layout, y->layout) != 0 || x->dtype != y->dtype)
        return td_error(TD_ENOKERNEL, "operand and result have different layouts");
    return TD_OK;
}

static td_status run_resize(const td_prepared *p, void *const *args)
{
    td_native_shape x, y;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &x));
    TD_TRY(td_native_shape_of(&p->node->out[0]->type, &y));
    const size_t pixel = (size_t)(x.lanes * x.each);
#pragma omp parallel for collapse(3)
    for (int64_t n = 0; n < x.N; n++)
        for (int64_t cb = 0; cb < x.CB; cb++)
            for (int64_t i = 0; i < y.H; i++) {
                const char *from = td_native_plane_at(&x, args[0], n, cb);
                char *to = td_native_plane_to(&y, args[1], n, cb);
                for (int64_t j = 0; j < y.W; j++)
                    memcpy(to + (i * y.W + j) * y.plane.stride * y.each,
                           from + (i * x.H / y.H * x.W + j * x.W / y.W) * x.plane.stride * x.each,
                           pixel);
            }
    return TD_OK;
}

/* convert n elements of any of the dtypes to float32 and back */
static void load(const td_native_simd *f, int64_t n, const void *x, float *to)
{
    if (f->widen)
        f->widen(n, x, to, false);
    else
        memcpy(to, x, (size_t)n * sizeof *to);
}

static void store(const td_native_simd *f, int64_t n, const float *x, void *to)
{
    if (f->narrow)
        f->narrow(n, x, to, false);
    else
        memcpy(to, x, (size_t)n * sizeof *x);
}

/* resizing `of` elements to n: the first index of the result whose source is at least i */
static int64_t first_of(int64_t i, int64_t of, int64_t n)
{
    return (i * n + of - 1) / of;
}

static td_status run_resize_grad(const td_prepared *p, void *const *args)
{
    td_native_shape x, y;
    TD_TRY(td_native_shape_of(td_in_type(p->node, 0), &y));
    TD_TRY(td_native_shape_of(&p->node->out[0]->type, &x));
    const td_native_simd *simd = td_native_simd_for(x.dtype, x.lanes);
#pragma omp parallel for collapse(3)
    for (int64_t n = 0; n < x.N; n++)
        for (int64_t cb = 0; cb < x.CB; cb++)
            for (int64_t h = 0; h < x.H; h++) {
                const char *dy = td_native_plane_at(&y, args[0], n, cb);
                char *dx = td_native_plane_to(&x, args[2], n, cb);
                for (int64_t w = 0; w < x.W; w++) {
                    float sum[L] = { 0 }, one[L];
                    for (int64_t i = first_of(h, x.H, y.H); i < first_of(h + 1, x.H, y.H); i++)
                        for (int64_t j = first_of(w, x.W, y.W); j < first_of(w + 1, x.W, y.W);
                             j++) {
                            load(simd, x.lanes, dy + (i * y.W + j) * y.plane.stride * y.each, one);
                            for (int k = 0; k < x.lanes; k++)
                                sum[k] += one[k];
                        }
                    store(simd, x.lanes, sum, dx + (h * x.W + w) * x.plane.stride * x.each);
                }
            }
    return TD_OK;
}

/* rows of the result */
static td_work_share share_resize(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_shape_of(&n->out[0]->type, &s) == TD_OK);
    return td_work_share_of(s.N * s.CB * s.H, (double)(s.W * s.lanes), threads);
}

/* --- heads ------------------------------------------------------------------------------------ */

/* A head, and the position of its rows in the table.  With channels last a pixel's blocks are
   adjacent, and the last one is as wide as the channels that are left. */
typedef struct {
    int64_t N, C, CB, area; /* CB blocks of `lanes` hold C channels */
    int lanes;
    td_dtype dtype;
    bool is_last;                /* channels last */
    int64_t pixel, block, image; /* bytes to the next pixel, ... */
    int64_t columns, anchors;    /* per pixel */
    bool by_channel;
    int64_t table, start; /* rows per image in the table; the head's first */
} head;

static td_status head_of(const td_type *x, const td_join_attr *a, head *h)
{
    if (!td_native_knows(x->dtype) || x->rank != 4)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    const bool is_last = strcmp(x->layout, TD_CHANNELS_LAST) == 0;
    const int lanes = is_last || strcmp(x->layout, "aBcd16b") == 0 ? 16
                      : strcmp(x->layout, "aBcd8b") == 0           ? 8
                                                                   : 0;
    const int64_t each = (int64_t)td_dtype_bytes(x->dtype);
    if (!lanes)
        return td_error(TD_ENOKERNEL, "layout is %s", *x->layout ? x->layout : "plain");
    *h = (head){ .N = x->dim[0],
                 .C = x->dim[1],
                 .CB = (x->dim[1] + lanes - 1) / lanes,
                 .area = x->dim[2] * x->dim[3],
                 .lanes = lanes,
                 .dtype = x->dtype,
                 .is_last = is_last,
                 .pixel = each * (is_last ? x->dim[1] : lanes),
                 .columns = a->columns,
                 .anchors = x->dim[1] / a->columns,
                 .by_channel = a->order == TD_JOIN_CHANNEL };
    h->block = is_last ? each * lanes : h->area * h->pixel;
    h->image = is_last ? h->area * h->pixel : h->CB * h->block;
    return TD_OK;
}

/* one job of the gradient: a tile of an image, blocks [from, to) of the channels */
typedef struct {
    int64_t n, tile, from, to;
} head_part;

/* copy a pixel's channels from channel blocks; or some blocks of them back */
static void take_pixel(const head *h, const td_native_simd *f, const char *x, int64_t n, int64_t p,
                       float *channels)
{
    const char *at = x + n * h->image + p * h->pixel;
    if (h->is_last)
        load(f, h->C, at, channels);
    for (int64_t cb = 0; cb < h->CB && !h->is_last; cb++)
        load(f, h->lanes, at + cb * h->block, channels + cb * h->lanes);
}

static void put_pixel(const head *h, const td_native_simd *f, const float *channels,
                      const head_part *q, int64_t p, char *x)
{
    char *at = x + q->n * h->image + p * h->pixel;
    const int64_t from = q->from * h->lanes, end = q->to * h->lanes;
    if (h->is_last)
        store(f, (end < h->C ? end : h->C) - from, channels, at + q->from * h->block);
    for (int64_t cb = q->from; cb < q->to && !h->is_last; cb++)
        store(f, h->lanes, channels + (cb - q->from) * h->lanes, at + cb * h->block);
}

/* offset in the table of column 0 of anchor a of pixel p */
static int64_t row_at(const head *h, int64_t n, int64_t p, int64_t a)
{
    const int64_t row = h->by_channel ? a * h->area + p : p * h->anchors + a;
    return (n * h->table + h->start + row) * h->columns;
}

/* write and read n elements of the table, which may be half precision */
static void write_row(const td_native_simd *wide, td_dtype dtype, const float *from, int64_t n,
                      void *table, int64_t at)
{
    if (dtype == TD_DT_F32)
        memcpy((float *)table + at, from, (size_t)n * sizeof *from);
    else
        wide->narrow(n, from, (uint16_t *)table + at, false);
}

static void read_row(const td_native_simd *wide, td_dtype dtype, const void *table, int64_t at,
                     int64_t n, float *to)
{
    if (dtype == TD_DT_F32)
        memcpy(to, (const float *)table + at, (size_t)n * sizeof *to);
    else
        wide->widen(n, (const uint16_t *)table + at, to, false);
}

#define CHANNELS_MAX 4096 /* limit per head: two pixels are on the stack */

/* converts a pixel's channels to rows or back: channel k anchors + a is column k of row a */
static void permute_channels(const head *h, bool into_rows, const float *from, float *to)
{
    for (int64_t a = 0; a < h->anchors; a++)
        for (int64_t k = 0; k < h->columns; k++) {
            const int64_t channel = k * h->anchors + a, row = a * h->columns + k;
            to[into_rows ? row : channel] = from[into_rows ? channel : row];
        }
}

/* is it worth more than one thread? */
static bool is_shared(const head *h)
{
    return h->N * h->area * h->C > TD_NATIVE_PIECE;
}

static void join_pixel(const head *h, const td_native_simd *f, const char *x, const float *bias,
                       int64_t n, int64_t p, td_dtype dtype, void *table)
{
    float channels[CHANNELS_MAX + L], rows[CHANNELS_MAX];
    take_pixel(h, f, x, n, p, channels);
    for (int64_t c = 0; c < h->C; c++)
        channels[c] += bias[c];
    if (!h->by_channel) {
        write_row(f, dtype, channels, h->C, table, row_at(h, n, p, 0));
        return;
    }
    permute_channels(h, true, channels, rows);
    for (int64_t a = 0; a < h->anchors; a++)
        write_row(f, dtype, rows + a * h->columns, h->columns, table, row_at(h, n, p, a));
}

static td_status run_join(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *y = &n->out[0]->type;
    int64_t start = 0;
    for (int k = 0; k < n->n_in; k += 2) {
        head h;
        TD_TRY(head_of(td_in_type(n, k), n->attr, &h));
        const td_native_simd *f = td_native_simd_for(h.dtype, L);
        const char *x = args[k];
        const float *bias = args[k + 1];
        h.table = y->dim[1];
        h.start = start;
#pragma omp parallel for collapse(2) if (is_shared(&h))
        for (int64_t i = 0; i < h.N; i++)
            for (int64_t at = 0; at < h.area; at++)
                join_pixel(&h, f, x, bias, i, at, y->dtype, args[n->n_in]);
        start += h.area * h.anchors;
    }
    return TD_OK;
}

/* heads one after the other */
static td_work_share share_join(const td_node *n, int threads)
{
    td_work_share sum = { 0, 0 };
    for (int k = 0; k < n->n_in; k += 2) {
        head h;
        TD_CHECK(head_of(td_in_type(n, k), n->attr, &h) == TD_OK);
        const td_work_share one =
            td_work_share_of(h.N * h.area, (double)h.C, is_shared(&h) ? threads : 1);
        sum.largest += one.largest;
        sum.mean += (double)(h.N * h.area * h.C) / threads;
    }
    return sum;
}

static void part_pixel(const head *h, const td_native_simd *f, const void *table, td_dtype dtype,
                       const head_part *q, int64_t p, float *sum, char *x)
{
    float channels[CHANNELS_MAX + L], rows[CHANNELS_MAX];
    const int64_t from = q->from * h->lanes;
    const int64_t end = q->to * h->lanes < h->C ? q->to * h->lanes : h->C;
    if (h->by_channel) {
        for (int64_t a = 0; a < h->anchors; a++)
            read_row(f, dtype, table, row_at(h, q->n, p, a), h->columns, rows + a * h->columns);
        permute_channels(h, false, rows, channels);
    } else {
        read_row(f, dtype, table, row_at(h, q->n, p, 0) + from, end - from, channels);
    }
    for (int64_t c = from; c < end; c++)
        sum[c] += channels[c - from];
    memset(channels + (end - from), 0, (size_t)(q->to * h->lanes - end) * sizeof *channels);
    put_pixel(h, f, channels, q, p, x);
}

static int64_t n_tiles(const head *h)
{
    return (h->area + TILE - 1) / TILE;
}

/* the gradient's jobs: tiles of images, and for rows in the order of pixels also groups of `blocks`
   channel blocks */
typedef struct {
    int64_t tiles, parts, blocks, jobs;
} head_jobs;

static head_jobs with_parts(const head *h, int64_t parts)
{
    head_jobs d = { .tiles = n_tiles(h), .blocks = (h->CB + parts - 1) / parts };
    d.parts = (h->CB + d.blocks - 1) / d.blocks;
    d.jobs = h->N * d.tiles * d.parts;
    return d;
}

/* in whole tiles: each job has at most TILE pixels */
static double largest_of(const head *h, const head_jobs *d, int threads)
{
    const double job = (double)d->blocks / (double)h->CB;
    return td_work_share_of(d->jobs, job, threads).largest;
}

#define UNEVEN_MAX 1.05 /* a reason to divide again: more parts read a table's rows in pieces */

static head_jobs divide_head(const head *h, int threads)
{
    head_jobs best = with_parts(h, 1);
    for (int64_t parts = 2; parts <= h->CB && !h->by_channel; parts++) {
        const head_jobs d = with_parts(h, parts);
        if (largest_of(h, &d, threads) * UNEVEN_MAX < largest_of(h, &best, threads))
            best = d;
    }
    return best;
}

static head_part part_of(const head *h, const head_jobs *d, int64_t job)
{
    const int64_t tile = job / d->parts, from = job % d->parts * d->blocks, to = from + d->blocks;
    return (head_part){ tile / d->tiles, tile % d->tiles, from, to < h->CB ? to : h->CB };
}

static void add_tiles(const head *h, int64_t tiles, int64_t c, const float *sums, float *dbias)
{
    double total = 0;
    for (int64_t t = 0; t < tiles; t++)
        total += (double)sums[t * h->C + c];
    dbias[c] = (float)total;
}

static td_status run_join_grad(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_join_attr *a = n->attr;
    const td_type *dy = td_in_type(n, 0);
    head h;
    TD_TRY(head_of(&n->out[0]->type, a, &h));
    const td_native_simd *f = td_native_simd_for(h.dtype, L);
    float *sums = args[n->n_in + n->n_out], *dbias = args[n->n_in + 1];
    const head_jobs d = divide_head(&h, td_threads());
    h.table = dy->dim[1];
    h.start = a->start;
#pragma omp parallel for if (is_shared(&h))
    for (int64_t k = 0; k < d.jobs; k++) {
        const head_part q = part_of(&h, &d, k);
        float *sum = sums + (q.n * d.tiles + q.tile) * h.C;
        const int64_t first = q.from * h.lanes, rest = h.C - first, of = (q.to - q.from) * h.lanes;
        const int64_t end = (q.tile + 1) * TILE < h.area ? (q.tile + 1) * TILE : h.area;
        memset(sum + first, 0, (size_t)(rest < of ? rest : of) * sizeof *sum);
        for (int64_t at = q.tile * TILE; at < end; at++)
            part_pixel(&h, f, args[0], dy->dtype, &q, at, sum, args[n->n_in]);
    }
#pragma omp parallel for if (is_shared(&h))
    for (int64_t c = 0; c < h.C; c++)
        add_tiles(&h, h.N * d.tiles, c, sums, dbias);
    return TD_OK;
}

static td_work_share share_join_grad(const td_node *n, int threads)
{
    head h;
    TD_CHECK(head_of(&n->out[0]->type, n->attr, &h) == TD_OK);
    const int used = is_shared(&h) ? threads : 1;
    const head_jobs d = divide_head(&h, threads);
    const double pixels = (double)(h.N * h.area) / (double)(h.N * d.tiles);
    td_work_share one = td_work_share_of(d.jobs, pixels * (double)(d.blocks * h.lanes), used);
    one.mean = (double)(h.N * h.area * h.CB * h.lanes) / threads;
    return one;
}

static td_status check_head(const td_type *x, const td_join_attr *a, const td_type *table)
{
    head h;
    TD_TRY(head_of(x, a, &h));
    if (h.C > CHANNELS_MAX)
        return td_error(TD_ENOKERNEL, "a head has %lld channels", (long long)h.C);
    if (table->dtype != TD_DT_F32 && table->dtype != x->dtype)
        return td_error(TD_ENOKERNEL, "the table is %s", td_dtype_name(table->dtype));
    return TD_OK;
}

static td_status accepts_join(const td_node *n)
{
    for (int i = 0; i < n->n_in; i += 2) {
        TD_TRY(check_head(td_in_type(n, i), n->attr, &n->out[0]->type));
        if (td_in_type(n, i + 1)->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "bias %d is %s", i / 2,
                            td_dtype_name(td_in_type(n, i + 1)->dtype));
    }
    return TD_OK;
}

static td_status accepts_join_grad(const td_node *n)
{
    return check_head(&n->out[0]->type, n->attr, td_in_type(n, 0));
}

static td_status prepare_join_grad(const td_node *n, td_prepared *out)
{
    head h;
    TD_TRY(head_of(&n->out[0]->type, n->attr, &h));
    out->scratch_bytes = (size_t)(h.N * n_tiles(&h) * h.C) * sizeof(float);
    return TD_OK;
}

TD_NATIVE_KERNEL(bias_add, accepts_bias, NULL, run_bias_add, share_bias);
TD_NATIVE_KERNEL(bias_add_grad, accepts_bias, prepare_bias_add_grad, run_bias_add_grad,
                 share_bias_grad);
TD_NATIVE_KERNEL(resize_nearest, accepts_resize, NULL, run_resize, share_resize);
TD_NATIVE_KERNEL(resize_nearest_grad, accepts_resize, NULL, run_resize_grad, share_resize);
TD_NATIVE_KERNEL(join_heads, accepts_join, NULL, run_join, share_join);
TD_NATIVE_KERNEL(join_heads_grad, accepts_join_grad, prepare_join_grad, run_join_grad,
                 share_join_grad);
