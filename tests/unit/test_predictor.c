/*
 * test_predictor.c -- rows through kept programs: the same answers however they are cut
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "train/predictor.h"

enum { ROWS = 11, SIZE = 16, CLASSES = 5 };

static const size_t row_floats = (size_t)3 * SIZE * SIZE;

static td_predictor *open_one(const char *weights)
{
    td_predictor_opts o = { .weights = weights, .device = "cpu" };
    td_predictor *p;
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_ok(td_predictor_open(&o, &p));
    return p;
}

static const char *make_weights(void)
{
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = "resnet18";
    m.num_classes = CLASSES;
    m.image_size = SIZE;
    static char path[1024];
    snprintf(path, sizeof path, "%s", td_scratch_path("w.safetensors"));
    expect_ok(td_init_weights(&m, 3, path));
    return path;
}

static void every_cut_gives_the_same(void **state)
{
    static float images[ROWS * 3 * SIZE * SIZE], one[ROWS * CLASSES], cut[ROWS * CLASSES];
    static float logits[ROWS * CLASSES];
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)td_rng_normal(&r);
    td_predictor *p = open_one(make_weights());
    expect_error(td_predictor_run(p, images, 1, NULL, one), TD_EARG, "no program is kept");
    expect_ok(td_predictor_keep(p, 1));
    assert_int_equal(td_predictor_classes(p), CLASSES);
    assert_int_equal(td_predictor_transform(p)->size, SIZE);
    expect_ok(td_predictor_run(p, images, ROWS, logits, one));
    expect_ok(td_predictor_keep(p, 4));
    expect_ok(td_predictor_keep(p, 4)); /* is there */
    td_predictor_settle(p);
    expect_error(td_predictor_keep(p, 2), TD_EARG, "settled");
    for (int n = 1; n <= ROWS; n++) { /* padded, or 4 and 1 at a time once that is timed */
        memset(cut, 0, sizeof cut);
        expect_ok(td_predictor_run(p, images, n, NULL, cut));
        for (int i = 0; i < n * CLASSES; i++)
            assert_true(fabsf(cut[i] - one[i]) < 1e-5f);
        if (n == ROWS / 2)
            expect_ok(td_predictor_time(p));
    }
    for (int row = 0; row < ROWS; row++) {
        float sum = 0;
        for (int i = 0; i < CLASSES; i++)
            sum += one[row * CLASSES + i];
        assert_true(fabsf(sum - 1) < 1e-5f && isfinite(logits[row * CLASSES]));
    }
    char room[24];
    assert_string_equal(td_predictor_class_name(p, 4, room), "class 4");
    assert_string_equal(td_predictor_name(p), "resnet18");
    td_predictor_free(p);
    assert_true(row_floats * ROWS == sizeof images / sizeof *images);
}

static void failures_leave_nothing(void **state)
{
    td_predictor *p;
    td_predictor_opts o = { .device = "cpu" };
    (void)state;
    int64_t live = td_alloc_live();
    expect_error(td_predictor_open(&o, &p), TD_EUSAGE, "--weights");
    o.weights = "absent.safetensors";
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_error(td_predictor_open(&o, &p), TD_ENOTFOUND, "absent");
    assert_null(p);
    assert_int_equal(td_alloc_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
