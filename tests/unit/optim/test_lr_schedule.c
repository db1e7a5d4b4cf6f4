/*
 * test_lr_schedule.c -- learning rates by step, as the TensorFlow programs have them; those by
 * epoch are evaluated by golden.lr
 */
#include "support/expect.h"

#include <math.h>

#include "optim/lr_schedule.h"

/* 4 steps an epoch, 2 epochs of warm-up, 100 epochs: numbers worked out by hand */
static const td_lr_curve base = { .schedule = TD_LR_STEP, .lr = 0.256, .warmup = 2, .epochs = 100 };

static void expect_lr(const td_lr_curve *o, int64_t t, int64_t batch, double wanted)
{
    const double found = td_lr_at_step(o, t, 4, batch);
    if (!(fabs(found - wanted) <= 1e-15))
        fail_msg("step %lld: %.17g, wanted %.17g", (long long)t, found, wanted);
}

static void warm_up_begins_at_zero(void **state)
{
    (void)state;
    expect_lr(&base, 0, 256, 0);
    expect_lr(&base, 1, 256, 0.032);
    expect_lr(&base, 7, 256, 0.224);
    expect_lr(&base, 8, 256, 0.256);
}

static void the_rate_is_for_256_images(void **state)
{
    (void)state;
    expect_lr(&base, 8, 64, 0.064);
    expect_lr(&base, 8, 2048, 2.048);
}

/* a step equal to a boundary has the old value still */
static void steps_fall_behind_their_boundaries(void **state)
{
    (void)state;
    expect_lr(&base, 120, 256, 0.256);
    expect_lr(&base, 121, 256, 0.0256);
    expect_lr(&base, 240, 256, 0.0256);
    expect_lr(&base, 241, 256, 0.00256);
    expect_lr(&base, 321, 256, 0.000256);
    expect_lr(&base, 360, 256, 0.000256);
    expect_lr(&base, 361, 256, 0.0000256);
}

/* the cosine counts from step 0: at the end of the warm-up it has fallen already */
static void the_cosine_begins_with_the_run(void **state)
{
    (void)state;
    td_lr_curve o = base;
    o.schedule = TD_LR_COSINE;
    expect_lr(&o, 4, 256, 0.128);
    expect_lr(&o, 8, 256, 0.256 * 0.5 * (1 + cos(acos(-1) * 8 / 400)));
    expect_lr(&o, 200, 256, 0.128);
    expect_lr(&o, 400, 256, 0);
    expect_lr(&o, 500, 256, 0);
}

/* --- the detectors' rules --------------------------------------------------------------------- */

static void ssd300_warms_up_from_zero_and_falls_with_the_epoch(void **state)
{
    (void)state;
    td_lr_steps o = { .lr = 2.6e-3, .warmup = 300 };
    expect_ok(td_lr_drops_parse("43,54", &o.drops));
    assert_true(td_lr_ssd300(&o, 0, 0) == 0);
    assert_true(fabs(td_lr_ssd300(&o, 150, 0) - 1.3e-3) < 1e-15);
    assert_true(td_lr_ssd300(&o, 300, 0) == 2.6e-3);
    assert_true(td_lr_ssd300(&o, 99999, 42) == 2.6e-3);
    assert_true(fabs(td_lr_ssd300(&o, 99999, 43) - 2.6e-4) < 1e-15);
    assert_true(fabs(td_lr_ssd300(&o, 99999, 54) - 2.6e-5) < 1e-15);
    o.warmup = 0;
    assert_true(td_lr_ssd300(&o, 0, 0) == 2.6e-3);
}

/* PyTorch's LinearLR from a thousandth, then MultiStepLR or CosineAnnealingLR by epoch */
static void torchvision_warms_up_by_step_and_falls_by_epoch(void **state)
{
    (void)state;
    const td_lr_steps o = { .lr = 0.01, .begin = 1e-5, .warmup = 1000 };
    td_lr_drops drops;
    expect_ok(td_lr_drops_parse("16,22", &drops));
    td_lr_curve curve = { .schedule = TD_LR_STEP, .lr = 0.01, .epochs = 26, .drops = &drops };
    assert_true(td_lr_torchvision(&o, &curve, 0, 0) == 1e-5);
    assert_true(fabs(td_lr_torchvision(&o, &curve, 500, 0) - 0.005005) < 1e-15);
    assert_true(td_lr_torchvision(&o, &curve, 1000, 0) == 0.01);
    assert_true(td_lr_torchvision(&o, &curve, 99999, 15) == 0.01);
    assert_true(fabs(td_lr_torchvision(&o, &curve, 99999, 16) - 1e-3) < 1e-15);
    assert_true(fabs(td_lr_torchvision(&o, &curve, 99999, 22) - 1e-4) < 1e-15);
    curve.schedule = TD_LR_COSINE;
    assert_true(fabs(td_lr_torchvision(&o, &curve, 99999, 13) - 0.005) < 1e-15);
}

static void ssd320_without_warm_up_is_a_cosine(void **state)
{
    (void)state;
    const td_lr_steps o = { .lr = 0.02, .begin = 0.0086664, .steps = 100 };
    assert_true(td_lr_ssd320(&o, 0) == 0.02);
    assert_true(fabs(td_lr_ssd320(&o, 50) - 0.01) < 1e-15);
    assert_true(td_lr_ssd320(&o, 100) == 0);
    assert_true(td_lr_ssd320(&o, 1000) == 0);
}

static void falls_are_rising_epochs(void **state)
{
    (void)state;
    static const char *const bad[] = { ",",  "43,", "43,43", "54,43",
                                       "-1", "4x",  "1 2",   "99999999999" };
    td_lr_drops o;
    expect_ok(td_lr_drops_parse("", &o));
    assert_int_equal(o.n, 0);
    expect_ok(td_lr_drops_parse("0,7,100", &o));
    assert_int_equal(o.n, 3);
    assert_int_equal(o.epochs[2], 100);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(td_lr_drops_parse(bad[i], &o), TD_EUSAGE);
    td_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ssd300_warms_up_from_zero_and_falls_with_the_epoch),
        cmocka_unit_test(torchvision_warms_up_by_step_and_falls_by_epoch),
        cmocka_unit_test(ssd320_without_warm_up_is_a_cosine),
        cmocka_unit_test(falls_are_rising_epochs),
        cmocka_unit_test(warm_up_begins_at_zero),
        cmocka_unit_test(the_rate_is_for_256_images),
        cmocka_unit_test(steps_fall_behind_their_boundaries),
        cmocka_unit_test(the_cosine_begins_with_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
