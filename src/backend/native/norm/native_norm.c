/*
 * native_norm.c -- batch normalisation on channel blocks, forward and backward
 *
 *     for each channel block:   sums over the planes of all images   ->  its coefficients
 *                               each plane again: y (or dx)
 *
 * The second pass finds a small plane in the cache, so a thread finishes one channel block before
 * it takes the next, as long as there is a block for every thread.  The pixels of the blocks that
 * remain are divided among all threads, in two phases: 16 blocks on 12 threads are 12 blocks, one
 * for each thread, and 4 blocks of which each thread has a third.  Where the last-level cache does
 * not hold a block for each thread, all threads divide one block after the other.
 *
 * With channels last, blocks share cache lines, and neighbours of a block's pixel are far away: the
 * pixels of all images are divided, and a thread computes many blocks of a few pixels, all of them
 * if there are chunks enough for the threads, before it goes on.
 *
 * Sums are of at most TD_NATIVE_CHUNK pixels of a plane, or of the small planes of some images: a
 * chunk.  They are joined in the order of chunks and images, in float64, and phases divide the work
 * between chunks only: the bits do not depend on the division.
 */
#include <math.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/norm/native_norm_args.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define L TD_NATIVE_LANES_MAX

/* planes of fewer pixels are summed together, up to as many */
#define SMALL_PIXELS 256

/* with channels last, bytes of a tensor that are read of all blocks before the next pixels */
#define PIECE_BYTES 8192

/* tensors that are read twice: x; dy and x */
enum { FORWARD_READS = 1, BACKWARD_READS = 2 };

/* sums of one chunk: mean and m2 in forward, sum and dot in backward */
typedef struct {
    double a[L], b[L];
} chunk_sums;

typedef struct {
    const td_native_simd *simd;
    td_native_shape s;
    td_native_norm_args a;
    chunk_sums *sums; /* [CB, groups, chunks] */
    float *rooms;     /* if blocks are interleaved, for each thread: CB TD_NATIVE_NORM_ROOM */
    int threads;      /* for which the scratch has room */
} job;

/* do blocks share cache lines? */
static bool is_interleaved(const td_native_shape *s)
{
    return s->plane.stride != s->lanes;
}

/* the images of an interleaved shape are one: they follow each other in memory */
static void join_images(td_native_shape *s)
{
    s->plane.n_pixels *= s->N;
    s->image *= s->N;
    s->H *= s->N;
    s->N = 1;
}

/* like td_native_padded_shape_of, but plain order is accepted too */
static td_status shape_of(const td_type *t, td_native_shape *s)
{
    if (!td_native_knows(t->dtype) || t->rank != 4 || !td_type_is_plain(t)) {
        TD_TRY(td_native_padded_shape_of(t, s));
        if (is_interleaved(s))
            join_images(s);
        return TD_OK;
    }
    const int64_t area = t->dim[2] * t->dim[3];
    const int lanes = area % 16 == 0 ? 16 : 8;
    if (area % lanes)
        return td_error(TD_ENOKERNEL, "plain planes of %lld do not fill lanes of 8",
                        (long long)area);
    *s = (td_native_shape){
        .dtype = t->dtype,
        .each = (int64_t)td_dtype_bytes(t->dtype),
        .N = t->dim[0],
        .C = t->dim[1],
        .CB = t->dim[1],
        .H = t->dim[2],
        .W = t->dim[3],
        .lanes = lanes,
        .channels = 1,
        .plane = { .n_pixels = area / lanes, .stride = lanes },
        .image = t->dim[1] * area,
        .block = area,
    };
    return TD_OK;
}

/* the channel in a lane of a block */
static int64_t channel_of(const td_native_shape *s, int64_t cb, int lane)
{
    return cb * s->channels + lane % s->channels;
}

static void put_lane(td_native_coefs *c, int i, td_native_norm_channel k)
{
    c->mean[i] = k.mean;
    c->scale[i] = k.scale;
    c->shift[i] = k.shift;
    c->slope[i] = k.slope;
}

/* --- dividing the work ------------------------------------------------------------------------ */

/* sum: one chunk into *out, or those of some blocks, from p on, into v->sums;
   join: a block's chunks into its coefficients;  apply: some pixels, or those of some blocks, whose
   coefficients are `step` bytes apart */
typedef struct {
    int reads; /* tensors that are read twice */
    void (*sum)(const job *j, const td_native_part *p, chunk_sums *out);
    void (*sum_rows)(const job *j, const td_native_part *p, const td_native_norm_rows *v);
    void (*join)(const job *j, int64_t cb, td_native_coefs *c);
    void (*apply)(const job *j, const td_native_part *p, const td_native_coefs *c);
    void (*apply_rows)(const job *j, const td_native_part *p, const td_native_norm_rows *v,
                       const td_native_coefs *c, int64_t step);
} steps;

/* pixels of a chunk but the last; if blocks are interleaved, chunks are of nearly equal size */
static int64_t chunk_of(const td_native_shape *s)
{
    const int64_t n = s->plane.n_pixels, chunks = divide_up(n, TD_NATIVE_CHUNK);
    return is_interleaved(s) ? divide_up(divide_up(n, chunks), 4) * 4 : TD_NATIVE_CHUNK;
}

/* chunks of a plane; 1 if a chunk has planes of several images */
static int64_t chunks_of(const td_native_shape *s)
{
    return divide_up(s->plane.n_pixels, chunk_of(s));
}

/* images of a group, whose planes are one chunk unless it is 1 */
static int64_t images_of(const td_native_shape *s)
{
    const int64_t n = SMALL_PIXELS / s->plane.n_pixels;
    return n < 1 ? 1 : n < s->N ? n : s->N;
}

static int64_t groups_of(const td_native_shape *s)
{
    const int64_t images = images_of(s);
    return (s->N + images - 1) / images;
}

/* pixels of group g */
static int64_t pixels_of(const td_native_shape *s, int64_t g)
{
    const int64_t images = images_of(s), left = s->N - g * images;
    return (left < images ? left : images) * s->plane.n_pixels;
}

static size_t sums_bytes(const td_native_shape *s)
{
    return (size_t)(groups_of(s) * s->CB * chunks_of(s)) * sizeof(chunk_sums);
}

/* bytes of a thread's scratch */
static size_t room_bytes(const td_native_shape *s)
{
    return is_interleaved(s) ? (size_t)(s->CB * TD_NATIVE_NORM_ROOM) * sizeof(float) : 0;
}

static job job_of(const td_prepared *p, void *scratch)
{
    const td_node *n = p->node;
    job j = { .sums = scratch };
    TD_CHECK(shape_of(td_in_type(n, 0), &j.s) == TD_OK);
    j.simd = td_native_simd_for(j.s.dtype, j.s.lanes);
    j.s.plane.is_streamed = is_interleaved(&j.s)
                                ? td_native_is_streamed(j.s.N * j.s.image * j.s.each)
                                : td_native_is_plane_streamed(&j.s);
    j.threads = td_threads();
    if (scratch && is_interleaved(&j.s)) {
        const size_t rooms = (p->scratch_bytes - sums_bytes(&j.s)) / room_bytes(&j.s);
        j.rooms = (float *)(void *)((char *)scratch + sums_bytes(&j.s));
        j.threads = j.threads < (int)rooms ? j.threads : (int)rooms;
    }
    return j;
}

static chunk_sums *sums_of(const job *j, int64_t cb)
{
    return &j->sums[cb * groups_of(&j->s) * chunks_of(&j->s)];
}

/* pixels [from, from + n) of plane (image, cb) */
static td_native_part part_at(const job *j, int64_t image, int64_t cb, int64_t from, int64_t n)
{
    const int64_t at = td_native_offset(&j->s, image, cb) + from * j->s.plane.stride;
    td_native_part p = { image, cb, at, j->s.plane };
    p.plane.n_pixels = n;
    return p;
}

/* planes (image, cb) to (image + n - 1, cb) */
static td_native_part planes_at(const job *j, int64_t image, int64_t cb, int64_t n)
{
    td_native_part p = part_at(j, image, cb, 0, j->s.plane.n_pixels);
    if (p.plane.n_pixels == 1) {
        p.plane.n_pixels = n;
        p.plane.stride = j->s.image;
        return p;
    }
    p.plane.more = n - 1;
    p.plane.next = j->s.image;
    return p;
}

static td_native_part group_at(const job *j, int64_t g, int64_t cb)
{
    return planes_at(j, g * images_of(&j->s), cb, pixels_of(&j->s, g) / j->s.plane.n_pixels);
}

static void sum_pixels(const job *j, const steps *f, int64_t image, int64_t cb, int64_t from,
                       int64_t n)
{
    chunk_sums *out = sums_of(j, cb) + image * chunks_of(&j->s) + from / TD_NATIVE_CHUNK;
    for (const int64_t end = from + n; from < end; from += TD_NATIVE_CHUNK) {
        const int64_t rest = end - from;
        const td_native_part p =
            part_at(j, image, cb, from, rest < TD_NATIVE_CHUNK ? rest : TD_NATIVE_CHUNK);
        f->sum(j, &p, out++);
    }
}

static void sum_group(const job *j, const steps *f, int64_t g, int64_t cb)
{
    if (chunks_of(&j->s) > 1) {
        sum_pixels(j, f, g, cb, 0, j->s.plane.n_pixels);
        return;
    }
    const td_native_part p = group_at(j, g, cb);
    f->sum(j, &p, sums_of(j, cb) + g);
}

/* computes block cb, which shares no cache lines; the thread goes on with the next block unless it
   is the last */
static void run_block(const job *j, const steps *f, int64_t cb, bool is_last)
{
    td_native_coefs c;
    td_native_part all = planes_at(j, 0, cb, j->s.N);
    all.plane.ahead = is_last ? 0 : j->s.block;
    const int64_t groups = groups_of(&j->s);
    for (int64_t g = 0; g < groups; g++)
        sum_group(j, f, g, cb);
    f->join(j, cb, &c);
    f->apply(j, &all, &c);
}

/* Blocks [0, whole) are computed by one thread each, as many by every thread; the groups of the
   other blocks, `round` blocks after the other, are divided: planes into pixels, or groups of
   several planes among threads.  A plane of `rest`, those of a round, has `together` blocks; whole
   is 0 if they share cache lines. */
typedef struct {
    int64_t whole, round, together;
    td_native_planes rest;
} division;

#define UNEVEN_MAX                                                                                 \
    1.05 /* a busiest thread with 5 % more than the mean costs less than two barriers */
#define CHUNKS_WANTED 8 /* chunks per thread, if blocks are interleaved */
#define LINE_BLOCKS   2 /* blocks of bf16 or float16 in a cache line */

/* blocks that are computed together, a divisor of their number; less than whole lines only where
   threads would have less than half the chunks */
static int64_t together(const td_native_shape *s, int threads)
{
    const int64_t chunks = groups_of(s) * chunks_of(s), wanted = (int64_t)CHUNKS_WANTED * threads;
    int64_t n = s->CB;
    while (n % 2 == 0 && chunks * (s->CB / n) * (n > LINE_BLOCKS ? 1 : 2) < wanted)
        n /= 2;
    return n;
}

/* too large for a last-level cache: of every thread a block, of which `reads` tensors are read
   twice, and the next block, which is fetched ahead? */
static bool is_large(const td_native_shape *s, int reads, int threads)
{
    const int64_t block = s->N * s->plane.n_pixels * s->lanes * s->each;
    return threads > 1 && s->CB > 1 && td_native_is_streamed(2 * block * reads * threads);
}

/* the planes of `round` blocks, `blocks` of which are next to each other */
static td_native_planes planes_of(const td_native_shape *s, int64_t round, int64_t blocks,
                                  int threads)
{
    const int64_t area = images_of(s) > 1 ? 1 : s->plane.n_pixels;
    return (td_native_planes){ round / blocks * groups_of(s), area, chunk_of(s), threads };
}

static bool is_even(td_work_share share)
{
    return share.largest <= share.mean * UNEVEN_MAX;
}

/* as few blocks as all threads divide evenly; 0: there are none, or each thread's block is small */
static int64_t shared_blocks(const td_native_shape *s, int reads, int threads)
{
    int64_t n = is_interleaved(s) || !is_large(s, reads, threads) ? 0 : 1;
    while (n > 0 && n < s->CB) {
        const td_native_planes planes = planes_of(s, n, 1, threads);
        if (is_even(td_native_planes_share(&planes)))
            return n;
        n = s->CB % (2 * n) ? 0 : 2 * n;
    }
    return 0;
}

static division divide(const td_native_shape *s, int reads, int threads)
{
    const bool has_equal = s->CB >= threads && is_even(td_work_share_of(s->CB, 1, threads));
    const int64_t shared = shared_blocks(s, reads, threads);
    const int64_t mine = has_equal ? s->CB : s->CB - s->CB % threads;
    const int64_t whole = is_interleaved(s) || shared ? 0 : mine;
    const int64_t blocks = is_interleaved(s) ? together(s, threads) : 1;
    const int64_t round = shared ? shared : s->CB - whole;
    return (division){ whole, round, blocks, planes_of(s, round, blocks, threads) };
}

static td_work_share share_of_shape(const td_native_shape *s, int reads, int threads)
{
    const division d = divide(s, reads, threads);
    const double lanes = s->lanes, pixel = lanes * (double)d.together;
    const double block = (double)(s->N * s->plane.n_pixels) * lanes;
    const td_work_share whole = td_work_share_of(d.whole, block, threads);
    const td_work_share rest = td_native_planes_share(&d.rest);
    const double each = d.rest.area == s->plane.n_pixels ? pixel : (double)pixels_of(s, 0) * pixel;
    const double rounds = d.round ? (double)(s->CB - d.whole) / (double)d.round : 0;
    return (td_work_share){ whole.largest + rest.largest * each * rounds,
                            whole.mean + rest.mean * each * rounds };
}

/* pixels that are read of all blocks before the next, in fours */
static int64_t piece_of(const job *j, const division *d)
{
    const int64_t n = PIECE_BYTES / (d->together * j->s.lanes * j->s.each);
    return n < 4 ? 4 : n / 4 * 4;
}

/* the chunks of `span`, whose blocks are interleaved */
static void sum_rows(const job *j, const steps *f, const division *d, const td_native_span *span,
                     int t)
{
    const int64_t cb = span->plane * d->together, chunks = chunks_of(&j->s),
                  chunk = chunk_of(&j->s);
    td_native_norm_rows v = { .blocks = d->together,
                              .stride = j->s.plane.stride,
                              .piece = piece_of(j, d),
                              .step = chunks * (int64_t)(sizeof(chunk_sums) / sizeof(double)),
                              .room = j->rooms + t * j->s.CB * TD_NATIVE_NORM_ROOM };
    for (int64_t from = span->from, end = from + span->n; from < end; from += chunk) {
        v.n_pixels = end - from < chunk ? end - from : chunk;
        v.sums = sums_of(j, cb)[from / chunk].a;
        const td_native_part p = part_at(j, 0, cb, from, v.n_pixels);
        f->sum_rows(j, &p, &v);
    }
}

/* in a round that begins with block `first` */
static void sum_span(const job *j, const steps *f, int64_t first, const td_native_span *s)
{
    const int64_t groups = groups_of(&j->s), g = s->plane % groups;
    const int64_t cb = first + s->plane / groups;
    if (images_of(&j->s) > 1)
        sum_group(j, f, g, cb);
    else
        sum_pixels(j, f, g, cb, s->from, s->n);
}

static void sum_share(const job *j, const steps *f, const division *d, int64_t first, int t)
{
    for (td_native_span s = td_native_span_first(&d->rest, t); td_native_span_next(&d->rest, &s);)
        if (is_interleaved(&j->s))
            sum_rows(j, f, d, &s, t);
        else
            sum_span(j, f, first, &s);
}

/* pixels of some blocks, a piece of them at a time */
static void apply_rows(const job *j, const steps *f, const division *d, const td_native_span *span,
                       const td_native_coefs *c, int64_t step)
{
    const int64_t cb = span->plane * d->together, piece = piece_of(j, d);
    td_native_norm_rows v = { .blocks = d->together,
                              .stride = j->s.plane.stride,
                              .is_streamed = j->s.plane.is_streamed };
    for (int64_t from = span->from, end = from + span->n; from < end; from += piece) {
        v.n_pixels = end - from < piece ? end - from : piece;
        const td_native_part p = part_at(j, 0, cb, from, v.n_pixels);
        f->apply_rows(j, &p, &v, c, step);
    }
}

static void apply_span(const job *j, const steps *f, const division *d, int64_t first,
                       const td_native_span *s)
{
    const int64_t groups = groups_of(&j->s), g = s->plane % groups;
    const int64_t cb = first + s->plane / groups;
    td_native_part p = images_of(&j->s) > 1 ? group_at(j, g, cb) : part_at(j, g, cb, s->from, s->n);
    if (cb + d->round < j->s.CB)
        p.plane.ahead = d->round * j->s.block;
    f->apply(j, &p, (const td_native_coefs *)sums_of(j, cb));
}

static void apply_share(const job *j, const steps *f, const division *d, int64_t first, int t)
{
    for (td_native_span s = td_native_span_first(&d->rest, t); td_native_span_next(&d->rest, &s);)
        if (is_interleaved(&j->s))
            apply_rows(j, f, d, &s, (const td_native_coefs *)sums_of(j, s.plane * d->together),
                       chunks_of(&j->s) * (int64_t)sizeof(chunk_sums));
        else
            apply_span(j, f, d, first, &s);
}

static void join_in_place(const job *j, const steps *f, int64_t cb)
{
    td_native_coefs c;
    f->join(j, cb, &c);
    memcpy(sums_of(j, cb), &c, sizeof c); /* the sums are no longer needed */
}

_Static_assert(sizeof(td_native_coefs) <= sizeof(chunk_sums),
               "join_in_place keeps one in the other");

/* a thread's share of blocks [0, n) */
static void run_blocks(const job *j, const steps *f, int64_t n, int t, int threads)
{
    const int64_t end = n * (t + 1) / threads;
    for (int64_t cb = n * t / threads; cb < end; cb++)
        run_block(j, f, cb, cb + 1 == end);
}

static void run_in_phases(const job *j, const steps *f, const division *d)
{
#pragma omp parallel
    {
#pragma omp for schedule(static, 1) nowait
        for (int t = 0; t < d->rest.threads; t++)
            run_blocks(j, f, d->whole, t, d->rest.threads);
        for (int64_t first = d->whole; first < j->s.CB; first += d->round) {
#pragma omp for schedule(static, 1)
            for (int t = 0; t < d->rest.threads; t++)
                sum_share(j, f, d, first, t);
#pragma omp for
            for (int64_t cb = first; cb < first + d->round; cb++)
                join_in_place(j, f, cb);
#pragma omp for schedule(static, 1) nowait
            for (int t = 0; t < d->rest.threads; t++)
                apply_share(j, f, d, first, t);
        }
    }
}

static void run_steps(const job *j, const steps *f)
{
    const division d = divide(&j->s, f->reads, j->threads);
    if (d.whole < j->s.CB) {
        run_in_phases(j, f, &d);
        return;
    }
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.rest.threads; t++)
        run_blocks(j, f, j->s.CB, t, d.rest.threads);
}

/* an element of `tensor`, which is like x */
static const void *at(const job *j, const void *tensor, const td_native_part *p)
{
    return (const char *)tensor + p->at * j->s.each;
}

static void *to(const job *j, void *tensor, const td_native_part *p)
{
    return (char *)tensor + p->at * j->s.each;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_sum(const job *j, const td_native_part *p, chunk_sums *out)
{
    j->simd->norm_stats(&p->plane, at(j, j->a.x, p), out->a, out->b);
}

static void forward_sum_rows(const job *j, const td_native_part *p, const td_native_norm_rows *v)
{
    j->simd->norm_stats_rows(v, at(j, j->a.x, p));
}

/* merges the statistics of a plane's chunks into the first: Chan et al. 1983, as in norm_stats */
static void join_chunks(const td_native_shape *s, chunk_sums *p)
{
    const int64_t chunk = chunk_of(s);
    for (int64_t from = chunk, k = 1; from < s->plane.n_pixels; from += chunk, k++) {
        const int64_t n = s->plane.n_pixels - from;
        const double now = (double)(n < chunk ? n : chunk);
        for (int i = 0; i < s->lanes; i++)
            td_native_norm_join(&p->a[i], &p->b[i], (double)from, p[k].a[i], p[k].b[i], now);
    }
}

/* merges the statistics of groups; all but the last are of equal size */
static void join_groups(const job *j, int64_t cb, double *mean, double *m2)
{
    const int64_t chunks = chunks_of(&j->s), groups = groups_of(&j->s);
    double before = 0;
    for (int64_t g = 0; g < groups; g++) {
        chunk_sums *p = sums_of(j, cb) + g * chunks;
        const double now = (double)pixels_of(&j->s, g);
        join_chunks(&j->s, p);
        if (g == 0) {
            memcpy(mean, p->a, sizeof p->a);
            memcpy(m2, p->b, sizeof p->b);
        } else {
            const double share = now / (before + now), weight = before * share;
            for (int i = 0; i < j->s.lanes; i++) {
                const double gap = p->a[i] - mean[i];
                mean[i] += gap * share;
                m2[i] += p->b[i] + gap * gap * weight;
            }
        }
        before += now;
    }
}

/* if lanes are pixels of one channel, merges the lanes too; every lane gets the channel's value */
static void join_lanes(const job *j, double *mean, double *m2)
{
    const double each = (double)(j->s.plane.n_pixels * j->s.N);
    double sum = 0, spread = 0;
    for (int i = 0; i < j->s.lanes; i++)
        sum += mean[i];
    const double centre = sum / j->s.lanes;
    for (int i = 0; i < j->s.lanes; i++)
        spread += m2[i] + each * (mean[i] - centre) * (mean[i] - centre);
    for (int i = 0; i < j->s.lanes; i++) {
        mean[i] = centre;
        m2[i] = spread;
    }
}

static void forward_join(const job *j, int64_t cb, td_native_coefs *c)
{
    const double total = (double)(j->s.H * j->s.W * j->s.N);
    double mean[L], m2[L];
    join_groups(j, cb, mean, m2);
    if (j->s.channels == 1)
        join_lanes(j, mean, m2);
    *c = (td_native_coefs){ .mean = { 0 } }; /* lanes without a channel remain zero */
    for (int i = 0; i < td_native_lanes_in(&j->s, cb); i++) {
        const int64_t k = channel_of(&j->s, cb, i);
        put_lane(c, i, td_native_norm_end_forward(&j->a, k, mean[i], m2[i], total));
    }
}

static void forward_apply(const job *j, const td_native_part *p, const td_native_coefs *c)
{
    j->simd->norm_apply(&p->plane, c, at(j, j->a.x, p), j->a.z ? at(j, j->a.z, p) : NULL,
                        to(j, j->a.y, p), j->a.cap, j->a.mask ? j->a.mask + p->at / 8 : NULL);
}

static void forward_apply_rows(const job *j, const td_native_part *p, const td_native_norm_rows *v,
                               const td_native_coefs *c, int64_t step)
{
    j->simd->norm_apply_rows(v, c, step, at(j, j->a.x, p), j->a.z ? at(j, j->a.z, p) : NULL,
                             to(j, j->a.y, p), j->a.cap, j->a.mask ? j->a.mask + p->at / 8 : NULL);
}

static const steps forward_steps = { FORWARD_READS, forward_sum,   forward_sum_rows,
                                     forward_join,  forward_apply, forward_apply_rows };

static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(p, args[n->n_in + n->n_out]);
    j.a = td_native_norm_forward(n, args);
    run_steps(&j, &forward_steps);
    return TD_OK;
}

static void infer_coefs(const job *j, int64_t cb, td_native_coefs *c)
{
    *c = (td_native_coefs){ .mean = { 0 } };
    for (int i = 0; i < td_native_lanes_in(&j->s, cb); i++) {
        const int64_t k = channel_of(&j->s, cb, i);
        put_lane(c, i, td_native_norm_given(&j->a, k, j->a.mean_in[k], j->a.var_in[k]));
    }
}

/* planes; of interleaved blocks all are one */
static td_native_planes infer_planes(const td_native_shape *s, int threads)
{
    if (!is_interleaved(s))
        return td_native_planes_of(s, TD_NATIVE_GRAIN, threads);
    return (td_native_planes){ 1, s->plane.n_pixels, 1, threads };
}

static void infer_share(const job *j, const td_native_coefs *c, const td_native_planes *d, int t)
{
    const division all = { .together = j->s.CB };
    for (td_native_span s = td_native_span_first(d, t); td_native_span_next(d, &s);)
        if (is_interleaved(&j->s)) {
            apply_rows(j, &forward_steps, &all, &s, c, sizeof *c);
        } else {
            const td_native_part p = td_native_part_of(&j->s, &s);
            forward_apply(j, &p, &c[p.cb]);
        }
}

static td_status run_infer(const td_prepared *p, void *const *args)
{
    job j = job_of(p, NULL);
    j.a = td_native_norm_infer(p->node, args);
    td_native_coefs *coefs = args[p->node->n_in + p->node->n_out];
    const td_native_planes d = infer_planes(&j.s, td_threads());
#pragma omp parallel
    {
#pragma omp for
        for (int64_t cb = 0; cb < j.s.CB; cb++)
            infer_coefs(&j, cb, &coefs[cb]);
#pragma omp for schedule(static, 1)
        for (int t = 0; t < d.threads; t++)
            infer_share(&j, coefs, &d, t);
    }
    return TD_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

static const uint8_t *mask_at(const job *j, const td_native_part *p)
{
    return j->a.mask_in && !j->a.dy2 ? j->a.mask_in + p->at / 8 : NULL;
}

/*
 * With two gradients dz is computed first and is used instead of dy and the mask.  dx is written
 * after a block's dy and dy2 were last read, so dx may overwrite one of them and dz the other.
 */
static void join_gradients(const job *j, const td_native_part *p)
{
    j->simd->add_masked(&p->plane, at(j, j->a.dy, p), at(j, j->a.dy2, p), j->a.mask_in + p->at / 8,
                        to(j, j->a.dz, p));
}

static void backward_sum(const job *j, const td_native_part *p, chunk_sums *out)
{
    td_native_coefs c = { .mean = { 0 } };
    if (j->a.dy2)
        join_gradients(j, p);
    for (int i = 0; i < td_native_lanes_in(&j->s, p->cb); i++)
        c.mean[i] = j->a.mean_in[channel_of(&j->s, p->cb, i)];
    j->simd->norm_grad_sums(&p->plane, &c, at(j, j->a.dy2 ? j->a.dz : j->a.dy, p), mask_at(j, p),
                            at(j, j->a.x, p), out->a, out->b);
}

static void backward_sum_rows(const job *j, const td_native_part *p, const td_native_norm_rows *v)
{
    const void *dy2 = j->a.dy2 ? at(j, j->a.dy2, p) : NULL;
    void *dz = j->a.dz ? to(j, j->a.dz, p) : NULL;
    j->simd->norm_grad_sums_rows(v, j->a.mean_in + p->cb * j->s.lanes, at(j, j->a.dy, p), dy2,
                                 j->a.mask_in ? j->a.mask_in + p->at / 8 : NULL, at(j, j->a.x, p),
                                 dz);
}

/* adds the sums of chunks to groups, and groups to the block */
static void add_groups(const job *j, int64_t cb, double *sum, double *dot)
{
    const int64_t chunks = chunks_of(&j->s), groups = groups_of(&j->s);
    for (int64_t g = 0; g < groups; g++) {
        chunk_sums *p = sums_of(j, cb) + g * chunks;
        for (int i = 0; i < j->s.lanes; i++) {
            for (int64_t k = 1; k < chunks; k++) {
                p->a[i] += p[k].a[i];
                p->b[i] += p[k].b[i];
            }
            sum[i] += p->a[i];
            dot[i] += p->b[i];
        }
    }
}

static void add_lanes(const job *j, double *x)
{
    double sum = 0;
    for (int i = 0; i < j->s.lanes; i++)
        sum += x[i];
    for (int i = 0; i < j->s.lanes; i++)
        x[i] = sum;
}

static void backward_join(const job *j, int64_t cb, td_native_coefs *c)
{
    const double total = (double)(j->s.H * j->s.W * j->s.N);
    double sum[L] = { 0 }, dot[L] = { 0 };
    add_groups(j, cb, sum, dot);
    if (j->s.channels == 1) {
        add_lanes(j, sum);
        add_lanes(j, dot);
    }
    *c = (td_native_coefs){ .mean = { 0 } };
    for (int i = 0; i < td_native_lanes_in(&j->s, cb); i++) {
        const int64_t k = channel_of(&j->s, cb, i);
        put_lane(c, i, td_native_norm_end_backward(&j->a, k, sum[i], dot[i], total));
    }
}

static void backward_apply(const job *j, const td_native_part *p, const td_native_coefs *c)
{
    j->simd->norm_grad_apply(&p->plane, c, at(j, j->a.dy2 ? j->a.dz : j->a.dy, p), mask_at(j, p),
                             at(j, j->a.x, p), to(j, j->a.dx, p),
                             j->a.dz && !j->a.dy2 ? to(j, j->a.dz, p) : NULL);
}

static void backward_apply_rows(const job *j, const td_native_part *p, const td_native_norm_rows *v,
                                const td_native_coefs *c, int64_t step)
{
    j->simd->norm_grad_apply_rows(v, c, step, at(j, j->a.dy2 ? j->a.dz : j->a.dy, p), mask_at(j, p),
                                  at(j, j->a.x, p), to(j, j->a.dx, p),
                                  j->a.dz && !j->a.dy2 ? to(j, j->a.dz, p) : NULL);
}

static const steps backward_steps = { BACKWARD_READS, backward_sum,   backward_sum_rows,
                                      backward_join,  backward_apply, backward_apply_rows };

static td_status run_backward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(p, args[n->n_in + n->n_out]);
    j.a = td_native_norm_backward(n, args);
    run_steps(&j, &backward_steps);
    return TD_OK;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static td_status accepts(const td_node *n)
{
    td_native_shape s;
    TD_TRY(shape_of(td_in_type(n, 0), &s));
    return td_native_check_alike(n, td_in_type(n, 0));
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    td_native_shape s;
    TD_TRY(shape_of(td_in_type(n, 0), &s));
    out->scratch_bytes = sums_bytes(&s);
    out->scratch_bytes += (size_t)td_threads() * room_bytes(&s);
    return TD_OK;
}

static td_status prepare_infer(const td_node *n, td_prepared *out)
{
    td_native_shape s;
    TD_TRY(shape_of(td_in_type(n, 0), &s));
    out->scratch_bytes = (size_t)s.CB * sizeof(td_native_coefs);
    return TD_OK;
}

static td_work_share share_of(const td_node *n, int reads, int threads)
{
    td_native_shape s;
    TD_CHECK(shape_of(td_in_type(n, 0), &s) == TD_OK);
    return share_of_shape(&s, reads, threads);
}

static td_work_share share_forward(const td_node *n, int threads)
{
    return share_of(n, FORWARD_READS, threads);
}

static td_work_share share_backward(const td_node *n, int threads)
{
    return share_of(n, BACKWARD_READS, threads);
}

static td_work_share share_infer(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(shape_of(td_in_type(n, 0), &s) == TD_OK);
    const td_native_planes d = infer_planes(&s, threads);
    const td_work_share pixels = td_native_planes_share(&d);
    const double each = (double)(is_interleaved(&s) ? s.C : s.lanes);
    return (td_work_share){ pixels.largest * each, pixels.mean * each };
}

TD_NATIVE_KERNEL(batch_norm, accepts, prepare, run_forward, share_forward);
TD_NATIVE_KERNEL(batch_norm_relu, accepts, prepare, run_forward, share_forward);
TD_NATIVE_KERNEL(batch_norm_add_relu, accepts, prepare, run_forward, share_forward);
TD_NATIVE_KERNEL(batch_norm_grad, accepts, prepare, run_backward, share_backward);
TD_NATIVE_KERNEL(batch_norm_relu_grad, accepts, prepare, run_backward, share_backward);
TD_NATIVE_KERNEL(batch_norm_add_relu_grad, accepts, prepare, run_backward, share_backward);
TD_NATIVE_KERNEL(batch_norm_infer, accepts, prepare_infer, run_infer, share_infer);
TD_NATIVE_KERNEL(batch_norm_relu_infer, accepts, prepare_infer, run_infer, share_infer);
TD_NATIVE_KERNEL(batch_norm_add_relu_infer, accepts, prepare_infer, run_infer, share_infer);
