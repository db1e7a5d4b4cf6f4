/*
 * test_schedule.c -- learning rates by step, as the TensorFlow programs have them; those by epoch
 * are judged by golden.lr
 */
#include "support/expect.h"

#include <math.h>

#include "train/schedule.h"

/* 4 steps an epoch, 2 epochs of warm-up, 100 epochs: numbers worked out by hand */
static const td_lr_opts base = { .schedule = TD_LR_STEP, .lr = 0.256, .warmup = 2, .epochs = 100 };

static void expect_lr(const td_lr_opts *o, int64_t t, int64_t batch, double wanted)
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

static void the_rate_is_for_256_pictures(void **state)
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
    td_lr_opts o = base;
    o.schedule = TD_LR_COSINE;
    expect_lr(&o, 4, 256, 0.128);
    expect_lr(&o, 8, 256, 0.256 * 0.5 * (1 + cos(acos(-1) * 8 / 400)));
    expect_lr(&o, 200, 256, 0.128);
    expect_lr(&o, 400, 256, 0);
    expect_lr(&o, 500, 256, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_begins_at_zero),
        cmocka_unit_test(the_rate_is_for_256_pictures),
        cmocka_unit_test(steps_fall_behind_their_boundaries),
        cmocka_unit_test(the_cosine_begins_with_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
