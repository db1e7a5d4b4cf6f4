/*
 * reduction.c -- sums buckets over ranks, in shared memory, along machines, or by messages
 *
 *   one machine:        [ own of rank 0 | own of rank 1 | ... | sums ]    shared, one unnamed file
 *   several machines:   the same for the ranks of each, and a chain:
 *
 *       machine 0  -- a0+a1 -->  machine 1  -- a0+a1+a2+a3 -->  machine 2     the sum so far
 *                  <-- sum ---              <--     sum    ---                 the result
 *
 *   otherwise:          [ own | sums | slices of the others ]             one per rank
 *
 * In a chain local rank l of a machine exchanges slice l of the bucket with local rank l of the
 * machines before and after it, in chunks, so that machines work at the same time; a network card
 * carries each number twice in each direction, whatever the number of ranks of its machine.
 *
 * No number is overwritten too early: a rank that begins a bucket again has waited for its previous
 * sum, which required that all had summed; and sums are written when all have begun the bucket
 * again, and so have read the previous ones.
 */
#include "comm/reduction.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/half.h"
#include "base/log.h"
#include "base/machine.h"

enum {
    BLOCK = 2048,    /* floats that are summed over all ranks at a time: they stay in the cache */
    PART = 1 << 24,  /* floats that are sent at a time: MPI counts bytes with int */
    CHUNK = 1 << 16, /* floats that move along the chain at a time, at most */
    CHUNK_MIN = 1 << 10,
    IN_FLIGHT = 1 << 14 /* bytes: bandwidth times latency */
};

typedef struct {
    td_reduction *of;
    td_comm_job job;
    int64_t first, n; /* floats */
    bool is_begun;
} bucket;

struct td_reduction {
    td_comm *c;
    int rank, size, n;
    bucket *buckets;
    int64_t total; /* floats of all buckets, padded */
    bool starts;
    bool skips;
    bool is_shared; /* base, among the ranks of this machine; else this rank's own */
    td_allreduce_opts allreduce;
    td_comm_machines machines;
    int local;   /* this rank's index in base; 0 when it is not shared */
    float *base; /* as drawn above */
    size_t n_bytes;
    float *sums;         /* inside base, [total] */
    float *incoming;     /* [size][longest slice] inside base, if not shared; of a chain [CHUNK] */
    int64_t slice;       /* the longest slice of any bucket */
    float *start;        /* [total] */
    const float **parts; /* [size] */
    size_t *at, *bytes;  /* [size] a slice of each rank, inside the bucket */
    size_t *in_at, *own; /* [size] where slices of the own part arrive, and their sizes */
    int64_t waited_ns;   /* time the caller waited for sums */
};

static float *own_of(const td_reduction *r, int local)
{
    return r->base + local * r->total;
}

float *td_reduction_own(td_reduction *r, int b)
{
    return own_of(r, r->local) + r->buckets[b].first;
}

float *td_reduction_start(td_reduction *r, int b)
{
    return r->start + r->buckets[b].first;
}

bool td_reduction_is_shared(const td_reduction *r)
{
    return r->is_shared;
}

/* --- summing ---------------------------------------------------------------------------------- */

/* where slice k of `of` slices of n numbers begins: whole cache lines */
static int64_t slice_begin(int64_t n, int k, int of)
{
    const int64_t lines = (n + 15) / 16;
    const int64_t at = lines * k / of * 16;
    return at < n ? at : n;
}

/* y = ((start + parts[0]) + parts[1]) + ...; start NULL is 0 */
static void sum_parts(float *y, const float *start, const float *const *parts, int n_parts,
                      int64_t n)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = at; i < at + m; i++) /* 0 + -0 is 0, as in a run of one rank */
            y[i] = (start ? start[i] : 0.0f) + parts[0][i];
        for (int k = 1; k < n_parts; k++)
            for (int64_t i = at; i < at + m; i++)
                y[i] += parts[k][i];
    }
}

/* are sums passed along machines? */
static bool is_chain(const td_reduction *r)
{
    return r->is_shared && r->machines.n > 1;
}

/*
 * Dissemination: in round k a rank tells rank + 2^k that 2^k ranks up to itself have called, and
 * hears the same from rank - 2^k.  log2(P) messages of each rank, not P - 1.  Hensgen, Finkel,
 * Manber 1988.
 */
static td_status disseminate(td_reduction *r)
{
    static const char mark = 1;
    char heard;
    for (int step = 1; step < r->size; step *= 2) {
        const int to = (r->rank + step) % r->size, from = (r->rank - step + r->size) % r->size;
        td_exchange e = { .kind = TD_EXCHANGE_PEERS };
        e.peers[0] = (td_exchange_peer){ .rank = to, .out = &mark, .n_out = 1 };
        e.peers[1] = (td_exchange_peer){ .rank = from, .in = &heard, .n_in = 1 };
        if (to == from) {
            e.peers[0].in = &heard;
            e.peers[0].n_in = 1;
            e.peers[1] = (td_exchange_peer){ .rank = -1 };
        }
        TD_TRY(td_transport_exchange(td_comm_transport(r->c), &e));
    }
    return TD_OK;
}

/* MPI has a barrier of its own */
static td_status all_are_here(td_reduction *r)
{
    if (!td_transport_can_sum(td_comm_transport(r->c)))
        return disseminate(r);
    return td_transport_exchange(td_comm_transport(r->c),
                                 &(td_exchange){ .kind = TD_EXCHANGE_BARRIER });
}

static td_status reduce_shared(td_reduction *r, const bucket *b)
{
    TD_TRY(all_are_here(r));
    const int64_t begin = b->first + slice_begin(b->n, r->rank, r->size);
    const int64_t end = b->first + slice_begin(b->n, r->rank + 1, r->size);
    for (int k = 0; k < r->size; k++)
        r->parts[k] = own_of(r, k) + begin;
    sum_parts(r->sums + begin, r->starts ? r->start + begin : NULL, r->parts, r->size, end - begin);
    return all_are_here(r);
}

int64_t td_chain_chunk(int n_machines, int64_t n)
{
    const double steps = 2 * n_machines - 3;
    const double n_chunks = sqrt(steps * (double)n * sizeof(float) / IN_FLIGHT);
    const int64_t chunk = n_chunks > 1 ? (int64_t)((double)n / n_chunks) : n;
    return chunk < CHUNK_MIN ? CHUNK_MIN : chunk > CHUNK ? CHUNK : chunk;
}

/* numbers [begin, end) of all, in chunks */
typedef struct {
    int64_t begin, end, chunk;
    int n;
} chunks;

static float *chunk_at(const td_reduction *r, const chunks *c, int i, size_t *n_bytes)
{
    const int64_t at = c->begin + i * c->chunk, left = c->end - at;
    *n_bytes = (size_t)(left < c->chunk ? left : c->chunk) * sizeof(float);
    return r->sums + at;
}

static bool is_chunk(const chunks *c, int i)
{
    return i >= 0 && i < c->n;
}

/* adds this machine's ranks to the sum so far of chunk i */
static void add_own_machine(td_reduction *r, const chunks *c, int i)
{
    size_t n_bytes;
    float *sum = chunk_at(r, c, i, &n_bytes);
    const int64_t at = sum - r->sums;
    const float *before = r->machines.index > 0 ? r->incoming : r->starts ? r->start + at : NULL;
    for (int k = 0; k < r->machines.n_ranks; k++)
        r->parts[k] = own_of(r, k) + at;
    sum_parts(sum, before, r->parts, r->machines.n_ranks, (int64_t)(n_bytes / sizeof(float)));
}

/* machine m sends the sum so far of chunk c at time c + m, and its sum at time c + 2 M - 2 - m */
static td_status pass_chunks(td_reduction *r, const chunks *c, int time)
{
    const int m = r->machines.index, last = r->machines.n - 1, n_ranks = r->machines.n_ranks;
    td_exchange e = { .kind = TD_EXCHANGE_PEERS };
    td_exchange_peer *next = &e.peers[0], *before = &e.peers[1];
    next->rank = m < last ? r->rank + n_ranks : -1;
    before->rank = m > 0 ? r->rank - n_ranks : -1;
    if (m < last && is_chunk(c, time - m))
        next->out = chunk_at(r, c, time - m, &next->n_out);
    if (m < last && is_chunk(c, time - (2 * last - 1 - m)))
        next->in = chunk_at(r, c, time - (2 * last - 1 - m), &next->n_in);
    if (m > 0 && is_chunk(c, time - (m - 1))) {
        (void)chunk_at(r, c, time - (m - 1), &before->n_in);
        before->in = r->incoming;
    }
    if (m > 0 && is_chunk(c, time - (2 * last - m)))
        before->out = chunk_at(r, c, time - (2 * last - m), &before->n_out);
    if (!next->out && !next->in && !before->out && !before->in)
        return TD_OK;
    return td_transport_exchange(td_comm_transport(r->c), &e);
}

static td_status reduce_along_machines(td_reduction *r, const bucket *b)
{
    const td_comm_machines *x = &r->machines;
    chunks c = { b->first + slice_begin(b->n, r->local, x->n_ranks),
                 b->first + slice_begin(b->n, r->local + 1, x->n_ranks), 0, 0 };
    c.chunk = td_chain_chunk(x->n, c.end - c.begin);
    c.n = (int)((c.end - c.begin + c.chunk - 1) / c.chunk);
    TD_TRY(all_are_here(r));
    for (int time = 0; time < c.n + 2 * x->n - 3; time++) {
        if (is_chunk(&c, time - x->index))
            add_own_machine(r, &c, time - x->index);
        TD_TRY(pass_chunks(r, &c, time));
    }
    return all_are_here(r);
}

/* n numbers at `first` of all: each rank gets its slice of everybody's, adds, and sends the sums */
static td_status reduce_sent_part(td_reduction *r, int64_t first, int64_t n)
{
    const float *own = own_of(r, 0) + first;
    float *sums = r->sums + first;
    const int64_t begin = slice_begin(n, r->rank, r->size);
    const int64_t end = slice_begin(n, r->rank + 1, r->size);
    for (int k = 0; k < r->size; k++) {
        const int64_t from = slice_begin(n, k, r->size), to = slice_begin(n, k + 1, r->size);
        r->at[k] = (size_t)from * sizeof(float);
        r->bytes[k] = (size_t)(to - from) * sizeof(float);
        r->in_at[k] = (size_t)(k * r->slice) * sizeof(float);
        r->own[k] = (size_t)(end - begin) * sizeof(float);
        r->parts[k] = k == r->rank ? own + begin : r->incoming + k * r->slice;
    }
    TD_TRY(td_transport_exchange(td_comm_transport(r->c),
                                 &(td_exchange){ .kind = TD_EXCHANGE_ALL_TO_ALL,
                                                 .out = (const char *)own,
                                                 .out_at = r->at,
                                                 .out_n = r->bytes,
                                                 .in = (char *)r->incoming,
                                                 .in_at = r->in_at,
                                                 .in_n = r->own }));
    sum_parts(sums + begin, r->starts ? r->start + first + begin : NULL, r->parts, r->size,
              end - begin);
    return td_transport_exchange(
        td_comm_transport(r->c),
        &(td_exchange){
            .kind = TD_EXCHANGE_ALL_GATHER, .in = (char *)sums, .in_at = r->at, .in_n = r->bytes });
}

typedef void widen(const uint16_t *src, size_t n, float *dst);
typedef void narrow(const float *src, size_t n, uint16_t *dst);

/* sum += x in half precision, rounded after the addition in float32 */
static void add_halves(const uint16_t *x, uint16_t *sum, size_t n, widen *to_f32, narrow *from_f32)
{
    float a[BLOCK], b[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        to_f32(x + at, m, a);
        to_f32(sum + at, m, b);
        for (size_t i = 0; i < m; i++)
            b[i] += a[i];
        from_f32(b, m, sum + at);
    }
}

static void add_bf16(const uint16_t *x, uint16_t *sum, size_t n)
{
    add_halves(x, sum, n, td_bf16_to_f32_n, td_f32_to_bf16_n);
}

static void add_fp16(const uint16_t *x, uint16_t *sum, size_t n)
{
    add_halves(x, sum, n, td_f16_to_f32_n, td_f32_to_f16_n);
}

/* n numbers at `first`, by the transport's own sum */
static td_status reduce_fast_part(td_reduction *r, int64_t first, int64_t n)
{
    const bool is_half = r->allreduce.dtype != TD_WIRE_FLOAT32;
    const bool is_bf16 = r->allreduce.dtype == TD_WIRE_BF16;
    const float *own = own_of(r, 0) + first;
    float *sums = r->sums + first;
    const size_t count = (size_t)n;
    uint16_t *halves = (uint16_t *)r->incoming; /* [2][n], fewer bytes than a part has */
    td_exchange e = {
        .kind = TD_EXCHANGE_SUM, .out = (const char *)own, .in = (char *)sums, .n = count
    };
    if (is_half) {
        (is_bf16 ? td_f32_to_bf16_n : td_f32_to_f16_n)(own, count, halves);
        e.out = (const char *)halves;
        e.in = (char *)(halves + count);
        e.add = is_bf16 ? add_bf16 : add_fp16;
    }
    TD_TRY(td_transport_exchange(td_comm_transport(r->c), &e));
    if (is_half)
        (is_bf16 ? td_bf16_to_f32_n : td_f16_to_f32_n)(halves + count, count, sums);
    return TD_OK;
}

/* a bucket, PART numbers at a time */
static td_status reduce_parts(td_reduction *r, const bucket *b,
                              td_status (*reduce_part)(td_reduction *r, int64_t first, int64_t n))
{
    for (int64_t at = 0; at < b->n; at += PART)
        TD_TRY(reduce_part(r, b->first + at, b->n - at < PART ? b->n - at : PART));
    return TD_OK;
}

static td_status reduce(td_comm *c, void *ctx)
{
    const bucket *b = ctx;
    (void)c;
    td_reduction *r = b->of;
    if (r->allreduce.mode == TD_ALLREDUCE_FAST)
        return reduce_parts(r, b, reduce_fast_part);
    if (!r->is_shared)
        return reduce_parts(r, b, reduce_sent_part);
    return is_chain(r) ? reduce_along_machines(r, b) : reduce_shared(r, b);
}

void td_reduction_skip(td_reduction *r, bool skips)
{
    r->skips = skips;
}

void td_reduction_begin(td_reduction *r, int i)
{
    bucket *b = &r->buckets[i];
    if (r->skips)
        return;
    b->is_begun = true;
    if (r->c) {
        b->job.run = reduce;
        b->job.ctx = b;
        td_comm_begin(r->c, &b->job);
        return;
    }
    const float *own = own_of(r, 0) + b->first;
    sum_parts(r->sums + b->first, r->starts ? r->start + b->first : NULL, &own, 1, b->n);
}

td_status td_reduction_wait(td_reduction *r, int i, const float **sum)
{
    bucket *b = &r->buckets[i];
    *sum = r->sums + b->first;
    if (r->skips)
        return TD_OK;
    TD_CHECK(b->is_begun);
    const int64_t begin_ns = td_now_ns();
    td_status st = r->c ? td_comm_wait(r->c, &b->job) : TD_OK;
    r->waited_ns += td_now_ns() - begin_ns;
    return st;
}

double td_reduction_waited_s(const td_reduction *r)
{
    return (double)r->waited_ns * 1e-9;
}

/* --- memory ----------------------------------------------------------------------------------- */

#define MEMORY_NAME "tandem ranks"

/* how the others open the memory: a file descriptor of the process of the machine's first rank */
typedef struct {
    int pid, fd;
} memory_of;

static bool map_shared(td_reduction *r, int fd)
{
    void *p = mmap(NULL, r->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    r->base = p == MAP_FAILED ? NULL : p;
    return r->base != NULL;
}

static int make_file(size_t n_bytes)
{
    int fd = memfd_create(MEMORY_NAME, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)n_bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* is it a memory file of this size made by a rank, not another file of the user? */
static bool is_rank_memory(const char *path, int fd, size_t n_bytes)
{
    static const char wanted[] = "/memfd:" MEMORY_NAME;
    char target[64] = "";
    struct stat s;
    return readlink(path, target, sizeof target - 1) > 0 &&
           strncmp(target, wanted, sizeof wanted - 1) == 0 && fstat(fd, &s) == 0 &&
           s.st_size == (off_t)n_bytes;
}

static int open_file(memory_of m, size_t n_bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", m.pid, m.fd);
    int fd = m.fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && !is_rank_memory(path, fd, n_bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* tries to share memory on every machine; where one cannot, r->base stays NULL on all ranks */
static td_status share(td_reduction *r)
{
    const int n_ranks = r->machines.n_ranks, first = r->machines.index * n_ranks;
    memory_of m = { (int)getpid(), -1 }, *all;
    int fd = -1;
    int64_t n_mapped;
    r->n_bytes = (size_t)r->total * (size_t)(n_ranks + 1) * sizeof(float);
    TD_TRY(TD_ALLOC(all, (size_t)r->size));
    if (r->rank == first)
        m.fd = fd = make_file(r->n_bytes);
    td_status st = td_comm_gather(r->c, &m, sizeof m, all);
    if (st == TD_OK && r->rank != first)
        fd = open_file(all[first], r->n_bytes);
    n_mapped = fd >= 0 && map_shared(r, fd) ? 1 : 0;
    if (st == TD_OK)
        st = td_comm_sum_i64(r->c, &n_mapped, 1); /* the first rank's file stays open until here */
    if (fd >= 0)
        close(fd);
    r->is_shared = st == TD_OK && n_mapped == r->size;
    if (!r->is_shared && r->base) {
        munmap(r->base, r->n_bytes);
        r->base = NULL;
    }
    td_free(all);
    return st;
}

static td_status take_memory(td_reduction *r)
{
    if (r->c && r->allreduce.mode == TD_ALLREDUCE_EXACT && r->machines.n_ranks > 1)
        TD_TRY(share(r));
    if (r->base) {
        r->local = r->rank - r->machines.index * r->machines.n_ranks;
        r->sums = r->base + r->total * r->machines.n_ranks;
        if (is_chain(r))
            r->incoming = td_pages_alloc(CHUNK * sizeof(float));
        return !is_chain(r) || r->incoming ? TD_OK : TD_ENOMEM;
    }
    r->n_bytes = (size_t)(2 * r->total + r->size * r->slice) * sizeof(float);
    r->base = td_pages_alloc(r->n_bytes);
    if (!r->base)
        return TD_ENOMEM;
    r->sums = r->base + r->total;
    r->incoming = r->sums + r->total;
    return TD_OK;
}

static td_status lay_out(td_reduction *r, const int64_t *n_floats)
{
    TD_TRY(TD_ALLOC(r->buckets, (size_t)r->n + 1));
    TD_TRY(TD_ALLOC(r->parts, (size_t)r->size));
    TD_TRY(TD_ALLOC(r->at, 4 * (size_t)r->size));
    r->bytes = r->at + r->size;
    r->in_at = r->bytes + r->size;
    r->own = r->in_at + r->size;
    for (int b = 0; b < r->n; b++) {
        r->buckets[b] = (bucket){ .of = r, .first = r->total, .n = n_floats[b] };
        r->total += (n_floats[b] + 15) / 16 * 16;
        const int64_t part = n_floats[b] < PART ? n_floats[b] : PART;
        const int64_t longest = ((part + 15) / 16 / r->size + 1) * 16;
        r->slice = longest > r->slice ? longest : r->slice;
    }
    r->total += 16; /* never empty */
    TD_TRY(take_memory(r));
    if (!r->starts)
        return TD_OK;
    r->start = td_pages_alloc((size_t)r->total * sizeof(float));
    return r->start ? TD_OK : TD_ENOMEM;
}

td_status td_reduction_new(td_comm *c, int n, const int64_t *n_floats, bool starts,
                           td_reduction **out)
{
    *out = NULL;
    td_reduction *r = TD_NEW(td_reduction);
    if (!r)
        return TD_ENOMEM;
    r->c = c;
    r->rank = td_comm_rank(c);
    r->size = td_comm_size(c);
    r->machines = td_comm_machines_of(c);
    r->allreduce = *td_comm_allreduce(c);
    r->n = n;
    r->starts = starts;
    td_status st = lay_out(r, n_floats);
    if (st == TD_OK)
        *out = r;
    else
        td_reduction_free(r);
    return st;
}

void td_reduction_free(td_reduction *r)
{
    if (!r)
        return;
    /* the thread may still use it; if all jobs are done, the comm may be closed already */
    for (int b = 0; r->c && r->buckets && b < r->n; b++)
        if (r->buckets[b].is_begun && !atomic_load(&r->buckets[b].job.is_done))
            (void)!td_comm_wait(r->c, &r->buckets[b].job);
    if (r->is_shared)
        munmap(r->base, r->n_bytes);
    else
        td_pages_free(r->base, r->n_bytes);
    if (is_chain(r))
        td_pages_free(r->incoming, CHUNK * sizeof(float));
    td_pages_free(r->start, (size_t)r->total * sizeof(float));
    td_free(r->buckets);
    td_free(r->parts);
    td_free(r->at);
    td_free(r);
}
