/*
 * test_micro_batch.c -- programs that compute a batch a few rows at a time, and how many
 */
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "ir/type.h"
#include "runtime/micro_batch.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { ROWS = 6, SIDE = 8, ROW = 3 * SIDE * SIDE, CLASSES = 5 };

static const char text[] = "%%images:f32[%d,3,8,8] = input\n"
                           "%%labels:i64[%d] = input\n"
                           "%%w:f32[16,3,3,3] = param {init=normal, scale=0.3}\n"
                           "%%fc:f32[5,16] = param {init=uniform, scale=0.25}\n"
                           "%%fc_bias:f32[5] = param {init=uniform, scale=0.25}\n"
                           "%%a = conv2d %%images, %%w {pad=1}\n"
                           "%%r = relu %%a\n"
                           "%%g = global_avg_pool %%r\n"
                           "%%y = linear %%g, %%fc, %%fc_bias\n"
                           "%%t = one_hot %%labels {classes=5}\n"
                           "%%l = softmax_cross_entropy %%y, %%t\n"
                           "output y = %%y\n"
                           "output again = %%y\n"
                           "output losses = %%l\n";

static float images[ROWS * ROW];
static const int64_t labels[ROWS] = { 4, 3, 2, 1, 0, 2 };

static td_graph *graph_of(int batch)
{
    char room[sizeof text + 32];
    snprintf(room, sizeof room, text, batch, batch);
    return td_test_graph(room);
}

static td_program *compiled_in_lanes(td_device *dev, int rows, int micro_batches, int lanes)
{
    td_program *p;
    td_graph *g = graph_of(rows);
    const td_compile_opts o = { .micro_batches = micro_batches, .lanes = lanes };
    expect_ok(td_compile(g, dev, &o, &p));
    td_graph_free(g);
    expect_ok(td_program_init(p, 7));
    return p;
}

static td_program *compiled(td_device *dev, int rows, int micro_batches)
{
    return compiled_in_lanes(dev, rows, micro_batches, 0);
}

static void run(td_program *p)
{
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_run(p));
}

/* the kernels of `ref` compute each row alike in any batch */
static void expect_equal(td_program *p, td_program *whole, const char *output, int64_t columns)
{
    td_type type, wanted;
    const float *found = td_program_output(p, output, &type);
    const float *all = td_program_output(whole, output, &wanted);
    assert_true(td_type_same_shape(&type, &wanted));
    assert_int_equal(type.dim[0], ROWS);
    assert_memory_equal(found, all, (size_t)(ROWS * columns) * sizeof *found);
}

static void a_batch_is_computed_in_parts(void **state)
{
    td_device *dev;
    (void)state;
    for (int i = 0; i < ROWS * ROW; i++)
        images[i] = (float)((i * 37) % 101) / 50 - 1;
    expect_ok(td_device_open("ref", &dev));
    td_program *whole = compiled(dev, ROWS, 0);
    run(whole);
    assert_int_equal(td_program_micro_batches(whole), 1);
    for (int rows = 1; rows < ROWS; rows++) {
        if (ROWS % rows)
            continue;
        td_program *p = compiled(dev, rows, ROWS / rows);
        assert_int_equal(td_program_micro_batches(p), ROWS / rows);
        for (int again = 0; again < 2; again++) {
            run(p);
            expect_equal(p, whole, "y", CLASSES);
            expect_equal(p, whole, "again", CLASSES);
            expect_equal(p, whole, "losses", 1);
        }
        for (int i = 0; i < td_program_node_count(p); i++)
            assert_int_equal(td_program_node(p, i).macs, td_program_node(whole, i).macs);
        assert_int_equal(td_program_run_count(p), 2);
        td_program_free(p);
    }
    td_program_free(whole);
    td_device_close(dev);
}

static void expect_all_equal(td_program *p, td_program *whole)
{
    expect_equal(p, whole, "y", CLASSES);
    expect_equal(p, whole, "again", CLASSES);
    expect_equal(p, whole, "losses", 1);
}

/* each of several threads computes its own parts; parameters that are set again are set for all */
static void lanes_compute_their_parts(void **state)
{
    td_device *dev;
    const int threads = td_threads();
    (void)state;
    expect_ok(td_device_open("ref", &dev));
    td_program *whole = compiled(dev, ROWS, 0);
    run(whole);
    for (int lanes = 2; lanes <= ROWS; lanes++) {
        if (ROWS % lanes)
            continue;
        td_program *p = compiled_in_lanes(dev, 1, ROWS, lanes);
        assert_int_equal(td_program_lanes(p), lanes);
        assert_int_equal(td_program_micro_batches(p), ROWS);
        for (int again = 0; again < 2; again++) {
            run(p);
            expect_all_equal(p, whole);
        }
        expect_ok(td_program_init(p, 8));
        run(p);
        expect_ok(td_program_init(p, 7));
        run(p);
        expect_all_equal(p, whole);
        for (int i = 0; i < td_program_node_count(p); i++)
            assert_int_equal(td_program_node(p, i).macs, td_program_node(whole, i).macs);
        expect_ok(td_program_release_params(p));
        run(p);
        expect_all_equal(p, whole);
        assert_int_equal(td_threads(), threads);
        td_program_free(p);
    }
    td_program_free(whole);
    td_device_close(dev);
}

static void count_result(void *ctx, const td_observation *o)
{
    *(int *)ctx += strcmp(o->name, "y") == 0;
}

/* an observer, which belongs to one thread, sees every part once */
static void lanes_are_observed_in_turn(void **state)
{
    td_device *dev;
    int n = 0;
    (void)state;
    expect_ok(td_device_open("ref", &dev));
    td_program *whole = compiled(dev, ROWS, 0), *p = compiled_in_lanes(dev, 1, ROWS, 2);
    run(whole);
    td_program_observe(p, count_result, &n);
    run(p);
    assert_int_equal(n, ROWS);
    td_program_observe(p, NULL, NULL);
    expect_all_equal(p, whole);
    td_program_free(p);
    td_program_free(whole);
    td_device_close(dev);
}

static void lanes_that_fail_say_so(void **state)
{
    td_device *dev;
    td_program *p = NULL;
    td_graph *g = graph_of(1);
    td_compile_opts o = { .micro_batches = ROWS, .lanes = 4 };
    (void)state;
    expect_ok(td_device_open("ref", &dev));
    expect_error(td_compile(g, dev, &o, &p), TD_EARG,
                 "6 micro-batches cannot be divided among 4 threads");
    assert_null(p);
    o.lanes = 3;
    td_status st = TD_ENOMEM;
    for (int i = 1; st == TD_ENOMEM; i++) {
        td_alloc_fail_at(i);
        st = td_compile(g, dev, &o, &p);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK ? p != NULL : p == NULL);
    }
    expect_ok(st);
    expect_ok(td_program_init(p, 7));
    expect_ok(td_program_bind(p, "images", images));
    expect_error(td_program_run(p), TD_EARG, "input 'labels' was never bound");
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
}

/* the time of a run is that of all its parts */
static void the_profile_counts_all_parts(void **state)
{
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("ref", &dev));
    td_program *p = compiled(dev, 1, ROWS);
    run(p);
    td_program_profile(p, true);
    run(p);
    for (int i = 0; i < td_program_node_count(p); i++) {
        const td_span last = td_program_span(p, i);
        const double run_s = td_program_run_s(p, i),
                     last_s = 1e-9 * (double)(last.end_ns - last.begin_ns);
        assert_true(run_s == td_program_node(p, i).seconds);
        assert_true(run_s == 0 || run_s > last_s);
    }
    run(p);
    for (int i = 0; i < td_program_node_count(p); i++)
        if (td_program_run_s(p, i) > 0)
            assert_true(td_program_run_s(p, i) < td_program_node(p, i).seconds);
    td_program_free(p);
    td_device_close(dev);
}

static void an_input_must_be_bound(void **state)
{
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    td_program *p = compiled(dev, 2, 3);
    expect_ok(td_program_bind(p, "images", images));
    expect_error(td_program_run(p), TD_EARG, "input 'labels' was never bound");
    td_program_free(p);
    td_device_close(dev);
}

static void what_has_no_rows_is_refused(void **state)
{
    td_device *dev;
    td_program *p;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    td_graph *g = td_test_graph("%x:f32[4,8] = input\n"
                                "%s = sum %x\n"
                                "output s = %s\n");
    expect_error(td_compile(g, dev, &(td_compile_opts){ .micro_batches = 2 }, &p), TD_EARG,
                 "no rows for micro-batches");
    assert_null(p);
    td_graph_free(g);
    td_device_close(dev);
}

/* 32 images, each of which a convolution reads and writes 64 x 16 x 16 floats */
static td_graph *large_graph(int outputs)
{
    char room[256];
    snprintf(room, sizeof room,
             "%%x:f32[32,64,16,16] = input\n"
             "%%w:f32[64,1,3,3] = param\n"
             "%%y = conv2d %%x, %%w {groups=64, pad=1}\n"
             "output y = %%y\n%s",
             outputs > 1 ? "%s = sum %y\noutput s = %s\n" : "");
    return td_test_graph(room);
}

static void the_largest_part_that_fits_is_chosen(void **state)
{
    const int64_t image = (int64_t)2 * 64 * 16 * 16 * 4;
    td_graph *g = large_graph(1), *mixed = large_graph(2);
    (void)state;
    assert_int_equal(td_micro_batch(g, 32, 32, 4 * image, 2), 4);
    assert_int_equal(td_micro_batch(g, 32, 32, 7 * image, 2), 4); /* a divisor of the batch */
    assert_int_equal(td_micro_batch(g, 32, 32, 8 * image, 2), 8);
    assert_int_equal(td_micro_batch(g, 32, 32, 32 * image, 2), 32);
    assert_int_equal(td_micro_batch(g, 32, 32, 4 * image, 8), 32); /* not one for each thread */
    assert_int_equal(td_micro_batch(g, 32, 32, 0, 1), 32);         /* nothing is known */
    assert_int_equal(td_micro_batch(mixed, 32, 32, 4 * image, 2), 32);
    td_graph_free(g);
    td_graph_free(mixed);
}

static void expect_division(const td_graph *g, int64_t cache, int64_t larger, int threads, int rows,
                            int lanes)
{
    const int64_t caches[] = { cache, larger };
    const td_batch_division d = td_micro_batch_of(g, 32, caches, 2, threads);
    assert_int_equal(d.rows, rows);
    assert_int_equal(d.lanes, lanes);
}

static void the_smallest_cache_that_divides_is_used(void **state)
{
    const int64_t image = (int64_t)2 * 64 * 16 * 16 * 4;
    td_graph *g = large_graph(1);
    (void)state;
    expect_division(g, image, 16 * image, 16, 16, 1); /* not one for each thread */
    expect_division(g, image, image, 16, 32, 1);
    expect_division(g, 4 * image, 8 * image, 1, 4, 1);
    expect_division(g, 32 * image, 32 * image, 16, 32, 1);
    td_graph_free(g);
}

static void threads_with_some_images_get_lanes(void **state)
{
    const int64_t image = (int64_t)2 * 64 * 16 * 16 * 4;
    td_graph *g = large_graph(1), *mixed = large_graph(2);
    (void)state;
    expect_division(g, image, 8 * image, 2, 8, 2); /* one is too few to be read with all weights */
    expect_division(g, 4 * image, 8 * image, 2, 4, 2);
    expect_division(g, 32 * image, 32 * image, 2, 16, 2);
    expect_division(g, 32 * image, 32 * image, 8, 4, 8);
    expect_division(g, 32 * image, 32 * image, 3, 32, 1); /* not even */
    expect_division(mixed, 4 * image, 8 * image, 2, 32, 1);
    td_graph_free(g);
    td_graph_free(mixed);
}

static void large_weights_are_read_once(void **state)
{
    td_graph *g = td_test_graph("%x:f32[32,1024] = input\n"
                                "%w:f32[1024,1024] = param\n"
                                "%y = linear %x, %w\n"
                                "output y = %y\n");
    (void)state;
    assert_int_equal(td_micro_batch(g, 32, 32, 8 * 2 * 1024 * 4, 2), 32);
    expect_division(g, 1 << 30, 1 << 30, 2, 32, 1);
    td_graph_free(g);
}

/* 4224 bytes of parameters, results of 2048 bytes for an image; the residual is read, too */
static void residuals_count_as_activations(void **state)
{
    static const char *const sums[] = { "%b", "%b, %x" };
    static const int rows[] = { 4, 2 };
    const int64_t image = (int64_t)2 * 32 * 4 * 4 * 4;
    (void)state;
    for (int i = 0; i < 2; i++) {
        char graph[256];
        snprintf(graph, sizeof graph,
                 "%%x:f32[4,32,4,4] = input\n%%w:f32[32,32,1,1] = param\n"
                 "%%b:f32[32] = param\n%%y = conv2d_fused %%x, %%w, %s\noutput y = %%y\n",
                 sums[i]);
        td_graph *g = td_test_graph(graph);
        assert_int_equal(td_micro_batch(g, 4, 4, 2 * image, 2), rows[i]);
        td_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_computed_in_parts),
        cmocka_unit_test(lanes_compute_their_parts),
        cmocka_unit_test(lanes_are_observed_in_turn),
        cmocka_unit_test(lanes_that_fail_say_so),
        cmocka_unit_test(the_profile_counts_all_parts),
        cmocka_unit_test(an_input_must_be_bound),
        cmocka_unit_test(what_has_no_rows_is_refused),
        cmocka_unit_test(the_largest_part_that_fits_is_chosen),
        cmocka_unit_test(the_smallest_cache_that_divides_is_used),
        cmocka_unit_test(threads_with_some_images_get_lanes),
        cmocka_unit_test(large_weights_are_read_once),
        cmocka_unit_test(residuals_count_as_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
