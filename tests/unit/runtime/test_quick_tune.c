/*
 * test_quick_tune.c -- --tune quick: within its budget, the costliest first, the same bits
 *
 * A clock that the test moves decides how long the kernels take.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "runtime/device.h"
#include "runtime/kernel_timing.h"
#include "runtime/quick_tune.h"
#include "runtime/tune_cache.h"
#include "support/graphs.h"
#include "support/scratch.h"

#define COSTLIEST "f32[32,16,5,5]" /* the filter of the convolution with most multiplications */

static const char network[] = "%x:f32[4,16,32,32] = input\n"
                              "%t:f32[32,16,1,1] = param {init=normal, scale=0.1}\n"
                              "%u:f32[32,16,5,5] = param {init=normal, scale=0.1}\n"
                              "%v:f32[64,32,1,1] = param {init=normal, scale=0.1}\n"
                              "%w:f32[64,64,3,3] = param {init=normal, scale=0.1}\n"
                              "%d = conv2d %x, %t\n"
                              "%a = conv2d %x, %u {pad=2}\n"
                              "%s = add %a, %d\n"
                              "%b = conv2d %s, %v\n"
                              "%c = conv2d %b, %w {stride=2, pad=1}\n"
                              "output y = %c\n";

enum { N_IN = 4 * 16 * 32 * 32, N_OUT = 4 * 64 * 16 * 16 };

static int64_t fake_ns, step_ns; /* the clock, what each reading adds; 0: some number */

static int64_t fake_clock(void)
{
    static uint32_t x = 1;
    x = x * 1664525U + 1013904223U;
    return fake_ns += step_ns ? step_ns : 1000 + x % 100000;
}

static td_device *tuned(td_tune_mode mode, const char *path)
{
    td_device *dev;
    td_set_threads(2); /* with one thread there is one kernel for each convolution */
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_device_tune(dev, mode, path));
    if (dev->tuner)
        td_tuner_set_clock(dev->tuner, fake_clock);
    return dev;
}

static td_program *compiled(td_device *dev, int64_t runs)
{
    td_program *p;
    td_graph *g = td_test_graph(network);
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .planned_runs = runs }, &p));
    td_graph_free(g);
    return p;
}

/* compiles for so many runs; returns what the file holds then, NULL: there is none; free it */
static char *file_after(const char *path, int64_t runs, int64_t step)
{
    char *bytes = NULL;
    size_t n;
    step_ns = step;
    td_device *dev = tuned(TD_TUNE_QUICK, path);
    td_program_free(compiled(dev, runs));
    td_device_close(dev);
    if (td_path_exists(path))
        expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    return bytes;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

static bool has_choice(void)
{
    const td_kernel *list[TD_TIMING_KERNELS_MAX];
    int n = 0;
    td_device *dev = tuned(TD_TUNE_OFF, NULL);
    td_graph *g = td_test_graph(network);
    for (int i = 0; i < g->n_nodes; i++)
        if (td_node_is_timed(g->nodes[i]))
            n += td_timing_kernels(dev, g->nodes[i], list) > 1;
    td_graph_free(g);
    td_device_close(dev);
    if (!n)
        print_message("one kernel for each node: nothing to choose\n");
    return n > 0;
}

static void nothing_is_measured_for_few_runs(void **state)
{
    (void)state;
    const char *path = td_scratch_path("few.txt");
    assert_null(file_after(path, 0, 1000));
    assert_null(file_after(path, 1, 1000));
    assert_null(file_after(path, -5, 1000));
}

static void the_costliest_is_first(void **state)
{
    (void)state;
    if (!has_choice())
        return;
    char *bytes = file_after(td_scratch_path("order.txt"), INT64_MAX, 1000);
    const char *first = strstr(bytes, " quick ");
    assert_non_null(first);
    assert_int_equal(count(bytes, " time "), 0);
    const char *end = strchr(first, '\n');
    const char *at = strstr(first, COSTLIEST);
    assert_true(at && at < end);
    td_free(bytes);
}

/* 50 ms pass whenever the clock is read: the budget ends amid the network */
static void the_budget_ends_it_and_the_next_run_continues(void **state)
{
    (void)state;
    const int64_t slow = 50000000;
    const char *path = td_scratch_path("budget.txt");
    if (!has_choice())
        return;
    const int64_t began = fake_ns;
    char *some = file_after(path, INT64_MAX, slow);
    assert_in_range(fake_ns - began, slow, TD_QUICK_NS_MAX + 10 * slow);
    char *all = file_after(path, INT64_MAX, 1000);
    char *same = file_after(path, INT64_MAX, 1000);
    assert_in_range(count(some, " quick "), 2, count(all, " quick ") - 1);
    assert_string_equal(all, same); /* nothing is left to be measured */
    const char *key = strstr(some, " quick ");
    assert_true(strncmp(key, strstr(all, " quick "), 40) == 0); /* what was known is kept */
    td_free(some);
    td_free(all);
    td_free(same);
}

/* 3 % of 1000 runs of about 1 ms: less than a node takes at 10 ms for each reading of the clock */
static void the_planned_runs_limit_it(void **state)
{
    (void)state;
    if (!has_choice())
        return;
    const int64_t began = fake_ns;
    assert_null(file_after(td_scratch_path("share.txt"), 1000, 10000000));
    assert_in_range(fake_ns - began, 30000000, 300000000);
    char *bytes = file_after(td_scratch_path("share.txt"), 40000, 1000000);
    assert_in_range(count(bytes, " quick "), 2, 1000);
    td_free(bytes);
}

/* the spent time of all programs of a device counts */
static void a_device_has_one_budget(void **state)
{
    (void)state;
    const int64_t slow = 300000000;
    td_device *dev = tuned(TD_TUNE_QUICK, td_scratch_path("device.txt"));
    step_ns = slow;
    const int64_t began = fake_ns;
    for (int i = 0; i < 5; i++)
        td_program_free(compiled(dev, INT64_MAX));
    /* a started node ends at most three readings later; each compilation reads the clock too */
    assert_in_range(fake_ns - began, 0, TD_QUICK_NS_MAX + (10 + 5 * 6) * slow);
    step_ns = slow;
    const int64_t later = fake_ns;
    td_program_free(compiled(dev, INT64_MAX));
    assert_in_range(fake_ns - later, 0, slow); /* nothing but the time of the start */
    td_device_close(dev);
}

/* --- choices ---------------------------------------------------------------------------------- */

static void run(td_device *dev, const float *x, float *y)
{
    td_program *p = compiled(dev, INT64_MAX);
    expect_ok(td_program_init(p, 5));
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_run(p));
    memcpy(y, td_program_output(p, "y", NULL), N_OUT * sizeof *y);
    td_program_free(p);
}

/* whichever kernels seem to be the fastest */
static void results_keep_their_bits(void **state)
{
    (void)state;
    static float x[N_IN], off[N_OUT], y[N_OUT];
    for (int i = 0; i < N_IN; i++)
        x[i] = (float)(i * 7919 % 1013) / 500 - 1;
    td_device *dev = tuned(TD_TUNE_OFF, NULL);
    run(dev, x, off);
    td_device_close(dev);
    for (int i = 0; i < 4; i++) {
        char name[20];
        (void)snprintf(name, sizeof name, "bits%d.txt", i);
        step_ns = 0;
        dev = tuned(TD_TUNE_QUICK, td_scratch_path(name));
        run(dev, x, y);
        td_device_close(dev);
        assert_memory_equal(off, y, sizeof off);
    }
}

static const td_node *find_conv(const td_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (td_node_has_macs(g->nodes[i]))
            return g->nodes[i];
    return NULL;
}

/* times [count] of the kernels of n as a file would have them */
static const td_kernel *choose(const td_node *n, const td_kernel *const *list, int n_times,
                               const double *times)
{
    const td_kernel *k;
    td_tune_cache *cache;
    td_text key = { 0 }, why = { 0 };
    expect_ok(td_tune_cache_open("", "here", &cache));
    for (int i = 0; i < n_times; i++) {
        td_text_release(&key);
        td_text_add(&key, "quick %s ", list[i]->name);
        td_problem_print(n, &key);
        expect_ok(td_tune_cache_put(cache, td_text_get(&key), times[i]));
    }
    expect_ok(td_quick_choose(cache, n, list, 2, &k, &why));
    assert_true(!k == !why.len);
    td_text_release(&key);
    td_text_release(&why);
    td_tune_cache_free(cache);
    return k;
}

static void only_known_and_equal_kernels_are_chosen(void **state)
{
    (void)state;
    const td_kernel *list[TD_TIMING_KERNELS_MAX];
    if (!has_choice())
        return;
    td_device *dev = tuned(TD_TUNE_OFF, NULL);
    td_graph *g = td_test_graph(network);
    const td_node *n = find_conv(g);
    assert_true(td_timing_kernels(dev, n, list) >= 2);
    assert_ptr_equal(choose(n, list, 2, (double[]){ 2, 1 }), list[1]);
    assert_ptr_equal(choose(n, list, 2, (double[]){ 1, 2 }), list[0]);
    assert_ptr_equal(choose(n, list, 2, (double[]){ 1, 0.99 }), list[0]); /* too little */
    assert_ptr_equal(choose(n, list, 2, (double[]){ 2, 0 }), list[0]);    /* other bits */
    assert_null(choose(n, list, 1, (double[]){ 2 }));
    assert_null(choose(n, list, 0, NULL));
    /* a file that somebody has written */
    assert_ptr_equal(choose(n, list, 2, (double[]){ 2, -1 }), list[0]);
    assert_ptr_equal(choose(n, list, 2, (double[]){ 2, NAN }), list[0]);
    assert_ptr_equal(choose(n, list, 2, (double[]){ 2, INFINITY }), list[0]);
    assert_null(choose(n, list, 2, (double[]){ NAN, 1 }));
    assert_null(choose(n, list, 2, (double[]){ -1, -2 }));
    td_graph_free(g);
    td_device_close(dev);
}

/* ranks take what is stored: they have the same bits anyway */
static void several_ranks_measure_nothing(void **state)
{
    (void)state;
    char nobody; /* a communicator that is never used */
    const char *path = td_scratch_path("ranks.txt");
    td_device *dev;
    td_set_threads(2);
    expect_ok(td_device_open("cpu", &dev));
    dev->comm = (td_comm *)(void *)&nobody;
    expect_ok(td_device_tune(dev, TD_TUNE_QUICK, path));
    assert_null(dev->tuner); /* there is no file */
    dev->comm = NULL;
    td_device_close(dev);
    assert_false(td_path_exists(path));
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(network);
    step_ns = 1000;
    for (long i = 1;; i += 11) {
        td_program *p = NULL;
        td_device *dev = tuned(TD_TUNE_QUICK, td_scratch_path("memory.txt"));
        (void)remove(td_scratch_path("memory.txt"));
        td_alloc_fail_at(i);
        td_status st = td_compile(g, dev, &(td_compile_opts){ .planned_runs = INT64_MAX }, &p);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        td_program_free(p);
        td_device_close(dev);
        if (st == TD_OK)
            break;
        assert_in_range(i, 1, 100000);
    }
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_measured_for_few_runs),
        cmocka_unit_test(the_costliest_is_first),
        cmocka_unit_test(the_budget_ends_it_and_the_next_run_continues),
        cmocka_unit_test(the_planned_runs_limit_it),
        cmocka_unit_test(a_device_has_one_budget),
        cmocka_unit_test(results_keep_their_bits),
        cmocka_unit_test(only_known_and_equal_kernels_are_chosen),
        cmocka_unit_test(several_ranks_measure_nothing),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
