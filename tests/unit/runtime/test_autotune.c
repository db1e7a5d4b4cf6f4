/*
 * test_autotune.c -- kernels and layouts by measured times: taken where known, measured where asked
 *
 * Times are put into the cache by hand where a test is about what follows from them.
 */
#include "support/expect.h"

#include <stdio.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "ops/ops.h"
#include "runtime/device.h"
#include "runtime/kernel_choice.h"
#include "runtime/tune_cache.h"
#include "support/graphs.h"
#include "support/programs.h"
#include "support/scratch.h"

static const char network[] = "%x:f32[2,16,12,12] = input\n"
                              "%w:f32[32,16,3,3] = param {init=normal, scale=0.1}\n"
                              "%v:f32[32,32,1,1] = param {init=normal, scale=0.1}\n"
                              "%a = conv2d %x, %w {pad=1}\n"
                              "%r = relu %a\n"
                              "%b = conv2d %r, %v\n"
                              "%s = add %b, %r\n"
                              "output y = %s\n";

static float images[2 * 16 * 12 * 12];

static td_device *tuned(td_tune_mode mode, const char *path)
{
    td_device *dev;
    td_set_threads(1);
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_device_tune(dev, mode, path));
    return dev;
}

/* the network's results; free them */
static float *results(td_tune_mode mode, const char *path, char **graph)
{
    td_device *dev = tuned(mode, path);
    td_graph *g = td_test_graph(network);
    td_program *p;
    expect_ok(td_compile(g, dev, NULL, &p));
    expect_ok(td_program_init(p, 5));
    expect_ok(td_program_bind(p, "x", images));
    float *y = td_test_run(p, "y", NULL);
    if (graph)
        expect_ok(td_program_print(p, graph));
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
    return y;
}

static void what_is_measured_is_kept_and_used(void **state)
{
    (void)state;
    enum { N = 2 * 32 * 12 * 12 };
    char *first, *again, *bytes, *same;
    size_t n, n_same;
    const char *path = td_scratch_path("full.txt");
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(i % 13) - 6;
    float *plain = results(TD_TUNE_OFF, NULL, NULL);
    float *full = results(TD_TUNE_FULL, path, &first);
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    assert_non_null(strstr(bytes, " time "));
    float *cached = results(TD_TUNE_CACHED, path, &again);
    assert_string_equal(first, again);
    assert_memory_equal(full, cached, N * sizeof(float)); /* the same choices, the same bits */
    for (int i = 0; i < N; i++)
        assert_true(plain[i] - full[i] < 1e-3f && full[i] - plain[i] < 1e-3f);
    td_free(results(TD_TUNE_FULL, path, NULL)); /* nothing is missing: nothing is written */
    expect_ok(td_file_read(path, 1 << 20, &same, &n_same));
    assert_int_equal(n, n_same);
    assert_memory_equal(bytes, same, n);
    td_free(plain);
    td_free(full);
    td_free(cached);
    td_free(bytes);
    td_free(same);
    td_text_free(first);
    td_text_free(again);
}

static void cached_measures_nothing(void **state)
{
    (void)state;
    const char *path = td_scratch_path("never.txt");
    td_free(results(TD_TUNE_CACHED, path, NULL));
    assert_false(td_path_exists(path));
}

/* --- whichever is said to be the fastest ------------------------------------------------------ */

enum { ROOM = 8 };

static const char two_kernels[] =
    "%w:bf16[64,64,1,1]@ABcd8b16a2b = input\n"
    "%y:bf16[64,64,1,1]@BAcd8a16b2a = reorder %w {layout=BAcd8a16b2a}\n"
    "output y = %y\n";

static int kernels_of(const td_node *n, const td_kernel *out[ROOM])
{
    int count = 0;
    for (int b = 0; td_backend_at(b); b++)
        for (int k = 0; k < td_backend_at(b)->n_kernels && count < ROOM; k++)
            if (strcmp(td_backend_at(b)->name, "ref") != 0 &&
                td_backend_at(b)->kernels[k]->op == n->op &&
                td_backend_at(b)->kernels[k]->accepts(n) == TD_OK)
                out[count++] = td_backend_at(b)->kernels[k];
    return count;
}

/* the problem's name, from a file that `full` wrote: "NUMBER time KERNEL PROBLEM" */
static void read_names(const char *path, char machine[256], char problem[256])
{
    char *bytes;
    size_t n;
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    const char *time = strstr(bytes, " time ");
    assert_non_null(time);
    assert_int_equal(sscanf(strstr(bytes, "machine "), "machine %255[^\n]", machine), 1);
    assert_int_equal(sscanf(time, " time %*s %255[^\n]", problem), 1);
    td_free(bytes);
}

static void say_fastest(const char *path, int n, const td_kernel *const *kernels, int fastest)
{
    char machine[256], problem[256], key[600];
    td_tune_cache *c;
    read_names(path, machine, problem);
    expect_ok(td_tune_cache_open(path, machine, &c));
    for (int i = 0; i < n; i++) {
        (void)snprintf(key, sizeof key, "time %s %s", kernels[i]->name, problem);
        double had;
        assert_true(td_tune_cache_get(c, key, &had)); /* full has measured each of them */
        expect_ok(td_tune_cache_put(c, key, i == fastest ? 1e-6 : 1e-3));
    }
    expect_ok(td_tune_cache_save(c));
    td_tune_cache_free(c);
}

static void the_fastest_kernel_is_taken(void **state)
{
    (void)state;
    const td_kernel *k = NULL, *all[ROOM];
    const char *path = td_scratch_path("order.txt");
    td_graph *g = td_test_graph(two_kernels);
    const td_node *n = td_test_value(g, "y")->producer;
    const int count = kernels_of(n, all);
    td_device *dev = tuned(TD_TUNE_FULL, path);
    expect_ok(td_device_choose(dev, n, &k, NULL));
    assert_non_null(k);
    td_tune_save(dev->tuner);
    td_device_close(dev);
    if (count < 2)
        print_message("one kernel only on this processor: nothing to choose\n");
    for (int i = 0; i < count && count > 1; i++) {
        td_text why = { 0 };
        say_fastest(path, count, all, i);
        dev = tuned(TD_TUNE_CACHED, path);
        expect_ok(td_device_choose(dev, n, &k, &why));
        assert_ptr_equal(k, all[i]);
        assert_non_null(strstr(td_text_get(&why), "measured: "));
        td_text_release(&why);
        td_device_close(dev);
        dev = tuned(TD_TUNE_OFF, path);
        expect_ok(td_device_choose(dev, n, &k, NULL));
        assert_ptr_equal(k, td_device_select(dev, n, NULL));
        td_device_close(dev);
    }
    td_graph_free(g);
}

static void updates_and_labels_are_not_tried(void **state)
{
    (void)state;
    const td_kernel *k = (const td_kernel *)&k;
    td_device *dev = tuned(TD_TUNE_FULL, td_scratch_path("updates.txt"));
    td_graph *g = td_test_graph(td_test_training);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->writes || g->nodes[i]->op == &td_op_one_hot) {
            expect_ok(td_tune_choose(dev->tuner, g->nodes[i], &k, NULL));
            assert_null(k);
        }
    td_graph_free(g);
    td_device_close(dev);
}

static void a_training_step_can_be_tuned(void **state)
{
    (void)state;
    td_program *p;
    td_device *dev = tuned(TD_TUNE_FULL, td_scratch_path("training.txt"));
    td_graph *g = td_test_graph(td_test_training);
    expect_ok(td_compile(g, dev, NULL, &p));
    td_program_free(p);
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = "layout" }, &p));
    td_program_free(p);
    expect_ok(td_device_tune(dev, TD_TUNE_OFF, NULL));
    assert_null(dev->tuner);
    td_graph_free(g);
    td_device_close(dev);
}

static void the_reference_device_is_never_tuned(void **state)
{
    (void)state;
    td_device *dev;
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_device_tune(dev, TD_TUNE_FULL, td_scratch_path("ref.txt")));
    assert_null(dev->tuner);
    td_device_close(dev);
}

/* memory fails somewhere in between: an error, nothing lost, and the device goes on */
static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(network);
    for (long i = 1;; i += 7) {
        td_program *p = NULL;
        td_device *dev = tuned(TD_TUNE_FULL, td_scratch_path("memory.txt"));
        (void)remove(td_scratch_path("memory.txt"));
        td_alloc_fail_at(i);
        td_status st = td_compile(g, dev, NULL, &p);
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
        cmocka_unit_test(what_is_measured_is_kept_and_used),
        cmocka_unit_test(cached_measures_nothing),
        cmocka_unit_test(the_fastest_kernel_is_taken),
        cmocka_unit_test(updates_and_labels_are_not_tried),
        cmocka_unit_test(a_training_step_can_be_tuned),
        cmocka_unit_test(the_reference_device_is_never_tuned),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
