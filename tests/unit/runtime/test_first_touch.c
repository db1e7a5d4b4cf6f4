/* test_first_touch.c -- threads touch their shares of the parameters first: page faults */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "support/expect.h"
#include "support/graphs.h"

#include "tandem/program.h"

enum { THREADS = 4, MIB = 64, HUGE_MIB = 2 };

/* the page faults so far of each thread of a team, which need no reading from a disk */
static void count_faults(long faults[THREADS])
{
#ifdef _OPENMP
#pragma omp parallel num_threads(THREADS)
    {
        struct rusage u;
        faults[omp_get_thread_num()] = getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_minflt : -1;
    }
#else
    (void)faults;
#endif
}

/* an update of a parameter of 64 MiB, which is zero at first, as is its momentum buffer */
static td_graph *make_graph(void)
{
    char text[400];
    (void)snprintf(text, sizeof text,
                   "%%w:f32[%d,1024] = param {init=zeros}\n"
                   "%%v:f32[%d,1024] = param {init=zeros, role=momentum}\n"
                   "%%lr:f32[] = input\n"
                   "%%l = mean %%w\n"
                   "%%d = gradient %%l, %%w\n"
                   "sgd %%w, %%v, %%d, %%lr {momentum=0.9}\n"
                   "output l = %%l\n",
                   MIB * 256, MIB * 256);
    return td_test_graph(text);
}

static void threads_touch_their_shares(void **state)
{
    (void)state;
#ifdef _OPENMP
    long start[THREADS] = { 0 }, compiled[THREADS] = { 0 }, filled[THREADS] = { 0 };
    const int before = td_threads();
    td_set_threads(THREADS);
    if (td_threads() < THREADS) { /* OMP_THREAD_LIMIT */
        td_set_threads(before);
        skip();
    }
    td_graph *g = make_graph();
    td_device *dev;
    td_program *p;
    expect_ok(td_device_open("cpu", &dev));
    count_faults(start);
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    count_faults(compiled);
    expect_ok(td_program_init(p, 1));
    count_faults(filled);

    /* pages are huge, or there are many more */
    const long share = (long)(2 * MIB / HUGE_MIB / THREADS) * 3 / 4;
    for (int t = 1; t < THREADS; t++)
        assert_true(compiled[t] - start[t] >= share);
    /* all are there: to fill them costs the first thread nothing */
    assert_true(filled[0] - compiled[0] < MIB / HUGE_MIB / THREADS);

    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    td_set_threads(before);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_touch_their_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
