/*
 * test_weights.c -- names of weights in files, and files that a program does not take
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "tandem/graph.h"
#include "train/weights.h"

static void names_lose_what_wrappers_put_before_them(void **state)
{
    static const char *const rows[][2] = {
        { "conv1.weight", "conv1.weight" },
        { "module.conv1.weight", "conv1.weight" },
        { "module.1.conv1.weight", "conv1.weight" },
        { "1.weight", "1.weight" }, /* of a network of one's own */
        { "module.11.weight", "11.weight" },
        { "ema.module.1.fc.bias", "ema.fc.bias" },
        { "ema.1.fc.bias", "ema.1.fc.bias" },
        { "layers.0.0.conv1.weight", "layer1.0.conv1.weight" },
        { "module.layers.3.1.squeeze.expand.weight", "layer4.1.se.fc2.weight" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[256];
        td_weight_name(rows[i][0], name);
        assert_string_equal(name, rows[i][1]);
    }
}

enum { CLASSES = 3, FEATURES = 2 };

/* y = w x + b */
static td_program *linear_program(td_device *dev)
{
    td_program *p;
    td_graph *g;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", td_type_of(TD_DT_F32, 2, (int64_t[]){ 1, FEATURES }));
    td_value *w = td_param(b, "fc.weight", TD_DT_F32, 2, (int64_t[]){ CLASSES, FEATURES }, "");
    td_value *bias = td_param(b, "fc.bias", TD_DT_F32, 1, (int64_t[]){ CLASSES }, "");
    td_output(b, "y", td_linear(b, x, w, bias));
    expect_ok(td_build_end(b, &g));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    return p;
}

static td_tensors *file_of(const float w[CLASSES * FEATURES], const float bias[CLASSES],
                           const char *prefix)
{
    td_tensors *t;
    char name[64];
    expect_ok(td_tensors_new(&t));
    snprintf(name, sizeof name, "%sfc.weight", prefix);
    expect_ok(td_tensors_add(t, name, TD_DT_F32, 2, (int64_t[]){ CLASSES, FEATURES }, w));
    snprintf(name, sizeof name, "%sfc.bias", prefix);
    expect_ok(td_tensors_add(t, name, TD_DT_F32, 1, (int64_t[]){ CLASSES }, bias));
    return t;
}

static void what_is_no_number_is_refused(void **state)
{
    static const float none[CLASSES * FEATURES] = { 0 };
    const float wild[] = { NAN, INFINITY, -INFINITY, 3.4e38f, -1e-45f, 0 };
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    for (int i = 0; i < 6; i++) {
        float w[] = { 1, 2, 3, 4, 5, 6 }, bias[] = { 7, 8, 9 }, found[CLASSES * FEATURES];
        td_program *p = linear_program(dev);
        const td_load_opts o = { 0 };
        bias[2] = wild[i];
        td_tensors *t = file_of(w, bias, "");
        expect_ok(td_program_set(p, "fc.weight", none));
        if (i < 3) {
            expect_error(
                td_weights_check(t, "a.file", &o, p), TD_EARG,
                "'a.file': tensor 'fc.bias' has 1 values that are no finite numbers, of 3");
            expect_error(td_weights_load(t, "a.file", &o, p), TD_EARG, "tensor 'fc.bias' has 1");
        } else {
            expect_ok(td_weights_check(t, "a.file", &o, p));
        }
        expect_ok(td_program_get(p, "fc.weight", found));
        assert_memory_equal(found, none, sizeof none); /* nothing was set */
        if (i >= 3) {
            expect_ok(td_weights_load(t, "a.file", &o, p));
            expect_ok(td_program_get(p, "fc.weight", found));
            assert_memory_equal(found, w, sizeof w);
        }
        td_tensors_free(t);
        td_program_free(p);
    }
    td_device_close(dev);
}

static void averages_are_checked_without_being_set(void **state)
{
    const float w[] = { 1, 2, 3, 4, 5, 6 }, bias[] = { 7, 8, 9 };
    const float none[CLASSES * FEATURES] = { 0 };
    float found[CLASSES * FEATURES];
    const td_load_opts ema = { .use_ema = true };
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    td_program *p = linear_program(dev);
    expect_ok(td_program_set(p, "fc.weight", none));
    td_tensors *t = file_of(w, bias, "");
    expect_error(td_weights_check(t, "a.file", &ema, p), TD_EFORMAT, "has no averaged weights");
    td_tensors_free(t);
    t = file_of(w, bias, "ema.");
    expect_ok(td_weights_check(t, "a.file", &ema, p));
    expect_ok(td_program_get(p, "fc.weight", found));
    assert_memory_equal(found, none, sizeof none);
    td_tensors_free(t);
    td_program_free(p);
    td_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_lose_what_wrappers_put_before_them),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(averages_are_checked_without_being_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
