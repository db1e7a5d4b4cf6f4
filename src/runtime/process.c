/*
 * process.c -- sets up the process before other code runs: standard files, OpenMP's wait policy,
 * file size limits; sets the number of compute threads and binds them
 *
 * Waiting.  A thread of libgomp that waits, at a barrier or for the next parallel region, tests a
 * word in memory GOMP_SPINCOUNT times, with a pause instruction in between (25 to 40 ns each), then
 * sleeps in a futex.  Its default is 300,000 (about 10 ms), or 1,000 if the process has more
 * threads than processors; OMP_WAIT_POLICY=passive sets 0, active 30 billion.  While another
 * process has a thread's core, everything that spins takes processor time from it, so the default
 * costs a factor of three on shared cores.  Without any spinning each of the 450 regions of a
 * ResNet-50 step ends with a sleep and a wake-up.  To spin for as long as sleeping and waking take
 * is never worse than twice the best choice.  The thread that ends a barrier wakes the others one
 * after the other, 1 to 2 us each, so that is:
 *
 *     threads          up to 32    64        128
 *     GOMP_SPINCOUNT   5,000       10,000    20,000
 *     time             0.13 ms     0.25 ms   0.5 ms
 *
 * 5,000 is longer than the gap between two kernels and shorter than another process's time slice.
 * The number of threads is that of --threads on the command line, or one per core.
 * OMP_WAIT_POLICY and GOMP_SPINCOUNT of the user are kept.
 *
 * libgomp reads GOMP_SPINCOUNT in its constructor, before main, so setting it in main is too late
 * for this process image; exec restarts the process.
 *
 * Binding.  With OMP_PROC_BIND libgomp binds the initial thread to its place before main.  Whatever
 * this thread starts would inherit that, and one processor would be counted, so the thread gets all
 * places back.  Without variables that begin with OMP_, threads are bound when each core has one:
 * see td_set_threads.  With fewer threads than cores other processes may compute here, too, and
 * all would be bound to the first cores.
 */
#include "runtime/process.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/arena.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "io/atomic.h"
#include "tandem/program.h"

#define MARK "TANDEM_STARTED" /* set before exec, so that there is only one */

/* --- waiting ---------------------------------------------------------------------------------- */

int td_spin_count(int threads)
{
    enum { LEAST = 5000, TEAM = 32, MOST = 20000 };
    const int64_t n = (int64_t)LEAST * threads / TEAM;
    return n < LEAST ? LEAST : n > MOST ? MOST : (int)n;
}

int td_threads_in(const char *const *argv)
{
    static const char option[] = "--threads";
    const size_t n = sizeof option - 1;
    int64_t threads = 0;
    for (int i = 0; argv[i]; i++) {
        if (strncmp(argv[i], option, n) != 0 || (argv[i][n] && argv[i][n] != '='))
            continue;
        const char *value = argv[i][n] ? argv[i] + n + 1 : argv[i + 1];
        if (!value || !td_text_to_int(value, &threads) || threads < 0 || threads > TD_CPUS_MAX)
            threads = 0;
    }
    return (int)threads;
}

/* the topology is read only if it could matter */
static int team_of(char *const *argv)
{
    enum { SMALL = 32 };
    const int threads = td_threads_in((const char *const *)argv), processors = td_cpu_count();
    return threads ? threads : processors <= SMALL ? processors : td_core_count();
}

/* --- threads ---------------------------------------------------------------------------------- */

/* gives the initial thread all processors that libgomp distributes its threads over */
static void leave_first_place(void)
{
#if defined _OPENMP && _OPENMP >= 201511
    cpu_set_t *set = omp_get_num_places() > 0 ? CPU_ALLOC(TD_CPUS_MAX) : NULL;
    const size_t bytes = CPU_ALLOC_SIZE(TD_CPUS_MAX);
    if (!set)
        return;
    CPU_ZERO_S(bytes, set);
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int n = omp_get_place_num_procs(place);
        int *ids = td_alloc((size_t)(n > 0 ? n : 1), sizeof *ids);
        if (ids)
            omp_get_place_proc_ids(place, ids);
        for (int i = 0; ids && i < n; i++)
            if (ids[i] >= 0 && ids[i] < TD_CPUS_MAX)
                CPU_SET_S((size_t)ids[i], bytes, set);
        td_free(ids);
    }
    (void)sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
#endif
}

static atomic_bool are_bound;

bool td_threads_are_bound(void)
{
    return atomic_load(&are_bound);
}

/* the processors of cores [first, end) */
static td_binding cores_of(const td_topology *t, int first, int end)
{
    td_binding b = { 0 };
    for (int i = 0, k = -1, last = -1; i < t->n; i++) {
        k += t->cpus[i].at[TD_LEVEL_CORE] != last;
        last = t->cpus[i].at[TD_LEVEL_CORE];
        if (k >= first && k < end)
            b.cpus[b.n++] = t->cpus[i].cpu;
    }
    return b;
}

int td_threads_bind(const td_topology *t, int first, int n)
{
    atomic_int bound = 0;
#ifdef _OPENMP
#pragma omp parallel num_threads(n)
    if (omp_get_thread_num() > 0) {
        const int core = first + omp_get_thread_num();
        const td_binding b = cores_of(t, core, core + 1);
        if (b.n > 0 && td_topology_bind(t, &b) == TD_OK)
            atomic_fetch_add(&bound, 1);
    }
#else
    (void)t;
    (void)first;
    (void)n;
#endif
    return bound;
}

extern char **environ;

static bool has_openmp_variable(void)
{
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "OMP_", 4) == 0 || strncmp(*e, "GOMP_CPU_AFFINITY=", 18) == 0)
            return true;
    return false;
}

#define BIND_CORES_MIN                                                                             \
    8 /* with few cores, a thread that must wait for another process's costs most */

/* once for each number of threads; not for those of a kernel's preparation */
static void bind_if_alone(int n)
{
    static atomic_int considered;
    td_topology t;
    if (n < BIND_CORES_MIN || atomic_exchange(&considered, n) == n || has_openmp_variable() ||
        td_core_count() != n)
        return;
    if (td_topology_here(&t) != TD_OK) {
        td_error_clear();
        return;
    }
    if (t.is_here && td_topology_count(&t, TD_LEVEL_CORE) == n)
        atomic_store(&are_bound, td_threads_bind(&t, 0, n) == n - 1);
    td_topology_release(&t);
}

void td_process_setup(char **argv)
{
    char count[16];
    td_standard_files_open(); /* first, because the next open would get their descriptor numbers */
    td_signals_ignore_file_limit();
    td_signals_tidy(td_atomic_remove_all);
    leave_first_place();
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv(MARK))
        return;
    snprintf(count, sizeof count, "%d", td_spin_count(team_of(argv)));
    if (setenv("GOMP_SPINCOUNT", count, 1) != 0 || setenv(MARK, "1", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* returns only on failure: the process continues */
}

void td_set_threads(int n)
{
#ifdef _OPENMP
    td_threads_use(n > 0 ? n : td_core_count());
    bind_if_alone(td_threads());
#else
    (void)n;
#endif
}

static _Thread_local int parts = 1;

void td_threads_use(int n)
{
    parts = 1;
#ifdef _OPENMP
    omp_set_num_threads(n);
    td_threads_keep_limit();
#else
    (void)n;
#endif
}

void td_threads_divide(int n)
{
    td_threads_use(1);
    parts = n;
}

int td_threads_parts(void)
{
    return parts;
}

void td_threads_keep_limit(void)
{
#ifdef _OPENMP
    omp_set_dynamic(0);
    if (omp_get_max_threads() > omp_get_thread_limit())
        omp_set_num_threads(omp_get_thread_limit());
#endif
}

int td_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* --- streams ---------------------------------------------------------------------------------- */

int td_stream_threads(int threads, int streams, int i)
{
    const int n = threads / streams + (i < threads % streams);
    return n > 1 ? n : 1;
}

int td_streams_for(int threads)
{
    enum { EACH = 8 };
    const int n = td_openmp_binds() ? 1 : threads / EACH;
    return n > 1 ? n : 1;
}

bool td_openmp_binds(void)
{
#ifdef _OPENMP
    return omp_get_proc_bind() != omp_proc_bind_false;
#else
    return false;
#endif
}

/* the caller and its team; a failure leaves them unbound, which costs time only */
static void bind_stream(int first, int n)
{
    td_topology t;
    if (td_topology_here(&t) != TD_OK) {
        td_error_clear();
        return;
    }
    const td_binding all = cores_of(&t, first, first + n);
    (void)td_threads_bind(&t, first, n);
    if (all.n == 0 || td_topology_bind(&t, &all) != TD_OK)
        td_error_clear();
    td_topology_release(&t);
}

void td_stream_enter(int threads, int streams, int i)
{
    const int n = td_stream_threads(threads, streams, i);
    int first = 0;
    for (int k = 0; k < i; k++)
        first += td_stream_threads(threads, streams, k);
    td_threads_use(n);
    if (i > 0 && td_threads_are_bound())
        bind_stream(first, n);
}
