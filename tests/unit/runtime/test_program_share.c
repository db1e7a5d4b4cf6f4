/*
 * test_program_share.c -- programs that share parameters, setup results and activations: one set of
 * bytes, the same results, any order of freeing, and what is released
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/graphs.h"
#include "tandem/program.h"

enum { SIDE = 16, MOST = 4, ROW = 3 * SIDE * SIDE, WEIGHT = 64 * 64 * 9 };

static const char text[] = "%%images:f32[%d,3,16,16] = input\n"
                           "%%stem:f32[64,3,3,3] = param {init=normal, scale=0.3}\n"
                           "%%w:f32[64,64,3,3] = param {init=normal, scale=0.1}\n"
                           "%%gamma:f32[64] = param {init=ones}\n"
                           "%%beta:f32[64] = param {init=uniform, scale=0.5}\n"
                           "%%mean:f32[64] = param {role=stat, init=uniform, scale=0.5}\n"
                           "%%var:f32[64] = param {role=stat, init=ones}\n"
                           "%%fc:f32[5,64] = param {init=uniform, scale=0.25}\n"
                           "%%fc_bias:f32[5] = param {init=uniform, scale=0.25}\n"
                           "%%a = conv2d %%images, %%stem {pad=1}\n"
                           "%%r = relu %%a\n"
                           "%%b = conv2d %%r, %%w {pad=1}\n"
                           "%%n = batch_norm_infer %%b, %%gamma, %%beta, %%mean, %%var\n"
                           "%%s = relu %%n\n"
                           "%%g = global_avg_pool %%s\n"
                           "%%y = linear %%g, %%fc, %%fc_bias\n"
                           "output y = %%y\n";

static float images[MOST * ROW];

static td_graph *graph_of(int batch)
{
    char room[sizeof text + 16];
    snprintf(room, sizeof room, text, batch);
    return td_test_graph(room);
}

static td_status try(td_device *dev, int batch, const char *skip, td_program *share,
                     td_program **out)
{
    td_graph *g = graph_of(batch);
    td_status st = td_compile(g, dev, &(td_compile_opts){ .skip = skip, .share = share }, out);
    td_graph_free(g);
    return st;
}

static td_program *compiled(td_device *dev, int batch, const char *skip, td_program *share)
{
    td_program *p;
    expect_ok(try(dev, batch, skip, share, &p));
    return p;
}

/* the first row of the results */
static void run(td_program *p, float y[5])
{
    td_type t;
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_run(p));
    memcpy(y, td_program_output(p, "y", &t), 5 * sizeof *y);
    assert_int_equal(t.dim[1], 5);
}

static void expect_same(const float a[5], const float b[5])
{
    assert_memory_equal(a, b, 5 * sizeof *a);
}

static void draw_images(void)
{
    for (int i = 0; i < MOST * ROW; i++)
        images[i] = (float)sin(0.37 * i);
}

typedef struct {
    td_device *dev;
    td_program *first, *second, *alone; /* batches of 4 and, shared or not, 1 */
    float y[5];                         /* of `alone` */
} fixture;

/* `skip`: of the second program */
static fixture opened(const char *device, const char *skip)
{
    fixture f = { 0 };
    draw_images();
    expect_ok(td_device_open(device, &f.dev));
    f.alone = compiled(f.dev, 1, skip, NULL);
    expect_ok(td_program_init(f.alone, 7));
    run(f.alone, f.y);
    f.first = compiled(f.dev, MOST, NULL, NULL);
    f.second = compiled(f.dev, 1, skip, f.first);
    return f;
}

static void release(fixture *f)
{
    td_program_free(f->second);
    td_program_free(f->first);
    td_program_free(f->alone);
    td_device_close(f->dev);
}

static double setup_seconds(const td_program *p)
{
    double sum = 0;
    for (int i = 0; i < td_program_node_count(p); i++) {
        const td_node_report r = td_program_node(p, i);
        sum += r.is_setup ? r.seconds : 0;
    }
    return sum;
}

/* --- sharing ---------------------------------------------------------------------------------- */

static void two_programs_have_one_set(const char *device)
{
    float y[5], changed[5], w[5 * 64] = { 0 };
    fixture f = opened(device, NULL);
    const td_memory_report one = td_program_memory(f.first), two = td_program_memory(f.second);
    assert_true(one.shared_bytes == 0 && !one.shares_activations);
    assert_true(two.param_bytes > 0 && two.shared_bytes == two.param_bytes);
    assert_true(two.shares_activations && two.activation_bytes <= one.activation_bytes);
    assert_true(two.held_bytes == one.held_bytes && one.held_bytes < one.param_bytes + 4096);

    expect_ok(td_program_init(f.first, 7)); /* of both */
    for (int i = 0; i < td_program_param_count(f.second); i++)
        assert_true(td_program_param_is_set(f.second, i));
    td_program_profile(f.first, true);
    td_program_profile(f.second, true);
    run(f.second, y); /* the second one runs the setup of both */
    expect_same(y, f.y);
    run(f.first, y);
    for (int i = 0; i < 5; i++)
        assert_true(fabsf(y[i] - f.y[i]) < 1e-4f);
    assert_true(setup_seconds(f.second) > 0 && setup_seconds(f.first) == 0);

    expect_ok(td_program_set(f.second, "fc", w)); /* seen by both */
    run(f.first, y);
    run(f.second, changed);
    expect_same(y, changed);
    release(&f);
}

static void equal_values_exist_once(void **state)
{
    (void)state;
    two_programs_have_one_set("cpu");
    two_programs_have_one_set("ref");
    assert_int_equal(setenv("TANDEM_GUARD_MEMORY", "1", 1), 0);
    two_programs_have_one_set("cpu");
    assert_int_equal(unsetenv("TANDEM_GUARD_MEMORY"), 0);
}

static void another_layout_is_not_shared(void **state)
{
    float y[5];
    (void)state;
    fixture f = opened("cpu", "fold,fuse,winograd,layout");
    const td_memory_report two = td_program_memory(f.second);
    assert_true(two.shared_bytes > 0 && two.shared_bytes < two.param_bytes);
    expect_ok(td_program_init(f.first, 7));
    for (int i = 0; i < td_program_param_count(f.second); i++)
        if (!td_program_param_is_set(f.second, i))
            expect_ok(td_program_init(f.second, 7));
    run(f.first, y);
    run(f.second, y);
    expect_same(y, f.y);
    release(&f);
}

/* a program whose slab is larger than that of the first has its own */
static void a_larger_program_has_its_own_activations(void **state)
{
    float y[5];
    td_device *dev;
    (void)state;
    draw_images();
    expect_ok(td_device_open("cpu", &dev));
    td_program *small = compiled(dev, 1, NULL, NULL), *large = compiled(dev, MOST, NULL, small);
    assert_false(td_program_memory(large).shares_activations);
    expect_ok(td_program_init(large, 7));
    run(large, y);
    run(small, y);
    td_program_free(large);
    td_program_free(small);
    td_device_close(dev);
}

static void programs_are_freed_in_any_order(void **state)
{
    (void)state;
    for (int is_first = 0; is_first < 2; is_first++) {
        float y[5];
        const int64_t live = td_alloc_live();
        fixture f = opened("cpu", NULL);
        expect_ok(td_program_init(f.second, 7));
        run(f.second, y);
        td_program_free(is_first ? f.first : f.second);
        run(is_first ? f.second : f.first, y);
        if (is_first)
            expect_same(y, f.y);
        *(is_first ? &f.first : &f.second) = NULL;
        release(&f);
        assert_int_equal(td_alloc_live(), live);
    }
}

/* --- releasing -------------------------------------------------------------------------------- */

static void what_no_run_reads_is_released(const char *guard)
{
    static float w[WEIGHT];
    float y[5];
    td_program *third;
    assert_int_equal(setenv("TANDEM_GUARD_MEMORY", guard, 1), 0);
    fixture f = opened("cpu", NULL);
    expect_ok(td_program_init(f.first, 7));
    const int64_t held = td_program_memory(f.first).held_bytes;
    assert_int_equal(td_program_memory(f.first).releasable_bytes, sizeof w);
    expect_ok(td_program_release_params(f.first));
    assert_int_equal(td_program_memory(f.first).releasable_bytes, 0);
    assert_int_equal(td_program_memory(f.second).held_bytes, held); /* the second one has not */
    assert_int_equal(td_program_memory(f.first).released_bytes, WEIGHT * sizeof(float));
    expect_ok(td_program_get(f.second, "w", w));
    expect_ok(td_program_release_params(f.second));
    expect_ok(td_program_release_params(f.second)); /* again: nothing is left to do */
    assert_true(td_program_memory(f.first).held_bytes <= held - (int64_t)sizeof w);
    run(f.second, y);
    expect_same(y, f.y);
    run(f.first, y);
    run(f.second, y);
    expect_same(y, f.y);
    expect_error(td_program_get(f.first, "w", w), TD_EARG, "'w' was released");
    expect_error(td_program_set(f.first, "w", w), TD_EARG, "'w' was released");
    expect_error(td_program_set(f.second, "fc_bias", w), TD_EARG, "'fc_bias' cannot change");
    expect_error(td_program_init(f.second, 1), TD_EARG, "cannot change");
    expect_ok(td_program_get(f.second, "fc_bias", w));
    expect_error(try(f.dev, 2, NULL, f.first, &third), TD_EARG, "were released");
    assert_null(third);
    release(&f);
    assert_int_equal(unsetenv("TANDEM_GUARD_MEMORY"), 0);
}

static void parameters_are_released(void **state)
{
    (void)state;
    what_no_run_reads_is_released("0");
    what_no_run_reads_is_released("1");
}

/* --- errors ----------------------------------------------------------------------------------- */

static void programs_that_cannot_share_say_why(void **state)
{
    td_device *cpu, *ref;
    td_program *training, *p;
    (void)state;
    expect_ok(td_device_open("cpu", &cpu));
    expect_ok(td_device_open("ref", &ref));
    td_graph *g = td_test_graph(td_test_training);
    expect_ok(td_compile(g, cpu, NULL, &training));
    expect_error(try(cpu, 1, NULL, training, &p), TD_EARG, "changes its parameters");
    expect_error(try(ref, 1, NULL, training, &p), TD_EARG, "different devices");
    td_program_free(training);
    td_program *first = compiled(cpu, 1, NULL, NULL);
    expect_error(td_compile(g, cpu, &(td_compile_opts){ .share = first }, &p), TD_EARG,
                 "changes its parameters");
    td_program_free(first);
    td_graph_free(g);
    td_device_close(cpu);
    td_device_close(ref);
}

static void nothing_is_lost_without_memory(void **state)
{
    td_device *dev;
    td_program *p;
    (void)state;
    td_graph *g = graph_of(1);
    expect_ok(td_device_open("ref", &dev));
    for (int64_t n = 1, is_done = 0; !is_done; n += n < 40 ? 1 : 7) {
        const int64_t live = td_alloc_live();
        td_program *first = compiled(dev, MOST, NULL, NULL);
        td_alloc_fail_at(n);
        const td_status st = td_compile(g, dev, &(td_compile_opts){ .share = first }, &p);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        is_done = st == TD_OK;
        td_program_free(first);
        td_program_free(p);
        assert_int_equal(td_alloc_live(), live);
    }
    td_graph_free(g);
    td_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values_exist_once),
        cmocka_unit_test(another_layout_is_not_shared),
        cmocka_unit_test(a_larger_program_has_its_own_activations),
        cmocka_unit_test(programs_are_freed_in_any_order),
        cmocka_unit_test(parameters_are_released),
        cmocka_unit_test(programs_that_cannot_share_say_why),
        cmocka_unit_test(nothing_is_lost_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
