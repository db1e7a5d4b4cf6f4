/* test_process.c -- compute threads: how long they wait, how many there are, and where they run */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "support/expect.h"

#include "base/machine.h"
#include "runtime/process.h"
#include "tandem/loader.h"
#include "tandem/program.h"

static void teams_spin_as_long_as_waking_them_takes(void **state)
{
    (void)state;
    assert_int_equal(td_spin_count(1), 5000);
    assert_int_equal(td_spin_count(32), 5000);
    assert_int_equal(td_spin_count(64), 10000);
    assert_int_equal(td_spin_count(128), 20000);
    assert_int_equal(td_spin_count(4096), 20000);
    for (int n = 1; n < 256; n++)
        assert_true(td_spin_count(n) <= td_spin_count(n + 1));
}

static int threads_in(const char *a, const char *b)
{
    const char *const argv[] = { "tandem", "train", a, b, NULL };
    return td_threads_in(argv);
}

static void the_team_is_read_from_the_command_line(void **state)
{
    (void)state;
    assert_int_equal(threads_in("--threads", "64"), 64);
    assert_int_equal(threads_in("--threads=128", NULL), 128);
    assert_int_equal(threads_in("--threads", NULL), 0);
    assert_int_equal(threads_in("--threads=", NULL), 0);
    assert_int_equal(threads_in("--threads", "-3"), 0);
    assert_int_equal(threads_in("--threads", "99999999999999999999"), 0);
    assert_int_equal(threads_in("--threads", "12x"), 0);
    assert_int_equal(threads_in("--threadsX", "12"), 0);
    assert_int_equal(threads_in("-b", "12"), 0);
}

static void workers_leave_the_cores_to_the_network(void **state)
{
    static const struct {
        int processors, cores, workers;
    } rows[] = {
        { 1, 1, 1 },   { 2, 2, 2 },    { 2, 1, 2 },     { 4, 2, 4 },    { 8, 8, 8 },
        { 8, 4, 8 },   { 12, 12, 8 },  { 12, 6, 8 },    { 16, 16, 8 },  { 32, 16, 16 },
        { 32, 32, 8 }, { 64, 64, 16 }, { 128, 64, 64 }, { 96, 96, 24 }, { 128, 128, 32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(td_loader_workers(rows[i].processors, rows[i].cores), rows[i].workers);
}

static void cores_are_not_hardware_threads(void **state)
{
    (void)state;
    cpu_set_t all, one;
    const int n = td_core_count(), before = td_threads();
    assert_in_range(n, 1, td_cpu_count());
    assert_int_equal(td_core_share(1, 1), n);
    td_set_threads(0);
#ifdef _OPENMP
    assert_int_equal(td_threads(), n < omp_get_thread_limit() ? n : omp_get_thread_limit());
#else
    assert_int_equal(td_threads(), 1);
#endif
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(td_core_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    td_set_threads(before);
}

/* the processors of a topology's core */
static cpu_set_t set_of(const td_topology *t, int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < t->n; i++)
        if (t->cpus[i].at[TD_LEVEL_CORE] == t->cpus[0].at[TD_LEVEL_CORE] + core)
            CPU_SET((size_t)t->cpus[i].cpu, &set);
    return set;
}

static void threads_are_bound_but_not_what_the_first_starts(void **state)
{
    (void)state;
    td_topology t;
    cpu_set_t before, after, second, wanted;
    const int threads = td_threads();
    expect_ok(td_topology_here(&t));
    td_set_threads(2);
    if (td_topology_count(&t, TD_LEVEL_CORE) < 2 || !t.is_here || td_threads() < 2) {
        td_set_threads(threads);
        td_topology_release(&t);
        skip();
    }
    CPU_ZERO(&second);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_false(td_threads_are_bound()); /* two of two cores are too few to be sure */
    assert_int_equal(td_threads_bind(&t, 0, 2), 1);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1)
        (void)sched_getaffinity(0, sizeof second, &second);
#endif
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    wanted = set_of(&t, 1);
    assert_true(CPU_EQUAL(&before, &after));
    assert_true(CPU_EQUAL(&second, &wanted));
    td_set_threads(threads);
    td_topology_release(&t);
}

static void streams_share_the_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 128; threads++)
        for (int streams = 1; streams <= threads; streams++) {
            int sum = 0;
            for (int i = 0; i < streams; i++) {
                const int n = td_stream_threads(threads, streams, i);
                assert_in_range(n, threads / streams, threads / streams + 1);
                sum += n;
            }
            assert_int_equal(sum, threads);
        }
    assert_int_equal(td_stream_threads(2, 3, 2), 1); /* one at least */
    if (td_openmp_binds())
        skip();
    assert_int_equal(td_streams_for(1), 1);
    assert_int_equal(td_streams_for(15), 1);
    assert_int_equal(td_streams_for(16), 2);
    assert_int_equal(td_streams_for(128), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_spin_as_long_as_waking_them_takes),
        cmocka_unit_test(the_team_is_read_from_the_command_line),
        cmocka_unit_test(workers_leave_the_cores_to_the_network),
        cmocka_unit_test(cores_are_not_hardware_threads),
        cmocka_unit_test(streams_share_the_threads),
        cmocka_unit_test(threads_are_bound_but_not_what_the_first_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
