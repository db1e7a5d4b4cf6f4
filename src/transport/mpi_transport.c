/*
 * mpi_transport.c -- exchanges by MPI, beats around the ring of ranks, and the watchdog
 *
 *   rank 0 -- beat --> rank 1 -- beat --> rank 2 -- beat --> rank 0      once a second
 *
 * A rank that hangs is noticed by the one after it, so the cost does not grow with the number of
 * ranks.  While an exchange is in flight the thread tests it, with naps between: the processors
 * belong to the computation.  Calls of MPI can block, so a second thread watches whether the first
 * one comes back.
 */
#include "transport/mpi_transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "transport/mpi_plugin.h"
#include "transport/restart.h"

#define SECOND INT64_C(1000000000)
enum {
    BEAT_MS = 1000,
    OWN_STOP_S = 2,
    IDLE_MS = 200,  /* between looks at the beats without an exchange */
    WATCH_MS = 500, /* between looks of the watchdog */
    TESTS = 20,     /* before the first nap */
    NAP_NS = 50000, /* the first; each is longer than the one before it by as much */
    NAP_MAX_NS = 200000,
    FINALIZE_MS = 10000, /* for MPI_Finalize, once all ranks call it */
    HOLD_S = 5,          /* that mpirun's connection is kept open */
    FDS_MAX = 4096,
    OUTPUT_NS = 200000000 /* for mpirun to pass on the last messages */
};

typedef struct {
    td_transport base;
    const td_mpi_plugin *mpi;
    td_mpi_world world;
    bool is_in_flight;
    int n_tests; /* since the exchange in flight began */
    bool before_has_left;
    int64_t beat_ns, heard_ns, progress_ns;
    _Atomic int64_t alive_ns; /* when the thread was last outside MPI; 0: not watched */
    int stop_fd;
    td_thread watchdog;
} ranks;

/* the world of this process, between opening and td_mpi_finalize */
static const td_mpi_plugin *opened;
static bool is_mpich; /* and may finalize in another thread */

static atomic_bool has_lost; /* a rank, or the connection to it */

/* mpirun may hang when a machine is gone: its launcher has to know */
static void note_loss(void)
{
    if (!atomic_exchange(&has_lost, true))
        td_restart_report(TD_RESTART_LOSS);
}

/* --- ending all ranks ------------------------------------------------------------------------- */

/* a launcher that may start the ranks again must know why they end: it has only this code */
static int abort_code(int code)
{
    return atomic_load(&has_lost) && td_restart_is_possible() ? TD_EXIT_LOST : code ? code : 1;
}

/*
 * MPI_Finalize runs in a thread of its own, which is left alone when it does not return: MPICH 4.0
 * over UCX's TCP often hangs there, also after a single MPI_Barrier.
 */
static td_thread finalizer;
static int finalized_fd = -1;
static bool is_finalize_hung;

static void finalize(void *ctx)
{
    const uint64_t one = 1;
    const td_mpi_plugin *mpi = ctx;
    mpi->close();
    (void)!write(finalized_fd, &one, sizeof one);
}

/* a child that keeps the connection to MPICH's mpirun open until the other ranks have ended, too:
   mpirun kills them when it is closed before MPI_Finalize */
static void hold_mpirun(void)
{
    int64_t kept;
    const char *v = getenv("PMI_FD");
    if (!v || !td_text_to_int(v, &kept) || fork() != 0)
        return;
    for (int fd = 0; fd < FDS_MAX; fd++)
        if (fd != kept)
            (void)close(fd);
    const struct timespec while_ = { .tv_sec = HOLD_S };
    (void)nanosleep(&while_, NULL);
    _exit(0);
}

/* the libraries' own handlers must not run beside MPI_Finalize */
static _Noreturn void exit_without_finalize(int code)
{
    (void)fflush(NULL);
    hold_mpirun();
    _exit(code);
}

/* a process that exits without MPI_Finalize has failed: MPI ends the other ranks; srun would not */
static void abort_at_exit(int code, void *ctx)
{
    const td_mpi_plugin *mpi = ctx;
    if (is_finalize_hung)
        exit_without_finalize(code);
    if (!opened)
        return;
    (void)fflush(NULL);
    /* MPICH's mpirun drops output that it has not read when a rank aborts */
    const struct timespec moment = { .tv_nsec = OUTPUT_NS };
    (void)nanosleep(&moment, NULL);
    mpi->abort(abort_code(code));
}

/* by the watchdog: the thread that calls MPI does not come back */
static _Noreturn void end_now(const ranks *m)
{
    note_loss();
    if (m->world.is_concurrent)
        m->mpi->abort(abort_code(1));
    (void)raise(SIGKILL); /* mpirun ends the others */
    _exit(1);
}

static void watch(void *ctx)
{
    ranks *m = ctx;
    int64_t seen_ns = td_now_ns();
    struct pollfd w = { .fd = m->stop_fd, .events = POLLIN };
    while (poll(&w, 1, WATCH_MS) <= 0) {
        const int64_t now = td_now_ns(), alive = atomic_load(&m->alive_ns);
        const bool was_stopped = now - seen_ns > OWN_STOP_S * SECOND;
        seen_ns = now;
        if (was_stopped && alive)
            atomic_store(&m->alive_ns, now);
        else if (alive && now - alive > m->base.stall_ns) {
            td_log(TD_LOG_ERROR, "ranks", "%s: MPI has not returned for %.0f s: ending all ranks",
                   m->base.names[m->base.rank], (double)(now - alive) / (double)SECOND);
            end_now(m);
        }
    }
}

/* --- beats ------------------------------------------------------------------------------------ */

static void fail(ranks *m, int rank, const char *what)
{
    note_loss();
    td_transport_fail(&m->base, m->base.names[rank], what);
}

static void fail_with(ranks *m, const char *wrong)
{
    char what[TD_WHY_BYTES];
    snprintf(what, sizeof what, ": MPI: %s", wrong);
    fail(m, m->base.rank, what);
}

static void check_beats(ranks *m, int64_t now)
{
    const td_transport *t = &m->base;
    bool has_arrived, has_left;
    if (now - m->progress_ns > OWN_STOP_S * SECOND) /* this process was stopped */
        m->heard_ns = now;
    m->progress_ns = now;
    const bool is_due = now - m->beat_ns >= (int64_t)BEAT_MS * 1000000;
    m->beat_ns = is_due ? now : m->beat_ns;
    const char *wrong = m->mpi->beat(is_due, false, &has_arrived, &has_left);
    if (wrong)
        fail_with(m, wrong);
    m->heard_ns = has_arrived ? now : m->heard_ns;
    m->before_has_left = m->before_has_left || has_left;
    if (m->before_has_left || now - m->heard_ns < t->stall_ns)
        return;
    char what[80];
    snprintf(what, sizeof what, " has stopped responding: no message for %.0f s",
             (double)(now - m->heard_ns) / (double)SECOND);
    fail(m, (t->rank + t->size - 1) % t->size, what);
}

/* --- exchanges -------------------------------------------------------------------------------- */

static void begin(td_transport *t, const td_exchange *e)
{
    ranks *m = (ranks *)t;
    const char *wrong = m->mpi->begin(e);
    m->is_in_flight = !wrong;
    m->n_tests = 0;
    if (wrong)
        fail_with(m, wrong);
}

static bool is_busy(const td_transport *t)
{
    return ((const ranks *)t)->is_in_flight;
}

static void nap(int n_tests)
{
    const int64_t ns = (int64_t)NAP_NS * (n_tests - TESTS);
    const struct timespec while_ = { .tv_nsec = ns < NAP_MAX_NS ? ns : NAP_MAX_NS };
    if (ns > 0)
        (void)nanosleep(&while_, NULL);
}

static void test(ranks *m)
{
    bool is_done = false;
    const char *wrong = m->mpi->test(&is_done);
    m->is_in_flight = !is_done;
    if (wrong)
        fail_with(m, wrong);
    else if (!is_done)
        nap(++m->n_tests);
}

static void progress(td_transport *t, int ms)
{
    ranks *m = (ranks *)t;
    const int64_t until = td_now_ns() + (int64_t)ms * 1000000;
    int64_t now;
    do {
        now = td_now_ns();
        atomic_store(&m->alive_ns, now);
        if (m->is_in_flight)
            test(m);
        else
            td_transport_sleep(t, ms < IDLE_MS ? ms : IDLE_MS);
        check_beats(m, td_now_ns());
    } while (t->st == TD_OK && m->is_in_flight && now < until);
    if (t->st != TD_OK)
        atomic_store(&m->alive_ns, 0); /* the thread waits for the end of the run */
}

/* --- the end ---------------------------------------------------------------------------------- */

/* so that all ranks finalize MPI at one time; a rank that dies meanwhile is noticed by the next */
static void wait_for_all(ranks *m)
{
    bool is_done = false;
    const char *wrong = m->mpi->begin(&(td_exchange){ .kind = TD_EXCHANGE_BARRIER });
    while (!wrong && !is_done) {
        atomic_store(&m->alive_ns, td_now_ns());
        wrong = m->mpi->test(&is_done);
        nap(TESTS + 4);
    }
    if (wrong)
        fail_with(m, wrong);
}

/* no rank finalizes MPI before the one after it has heard that it leaves */
static void leave_in_peace(ranks *m)
{
    bool has_arrived, has_left;
    const char *wrong = m->mpi->beat(true, true, &has_arrived, &has_left);
    m->before_has_left = m->before_has_left || has_left;
    m->beat_ns = INT64_MAX / 2; /* no more beats */
    while (!wrong && m->base.st == TD_OK && !(m->before_has_left && m->mpi->is_quiet())) {
        atomic_store(&m->alive_ns, td_now_ns());
        check_beats(m, td_now_ns());
        nap(TESTS + 4);
    }
    if (wrong)
        fail_with(m, wrong);
    else if (m->base.st == TD_OK)
        wait_for_all(m);
}

static void leave(td_transport *t, const char *why)
{
    ranks *m = (ranks *)t;
    if (!why)
        leave_in_peace(m);
    if (!why && t->st != TD_OK) {
        td_log(TD_LOG_ERROR, "ranks", "%s", t->message);
        m->mpi->abort(abort_code(1));
    }
    atomic_store(&m->alive_ns, 0);
}

static void free_mpi(td_transport *t)
{
    ranks *m = (ranks *)t;
    const uint64_t one = 1;
    if (m->stop_fd >= 0)
        (void)!write(m->stop_fd, &one, sizeof one);
    td_thread_join(&m->watchdog);
    if (m->stop_fd >= 0)
        close(m->stop_fd);
    td_free(m);
}

void td_mpi_finalize(void)
{
    const td_mpi_plugin *mpi = opened;
    opened = NULL;
    if (!mpi)
        return;
    finalized_fd = is_mpich ? eventfd(0, EFD_CLOEXEC) : -1;
    if (finalized_fd < 0 ||
        td_thread_start(&finalizer, "finalizer", finalize, (void *)(uintptr_t)mpi) != TD_OK) {
        mpi->close();
        return;
    }
    struct pollfd w = { .fd = finalized_fd, .events = POLLIN };
    int n;
    while ((n = poll(&w, 1, FINALIZE_MS)) < 0 && errno == EINTR)
        ; /* a signal: the run has ended already */
    is_finalize_hung = n == 0;
    if (is_finalize_hung) {
        td_log(TD_LOG_WARN, "ranks", "MPI_Finalize has not returned for %d s: ending without it",
               FINALIZE_MS / 1000);
        return;
    }
    td_thread_join(&finalizer);
    close(finalized_fd);
}

/* --- opening ---------------------------------------------------------------------------------- */

static const td_transport_type mpi_type = {
    .can_sum = true,
    .begin = begin,
    .progress = progress,
    .is_busy = is_busy,
    .leave = leave,
    .free = free_mpi,
};

static td_status open_world(ranks *m, const td_rank_place *place)
{
    TD_TRY(td_mpi_plugin_load(place->by, &m->mpi));
    const char *wrong = m->mpi->open(&m->world);
    if (wrong)
        return td_error(TD_EDEVICE, "MPI: %s", wrong);
    td_log(TD_LOG_DEBUG, "ranks", "rank %d of %d is process %d, by %s", m->world.rank,
           m->world.size, (int)getpid(), m->world.library);
    if (m->world.rank != place->rank || m->world.size != place->size)
        return td_error(TD_EDEVICE,
                        "the environment names rank %d of %d, but %s has rank %d of %d: the ranks "
                        "were started for another MPI, by its mpirun or by srun with its --mpi",
                        place->rank, place->size, m->world.library, m->world.rank, m->world.size);
    if (!opened && on_exit(abort_at_exit, (void *)(uintptr_t)m->mpi) != 0)
        return TD_ENOMEM;
    opened = m->mpi;
    is_mpich = m->world.is_concurrent && strstr(m->world.library, "MPICH");
    return TD_OK;
}

td_status td_mpi_transport_open(const td_rank_place *place, const td_transport_opts *opts,
                                td_transport **out)
{
    ranks *m = TD_NEW(ranks);
    if (!m)
        return TD_ENOMEM;
    *out = &m->base;
    m->stop_fd = -1;
    TD_TRY(td_transport_init(&m->base, &mpi_type, place, opts));
    TD_TRY(open_world(m, place));
    m->beat_ns = m->heard_ns = m->progress_ns = td_now_ns();
    m->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->stop_fd < 0)
        return td_error_errno(TD_EIO, "ranks: cannot create an event descriptor");
    return td_thread_start(&m->watchdog, "watchdog", watch, m);
}
