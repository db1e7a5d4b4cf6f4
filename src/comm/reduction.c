/*
 * reduction.c -- sums buckets over ranks, in shared memory or through the transport
 *
 *   shared memory:   [ own of rank 0 | own of rank 1 | ... | sums ]     one unnamed file
 *   otherwise:       [ own | sums | slices of the others ]              one per rank
 *
 * No number is overwritten too early: a rank that begins a bucket again has waited for its previous
 * sum, which required that all had summed; and sums are written when all have begun the bucket
 * again, and so have read the previous ones.
 */
#include "comm/reduction.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"

enum {
    BLOCK = 2048,  /* floats that are summed over all ranks at a time: they stay in the cache */
    PART = 1 << 24 /* floats that are sent at a time: MPI counts bytes with int */
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
    bool is_shared, starts;
    float *base; /* as drawn above */
    size_t n_bytes;
    float *sums;         /* inside base, [total] */
    float *incoming;     /* inside base; [size][longest slice], not shared */
    int64_t slice;       /* the longest slice of any bucket */
    float *start;        /* [total] */
    const float **parts; /* [size] */
    size_t *at, *bytes;  /* [size] a slice of each rank, inside the bucket */
    size_t *in_at, *own; /* [size] where slices of the own part arrive, and their sizes */
    int64_t waited_ns;   /* time the caller waited for sums */
};

static float *own_of(const td_reduction *r, int rank)
{
    return r->base + (r->is_shared ? rank : 0) * r->total;
}

float *td_reduction_own(td_reduction *r, int b)
{
    return own_of(r, r->rank) + r->buckets[b].first;
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

/* where slice k of n numbers begins: whole cache lines */
static int64_t slice_begin(const td_reduction *r, int64_t n, int k)
{
    const int64_t lines = (n + 15) / 16;
    const int64_t at = lines * k / r->size * 16;
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

static td_status all_are_here(td_reduction *r)
{
    return td_transport_exchange(td_comm_transport(r->c),
                                 &(td_exchange){ .kind = TD_EXCHANGE_BARRIER });
}

static td_status reduce_shared(td_reduction *r, const bucket *b)
{
    TD_TRY(all_are_here(r));
    const int64_t begin = b->first + slice_begin(r, b->n, r->rank);
    const int64_t end = b->first + slice_begin(r, b->n, r->rank + 1);
    for (int k = 0; k < r->size; k++)
        r->parts[k] = own_of(r, k) + begin;
    sum_parts(r->sums + begin, r->starts ? r->start + begin : NULL, r->parts, r->size, end - begin);
    return all_are_here(r);
}

/* n numbers at `first` of all: each rank gets its slice of everybody's, adds, and sends the sums */
static td_status reduce_sent_part(td_reduction *r, int64_t first, int64_t n)
{
    const float *own = own_of(r, r->rank) + first;
    float *sums = r->sums + first;
    const int64_t begin = slice_begin(r, n, r->rank), end = slice_begin(r, n, r->rank + 1);
    for (int k = 0; k < r->size; k++) {
        const int64_t from = slice_begin(r, n, k), to = slice_begin(r, n, k + 1);
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

static td_status reduce_sent(td_reduction *r, const bucket *b)
{
    for (int64_t at = 0; at < b->n; at += PART)
        TD_TRY(reduce_sent_part(r, b->first + at, b->n - at < PART ? b->n - at : PART));
    return TD_OK;
}

static td_status reduce(td_comm *c, void *ctx)
{
    const bucket *b = ctx;
    (void)c;
    return b->of->is_shared ? reduce_shared(b->of, b) : reduce_sent(b->of, b);
}

void td_reduction_begin(td_reduction *r, int i)
{
    bucket *b = &r->buckets[i];
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

/* how the others open the memory: a file descriptor of rank 0's process */
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

/* tries to share memory if all ranks are on this machine; if not, r->base stays NULL */
static td_status share(td_reduction *r)
{
    memory_of m = { (int)getpid(), -1 };
    int fd = -1;
    int64_t n_mapped;
    r->n_bytes = (size_t)r->total * (size_t)(r->size + 1) * sizeof(float);
    if (r->rank == 0)
        m.fd = fd = make_file(r->n_bytes);
    TD_TRY(td_comm_broadcast(r->c, &m, sizeof m));
    if (r->rank != 0)
        fd = open_file(m, r->n_bytes);
    n_mapped = fd >= 0 && map_shared(r, fd) ? 1 : 0;
    td_status st = td_comm_sum_i64(r->c, &n_mapped, 1); /* rank 0's file stays open until here */
    if (fd >= 0)
        close(fd);
    r->is_shared = st == TD_OK && n_mapped == r->size;
    if (!r->is_shared && r->base) {
        munmap(r->base, r->n_bytes);
        r->base = NULL;
    }
    return st;
}

static td_status take_memory(td_reduction *r)
{
    /* for tests and benchmarks: as if the ranks were on several machines */
    const bool may_share = !getenv("TANDEM_NO_SHARED_MEMORY");
    if (r->c && may_share && td_comm_local_size(r->c) == r->size)
        TD_TRY(share(r));
    if (r->base) {
        r->sums = r->base + r->total * r->size;
        return TD_OK;
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
    td_pages_free(r->start, (size_t)r->total * sizeof(float));
    td_free(r->buckets);
    td_free(r->parts);
    td_free(r->at);
    td_free(r);
}
