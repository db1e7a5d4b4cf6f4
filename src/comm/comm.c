/*
 * comm.c -- the communication thread and the calls it serves
 *
 *   caller  --- job --- job ---> [ list under one lock ]  ---> communication thread <---> transport
 *           <------------- done, or "rank 1 is lost" -----
 *
 * Between jobs the thread runs the transport, which detects lost ranks.
 */
#include "comm/comm.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/machine.h"
#include "base/text.h"
#include "base/threads.h"
#include "transport/local_transport.h"
#include "transport/mpi_transport.h"

enum { IDLE_MS = 1000, MASK_BYTES = 128, BOOT_BYTES = 40, HOST_BYTES = 64, MESSAGE_BYTES = 800 };

/*
 * Limits on sizes that another rank announces, so that a damaged or hostile one cannot make this
 * rank allocate or write out of bounds.  64 GiB: the logits of ImageNet's training set take 5 GB.
 * 16 MiB: the description of a run is some KB.
 */
#define BLOCK_BYTES_MAX (INT64_C(1) << 36)
#define TEXT_BYTES_MAX  (INT64_C(1) << 24)
#define MESSAGE_MAX     ((size_t)1 << 30) /* bytes; MPI counts with int */

struct td_comm {
    int rank, size, local_rank, local_size, threads;
    td_comm_machines machines;
    td_allreduce_opts allreduce;
    td_transport *transport; /* the thread's */
    td_thread thread;
    pthread_mutex_t lock;
    pthread_cond_t is_done;
    td_comm_job *first, *last; /* guarded by lock, as all below */
    bool is_closing;
    td_status st;
    char message[MESSAGE_BYTES];
};

int td_comm_rank(const td_comm *c)
{
    return c ? c->rank : 0;
}

int td_comm_size(const td_comm *c)
{
    return c ? c->size : 1;
}

int td_comm_local_rank(const td_comm *c)
{
    return c ? c->local_rank : 0;
}

int td_comm_local_size(const td_comm *c)
{
    return c ? c->local_size : 1;
}

int td_comm_threads(const td_comm *c)
{
    return c ? c->threads : td_core_count();
}

void td_comm_set_allreduce(td_comm *c, const td_allreduce_opts *o)
{
    c->allreduce = *o;
}

const td_allreduce_opts *td_comm_allreduce(const td_comm *c)
{
    static const td_allreduce_opts exact = { .mode = TD_ALLREDUCE_EXACT };
    return c && td_transport_can_sum(c->transport) ? &c->allreduce : &exact;
}

const td_allreduce_opts *td_comm_wanted_allreduce(const td_comm *c)
{
    return &c->allreduce;
}

const char *td_comm_name(const td_comm *c, int rank)
{
    return c ? td_transport_name(c->transport, rank) : "rank 0";
}

td_transport *td_comm_transport(td_comm *c)
{
    return c->transport;
}

/* --- the communication thread ----------------------------------------------------------------- */

/* the lock is held */
static void note(td_comm *c, td_status st)
{
    if (st == TD_OK || c->st != TD_OK)
        return;
    c->st = st;
    snprintf(c->message, sizeof c->message, "%s", td_error_message());
    td_ranks_blame(td_transport_culprit(c->transport));
}

/* the next job, or NULL; the caller releases the lock meanwhile */
static td_comm_job *look(td_comm *c, bool *is_closing)
{
    pthread_mutex_lock(&c->lock);
    td_comm_job *j = c->first;
    *is_closing = c->is_closing;
    pthread_mutex_unlock(&c->lock);
    return j;
}

static td_status state_of(td_comm *c)
{
    pthread_mutex_lock(&c->lock);
    td_status st = c->st == TD_OK ? TD_OK : td_error_set(c->st, c->message);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static void finish(td_comm *c, td_comm_job *j, td_status st)
{
    pthread_mutex_lock(&c->lock);
    note(c, st);
    if (j) {
        c->first = j->next;
        c->last = c->first ? c->last : NULL;
        j->is_done = true;
    }
    pthread_cond_broadcast(&c->is_done);
    pthread_mutex_unlock(&c->lock);
}

static void communicate(void *ctx)
{
    td_comm *c = ctx;
    bool is_closing;
    for (;;) {
        td_comm_job *j = look(c, &is_closing);
        td_status st = state_of(c);
        if (!j && is_closing)
            return;
        if (j) {
            finish(c, j, st == TD_OK ? j->run(c, j->ctx) : st);
            continue;
        }
        if (st == TD_OK) {
            st = td_transport_progress(c->transport, IDLE_MS);
            if (st != TD_OK)
                finish(c, NULL, st);
        } else { /* the transport has failed */
            pthread_mutex_lock(&c->lock);
            while (!c->first && !c->is_closing)
                pthread_cond_wait(&c->is_done, &c->lock);
            pthread_mutex_unlock(&c->lock);
        }
    }
}

void td_comm_begin(td_comm *c, td_comm_job *j)
{
    pthread_mutex_lock(&c->lock);
    j->next = NULL;
    j->is_done = false;
    if (c->last)
        c->last->next = j;
    else
        c->first = j;
    c->last = j;
    pthread_cond_broadcast(&c->is_done);
    pthread_mutex_unlock(&c->lock);
    td_transport_wake(c->transport);
}

/* the lock is held */
static void await(td_comm *c, const td_comm_job *j)
{
    while (!j->is_done)
        pthread_cond_wait(&c->is_done, &c->lock);
}

td_status td_comm_wait(td_comm *c, td_comm_job *j)
{
    pthread_mutex_lock(&c->lock);
    await(c, j);
    td_status st = c->st == TD_OK ? TD_OK : td_error_set(c->st, c->message);
    pthread_mutex_unlock(&c->lock);
    return st;
}

td_status td_comm_check(td_comm *c)
{
    return c ? state_of(c) : TD_OK;
}

static td_status run_now(td_comm *c, td_status (*run)(td_comm *c, void *ctx), void *ctx)
{
    td_comm_job j = { .run = run, .ctx = ctx };
    td_comm_begin(c, &j);
    return td_comm_wait(c, &j);
}

/* --- calls ------------------------------------------------------------------------------------ */

static td_status exchange(td_comm *c, void *ctx)
{
    return td_transport_exchange(c->transport, ctx);
}

td_status td_comm_broadcast(td_comm *c, void *data, size_t n)
{
    td_exchange e = { .kind = TD_EXCHANGE_BROADCAST, .in = data, .n = n };
    return c && n ? run_now(c, exchange, &e) : TD_OK;
}

typedef struct {
    void *all; /* [size][n] */
    size_t n;
} blocks;

static td_status gather(td_comm *c, void *ctx)
{
    const blocks *b = ctx;
    return td_transport_gather(c->transport, b->all, b->n);
}

td_status td_comm_gather(td_comm *c, const void *mine, size_t n, void *all)
{
    if (n)
        memcpy((char *)all + (size_t)td_comm_rank(c) * n, mine, n);
    return c && n ? run_now(c, gather, &(blocks){ all, n }) : TD_OK;
}

/* n bytes from rank `from` to rank 0, in messages of limited size */
static td_status pass_block(td_comm *c, int from, char *data, size_t n)
{
    for (size_t at = 0; at < n; at += MESSAGE_MAX) {
        const size_t m = n - at < MESSAGE_MAX ? n - at : MESSAGE_MAX;
        td_exchange e = { .kind = TD_EXCHANGE_PEERS };
        if (c->rank == 0)
            e.peers[0] = (td_exchange_peer){ .rank = from, .in = data + at, .n_in = m };
        else
            e.peers[0] = (td_exchange_peer){ .rank = 0, .out = data + at, .n_out = m };
        TD_TRY(run_now(c, exchange, &e));
    }
    return TD_OK;
}

/* checks that a size announced by rank r is between min and max */
static td_status check_size(const td_comm *c, int r, int64_t n, int64_t min, int64_t max)
{
    if (n >= min && n <= max)
        return TD_OK;
    return td_error(TD_EDEVICE, "%s announced %lld bytes, wanted %lld .. %lld", td_comm_name(c, r),
                    (long long)n, (long long)min, (long long)max);
}

/* rank 0: the others' blocks, sizes[size] */
static td_status take_blocks(td_comm *c, const int64_t *sizes, td_comm_take *take, void *ctx)
{
    char *room = NULL;
    size_t cap = 0;
    td_status st = TD_OK;
    for (int r = 1; st == TD_OK && r < c->size; r++) {
        const size_t n = (size_t)sizes[r];
        st = check_size(c, r, sizes[r], 0, BLOCK_BYTES_MAX);
        if (st == TD_OK)
            st = td_reserve(&room, &cap, n + 1, 1);
        if (st == TD_OK)
            st = pass_block(c, r, room, n);
        if (st == TD_OK)
            st = take(ctx, r, room, n);
    }
    td_free(room);
    return st;
}

td_status td_comm_collect(td_comm *c, const void *mine, size_t n, td_comm_take *take, void *ctx)
{
    int64_t *sizes, own = (int64_t)n;
    if (!c)
        return take(ctx, 0, mine, n);
    sizes = td_alloc((size_t)c->size, sizeof *sizes);
    td_status st = sizes ? td_comm_gather(c, &own, sizeof own, sizes) : TD_ENOMEM;
    if (st == TD_OK && c->rank > 0)
        st = pass_block(c, c->rank, (char *)(uintptr_t)mine, n);
    if (st == TD_OK && c->rank == 0)
        st = take(ctx, 0, mine, n);
    if (st == TD_OK && c->rank == 0)
        st = take_blocks(c, sizes, take, ctx);
    td_free(sizes);
    char taken = 1; /* no rank continues or leaves before rank 0 has all blocks */
    return st == TD_OK ? td_comm_broadcast(c, &taken, sizeof taken) : st;
}

td_status td_comm_sum_i64(td_comm *c, int64_t *x, int n)
{
    if (!c)
        return TD_OK;
    int64_t *all = td_alloc((size_t)c->size * (size_t)n, sizeof *all);
    td_status st = all ? td_comm_gather(c, x, (size_t)n * sizeof *x, all) : TD_ENOMEM;
    for (int i = 0; st == TD_OK && i < n; i++) {
        x[i] = 0;
        for (int r = 0; r < c->size; r++)
            x[i] += all[r * n + i];
    }
    td_free(all);
    return st;
}

td_status td_comm_sum_f64(td_comm *c, double *x, int n)
{
    if (!c)
        return TD_OK;
    double *all = td_alloc((size_t)c->size * (size_t)n, sizeof *all);
    td_status st = all ? td_comm_gather(c, x, (size_t)n * sizeof *x, all) : TD_ENOMEM;
    for (int i = 0; st == TD_OK && i < n; i++) {
        x[i] = 0;
        for (int r = 0; r < c->size; r++)
            x[i] += all[r * n + i];
    }
    td_free(all);
    return st;
}

/* --- agreement -------------------------------------------------------------------------------- */

/* extracts the line or JSON member in which two texts first differ */
static void show_difference(const char *a, const char *b, char *out_a, char *out_b, int room)
{
    size_t at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    while (at > 0 && a[at - 1] != '\n' && !(a[at - 1] == ' ' && at > 1 && a[at - 2] == ','))
        at--;
    const int n_a = (int)strcspn(a + at, ",\n"), n_b = (int)strcspn(b + at, ",\n");
    snprintf(out_a, (size_t)room, "%.*s", n_a < room ? n_a : room - 1, a + at);
    snprintf(out_b, (size_t)room, "%.*s", n_b < room ? n_b : room - 1, b + at);
}

static td_status compare(const td_comm *c, const char *what, const char *all, size_t n)
{
    for (int r = 1; r < c->size; r++) {
        const char *other = all + (size_t)r * n;
        char here[160], there[160];
        if (strcmp(all, other) == 0)
            continue;
        show_difference(all, other, there, here, (int)sizeof here);
        td_text_make_printable(here);
        td_text_make_printable(there);
        return td_error(TD_EARG, "%s has a different %s from rank 0: '%s', rank 0 has '%s'",
                        td_comm_name(c, r), what, here, there);
    }
    return TD_OK;
}

td_status td_comm_agree(td_comm *c, const char *what, const char *text)
{
    int64_t *lengths = NULL, mine = (int64_t)strlen(text) + 1, n = 0;
    char *all = NULL, *own = NULL;
    td_status st = TD_OK;
    if (!c)
        return TD_OK;
    lengths = td_alloc((size_t)c->size, sizeof *lengths);
    TD_OUT(lengths ? TD_OK : TD_ENOMEM);
    TD_OUT(td_comm_gather(c, &mine, sizeof mine, lengths));
    for (int r = 0; r < c->size; r++) {
        TD_OUT(check_size(c, r, lengths[r], 1, TEXT_BYTES_MAX));
        n = lengths[r] > n ? lengths[r] : n;
    }
    own = td_alloc((size_t)n, 1);
    all = td_alloc((size_t)n, (size_t)c->size);
    TD_OUT(own && all ? TD_OK : TD_ENOMEM);
    memcpy(own, text, (size_t)mine);
    TD_OUT(td_comm_gather(c, own, (size_t)n, all));
    for (int r = 0; r < c->size; r++)
        all[(size_t)r * (size_t)n + (size_t)n - 1] = '\0';
    st = compare(c, what, all, (size_t)n);
out:
    td_free(lengths);
    td_free(all);
    td_free(own);
    return st;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* identifies the ranks that share a machine and its processors */
typedef struct {
    char boot[BOOT_BYTES];
    char host[HOST_BYTES];          /* differs in containers of one machine */
    int64_t group;                  /* TANDEM_RANKS_PER_MACHINE */
    unsigned char cpus[MASK_BYTES]; /* the last member: is_neighbour compares what is before */
} whereabouts;

/* for tests and benchmarks: as if each machine had so many ranks; 0: as it is */
static int pretended_ranks(void)
{
    const char *v = getenv("TANDEM_RANKS_PER_MACHINE");
    int64_t n;
    return v && td_text_to_int(v, &n) && n > 0 && n <= INT_MAX ? (int)n : 0;
}

static void find_whereabouts(int rank, whereabouts *w)
{
    const int n = pretended_ranks();
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    *w = (whereabouts){ .group = n > 0 ? rank / n : 0 };
    if (f) {
        if (!fgets(w->boot, sizeof w->boot, f))
            w->boot[0] = '\0';
        fclose(f);
    }
    if (gethostname(w->host, sizeof w->host - 1) != 0)
        w->host[0] = '\0';
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        memcpy(w->cpus, &set, sizeof set < MASK_BYTES ? sizeof set : MASK_BYTES);
}

static bool is_neighbour(const whereabouts *a, const whereabouts *b)
{
    return memcmp(a, b, offsetof(whereabouts, cpus)) == 0;
}

/* blocks of equal numbers of consecutive ranks? */
static int ranks_per_machine(const whereabouts *all, int size)
{
    int n = 1;
    while (n < size && is_neighbour(&all[n], &all[0]))
        n++;
    for (int r = 0; r < size; r++) {
        const bool is_first = r % n == 0;
        if (size % n != 0 || (!is_first && !is_neighbour(&all[r], &all[r - 1])))
            return 0;
        for (int k = 0; is_first && k < r; k += n)
            if (is_neighbour(&all[r], &all[k]))
                return 0;
    }
    return n;
}

static td_status find_neighbours(td_comm *c)
{
    whereabouts own, *all;
    int n_sharing = 0, n_here = 0;
    TD_TRY(TD_ALLOC(all, (size_t)c->size));
    find_whereabouts(c->rank, &own);
    td_status st = td_comm_gather(c, &own, sizeof own, all);
    for (int r = 0; st == TD_OK && r < c->size; r++) {
        const bool is_here = memcmp(all[r].boot, own.boot, sizeof own.boot) == 0;
        n_here += is_here;
        n_sharing += is_here && memcmp(all[r].cpus, own.cpus, sizeof own.cpus) == 0;
        if (!is_neighbour(&all[r], &own))
            continue;
        c->local_size++;
        c->local_rank += r < c->rank;
    }
    if (st == TD_OK) {
        const int n = ranks_per_machine(all, c->size);
        c->machines = (td_comm_machines){ .n_ranks = n,
                                          .n = n ? c->size / n : 0,
                                          .index = n ? c->rank / n : 0 };
    }
    td_free(all);
    c->threads = st == TD_OK ? td_core_share(n_sharing, n_here) : 1;
    return st;
}

td_comm_machines td_comm_machines_of(const td_comm *c)
{
    return c ? c->machines : (td_comm_machines){ .n = 1, .n_ranks = 1 };
}

static void release(td_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    pthread_cond_broadcast(&c->is_done);
    pthread_mutex_unlock(&c->lock);
    if (c->transport)
        td_transport_wake(c->transport);
    td_thread_join(&c->thread);
    td_transport_free(c->transport);
    pthread_cond_destroy(&c->is_done);
    pthread_mutex_destroy(&c->lock);
    td_free(c);
}

/* the others must not miss why this rank does not join */
static void leave_unjoined(td_comm *c, td_status st)
{
    char why[MESSAGE_BYTES];
    const char *own = st == TD_EDEVICE ? "" : td_comm_name(c, c->rank); /* that names a rank */
    snprintf(why, sizeof why, "%s%s%.*s", own, *own ? ": " : "", TD_WHY_BYTES, td_error_message());
    td_transport_leave(c->transport, why);
}

static td_status connect_ranks(td_comm *c, const td_rank_place *place,
                               const td_transport_opts *opts)
{
    if (place->by == TD_RANKS_LAUNCH)
        TD_TRY(td_local_transport_open(place, opts, &c->transport));
    else
        TD_TRY(td_mpi_transport_open(place, opts, &c->transport));
    td_status st = td_transport_exchange_names(c->transport);
    if (st != TD_OK)
        leave_unjoined(c, st);
    return st;
}

typedef struct {
    const char *why;
} leaving;

static td_status leave(td_comm *c, void *ctx)
{
    td_transport_leave(c->transport, ((const leaving *)ctx)->why);
    return TD_OK;
}

void td_comm_close(td_comm *c, td_status st)
{
    char why[MESSAGE_BYTES], own[MESSAGE_BYTES - 200];
    if (!c)
        return;
    snprintf(own, sizeof own, "%s", st == TD_OK ? "" : td_error_message());
    pthread_mutex_lock(&c->lock);
    if (c->st != TD_OK) /* report the first cause to the others, not this rank's end */
        snprintf(why, sizeof why, "%s", c->message);
    else
        snprintf(why, sizeof why, "%s: %s", td_comm_name(c, c->rank), own);
    const bool is_peace = c->st == TD_OK && st == TD_OK;
    c->st = TD_OK; /* so that the last job runs */
    pthread_mutex_unlock(&c->lock);
    td_comm_job j = { .run = leave, .ctx = &(leaving){ is_peace ? NULL : why } };
    td_comm_begin(c, &j);
    pthread_mutex_lock(&c->lock);
    await(c, &j); /* keeps this thread's message */
    pthread_mutex_unlock(&c->lock);
    release(c);
}

td_status td_comm_open(const td_rank_place *place, const td_transport_opts *opts, td_comm **out)
{
    td_status st = TD_OK;
    *out = NULL;
    td_comm *c = TD_NEW(td_comm);
    if (!c)
        return TD_ENOMEM;
    TD_CHECK(pthread_mutex_init(&c->lock, NULL) == 0);
    TD_CHECK(pthread_cond_init(&c->is_done, NULL) == 0);
    c->rank = place->rank;
    c->size = place->size;
    TD_OUT(connect_ranks(c, place, opts));
    TD_OUT(td_thread_start(&c->thread, "ranks", communicate, c));
    st = find_neighbours(c);
    if (st == TD_OK)
        *out = c;
    else
        td_comm_close(c, st);
    return st;
out:
    release(c);
    return st;
}
