/*
 * test_crop.c -- DALI's and TensorFlow's crops; torchvision's are in test_augment.c
 *
 * Means and deviations come from tests/oracle/sample.py --crops 50000: TensorFlow's from
 * tf.image.sample_distorted_bounding_box, DALI's from its rules with NumPy's random numbers.
 */
#include <math.h>

#include "support/expect.h"

#include "transforms/crop.h"

enum { AREA, RATIO, X, Y, N_STATS, DRAWS = 50000 };

typedef struct {
    int width, height;
    double mean[N_STATS], deviation[N_STATS];
} expected;

static void compare(td_crop_rules rules, const expected *e)
{
    double sum[N_STATS] = { 0 }, square[N_STATS] = { 0 }, n = DRAWS;
    for (uint64_t i = 0; i < DRAWS; i++) {
        td_rng r = td_rng_make(1, TD_RNG_CROP, 0, i);
        td_box b = td_random_crop(rules, &r, e->width, e->height);
        assert_true(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0);
        assert_true(b.x + b.width <= e->width && b.y + b.height <= e->height);
        double v[N_STATS] = { (double)b.width * b.height / ((double)e->width * e->height),
                              log((double)b.width / b.height), (double)b.x / e->width,
                              (double)b.y / e->height };
        for (int k = 0; k < N_STATS; k++) {
            sum[k] += v[k];
            square[k] += v[k] * v[k];
        }
    }
    for (int k = 0; k < N_STATS; k++) {
        double mean = sum[k] / n, deviation = sqrt(square[k] / n - mean * mean);
        double room = 5 * e->deviation[k] * sqrt(2 / n); /* five standard errors */
        if (fabs(mean - e->mean[k]) > room || fabs(deviation - e->deviation[k]) > room)
            fail_msg("%d x %d, value %d: mean %g, deviation %g, wanted %g, %g", e->width, e->height,
                     k, mean, deviation, e->mean[k], e->deviation[k]);
    }
}

/* clang-format off */
static void dalis_are_distributed_as_theirs(void **state)
{
    (void)state;
    static const expected cases[] = {
        { 500, 375, { 0.43523, 0.03047, 0.21705, 0.13828 },
          { 0.21623, 0.16410, 0.16110, 0.13393 } },
        { 300, 700, { 0.26507, -0.03249, 0.12364, 0.33159 },
          { 0.11451, 0.16385, 0.11839, 0.19844 } },
        { 64, 64, { 0.48587, 0.00115, 0.16171, 0.16329 },
          { 0.23786, 0.15775, 0.14807, 0.14800 } },
        { 1000, 100, { 0.10023, 0.13338, 0.44657, 0.03346 },
          { 0.01561, 0.12474, 0.25875, 0.03923 } },
        { 9, 7, { 0.49833, 0.02739, 0.19334, 0.11925 },
          { 0.24212, 0.15871, 0.17495, 0.15241 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(TD_RULES_DALI, &cases[i]);
}

static void tensorflows_are_distributed_as_theirs(void **state)
{
    (void)state;
    static const expected cases[] = {
        { 500, 375, { 0.38871, 0.02942, 0.23444, 0.15746 },
          { 0.20854, 0.16405, 0.16599, 0.14104 } },
        { 300, 700, { 0.24327, 0.02151, 0.12573, 0.34153 },
          { 0.10109, 0.16416, 0.11337, 0.20207 } },
        { 64, 64, { 0.42620, 0.02534, 0.17381, 0.18127 },
          { 0.23097, 0.16397, 0.15156, 0.15332 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(TD_RULES_TF, &cases[i]);
}
/* clang-format on */

/* where no box can have 8 %, DALI does not try: all of the short side, ratio 4/3, random place */
static void dalis_impossible_cases(void **state)
{
    (void)state;
    int lowest = 100000, highest = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        td_rng r = td_rng_make(1, TD_RNG_CROP, 0, i);
        td_box b = td_random_crop(TD_RULES_DALI, &r, 4000, 30);
        assert_int_equal(b.width, 40);
        assert_int_equal(b.height, 30);
        lowest = b.x < lowest ? b.x : lowest;
        highest = b.x > highest ? b.x : highest;
        b = td_random_crop(TD_RULES_DALI, &r, 30, 4000);
        assert_int_equal(b.width, 30);
        assert_int_equal(b.height, 40);
        b = td_random_crop(TD_RULES_DALI, &r, 1, 1);
        assert_int_equal(b.width * b.height, 1);
        b = td_random_crop(TD_RULES_DALI, &r, 3, 1); /* no ratio fits: clamped */
        assert_true(b.width == 1 && b.height == 1);
    }
    assert_true(lowest < 30 && highest > 3930 && highest <= 3960);
}

static void tensorflows_leave_out_the_last_place_and_fall_back(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        td_rng r = td_rng_make(1, TD_RNG_CROP, 0, i);
        td_box b = td_random_crop(TD_RULES_TF, &r, 40, 30);
        assert_true(b.width == 40 || b.x < 40 - b.width);
        assert_true(b.height == 30 || b.y < 30 - b.height);
        assert_true(b.width * b.height >= 120); /* a tenth, though 5 % are asked for */
        b = td_random_crop(TD_RULES_TF, &r, 4000, 30);
        assert_true(b.x == 0 && b.y == 0 && b.width == 4000 && b.height == 30);
    }
}

static void evaluation_has_rules_too(void **state)
{
    (void)state;
    int w, h;
    td_short_side(TD_RULES_DALI, 501, 333, 256, 224, &w, &h); /* 385.15 */
    assert_true(w == 385 && h == 256);
    td_short_side(TD_RULES_DALI, 500, 375, 256, 224, &w, &h); /* 341.33 */
    assert_true(w == 341 && h == 256);
    td_short_side(TD_RULES_DALI, 100, 99, 256, 224, &w, &h); /* 258.59 */
    assert_true(w == 259 && h == 256);
    td_short_side(TD_RULES_TF, 100, 99, 256, 224, &w, &h);
    assert_true(w == 258 && h == 256);
    int n_below = 0; /* float32: 256 / 41 * 41 and its like are below 256 now and then */
    for (int side = 30; side < 600; side++) {
        td_short_side(TD_RULES_TF, side, side + 50, 256, 224, &w, &h);
        assert_true(w == 255 || w == 256);
        float scale = 256.0f / (float)side;
        assert_int_equal(w, (int)((float)side * scale));
        n_below += w == 255;
    }
    assert_true(n_below > 0);
    td_short_side(TD_RULES_TF, 41, 90, 224, 224, &w, &h);
    assert_true(w >= 224 && h >= 224);
    assert_int_equal(td_centre_crop(TD_RULES_TF, 341, 256, 224).x, 58);
    assert_int_equal(td_centre_crop(TD_RULES_DALI, 341, 256, 224).x, 59);
    assert_int_equal(td_centre_crop(TD_RULES_TORCHVISION, 341, 256, 224).x, 58);
    assert_int_equal(td_centre_crop(TD_RULES_TF, 259, 259, 224).x, 17);
    assert_int_equal(td_centre_crop(TD_RULES_DALI, 259, 259, 224).x, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dalis_are_distributed_as_theirs),
        cmocka_unit_test(tensorflows_are_distributed_as_theirs),
        cmocka_unit_test(dalis_impossible_cases),
        cmocka_unit_test(tensorflows_leave_out_the_last_place_and_fall_back),
        cmocka_unit_test(evaluation_has_rules_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
