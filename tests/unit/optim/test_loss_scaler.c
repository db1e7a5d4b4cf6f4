/*
 * test_loss_scaler.c -- the loss scale: every number of the published rules, and what options
 * choose
 */
#include "support/expect.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "optim/loss_scaler.h"

#define VARIABLE "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"

static td_scaler dynamic(td_scaler_rule set)
{
    td_scaler s;
    td_scaler_begin(&s, TD_SCALER_DYNAMIC, set, 0, 0);
    return s;
}

/* n good steps, none of which may be skipped */
static void good(td_scaler *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_false(td_scaler_step(s, true));
}

static void overflows(td_scaler *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(td_scaler_step(s, false));
}

/* one row a rule: where it starts, when it doubles, where it stops */
static void every_rule_has_its_numbers(void **state)
{
    (void)state;
    static const struct {
        td_scaler_rule set;
        double start;
        int interval;
        double floor, ceiling;
    } rows[] = {
        { TD_SCALER_TF, 32768, 2000, 1, 0x1p127 },
        { TD_SCALER_PYTORCH, 65536, 2000, 0x1p-126, 0x1p127 },
        { TD_SCALER_APEX, 65536, 2000, 0x1p-126, 0x1p24 },
        { TD_SCALER_NVIDIA, 1, 100, 0x1p-126, 0x1p127 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_scaler s = dynamic(rows[i].set);
        assert_true(s.scale == rows[i].start);
        good(&s, rows[i].interval - 1);
        assert_true(s.scale == rows[i].start);
        good(&s, 1);
        assert_true(s.scale == 2 * rows[i].start);
        overflows(&s, 1);
        assert_true(s.scale == rows[i].start);
        overflows(&s, 400);
        assert_true(s.scale == rows[i].floor);
        good(&s, (int64_t)rows[i].interval * 400);
        assert_true(s.scale == rows[i].ceiling);
    }
}

/* overflow at steps 1 and 2, then 2000 finite ones: the numbers of the TensorFlow rule */
static void the_worked_example(void **state)
{
    (void)state;
    td_scaler s = dynamic(TD_SCALER_TF);
    overflows(&s, 2);
    assert_true(s.scale == 8192);
    assert_int_equal(s.good_steps, 0);
    assert_int_equal(s.skipped, 2);
    assert_int_equal(s.skipped_in_row, 2);
    good(&s, 1999);
    assert_true(s.scale == 8192);
    assert_int_equal(s.good_steps, 1999);
    assert_int_equal(s.skipped_in_row, 0);
    good(&s, 1);
    assert_true(s.scale == 16384);
    assert_int_equal(s.good_steps, 0);
    assert_int_equal(s.skipped, 2);

    td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_TF, 1, 0);
    overflows(&s, 1);
    assert_true(s.scale == 1);
}

static void an_overflow_starts_the_count_again(void **state)
{
    (void)state;
    td_scaler s = dynamic(TD_SCALER_PYTORCH);
    good(&s, 1999);
    overflows(&s, 1);
    assert_int_equal(s.good_steps, 0);
    good(&s, 1999);
    assert_true(s.scale == 32768);
    good(&s, 1);
    assert_true(s.scale == 65536);
}

static void a_growth_at_the_end_of_the_range_starts_it_too(void **state)
{
    (void)state;
    td_scaler s;
    td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_TF, 0x1p127, 3);
    good(&s, 3);
    assert_true(s.scale == 0x1p127);
    assert_int_equal(s.good_steps, 0);
    td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_APEX, 0x1.8p23, 2);
    good(&s, 2);
    assert_true(s.scale == 0x1p24);
}

static void an_interval_of_ones_own(void **state)
{
    (void)state;
    td_scaler s;
    td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_TF, 4, 1);
    good(&s, 3);
    assert_true(s.scale == 32);
    assert_int_equal(s.interval, 1);
}

static void a_static_scale_skips_and_stays(void **state)
{
    (void)state;
    td_scaler s;
    td_scaler_begin(&s, TD_SCALER_STATIC, TD_SCALER_TF, 128, 1);
    good(&s, 5000);
    overflows(&s, 3);
    assert_true(s.scale == 128);
    assert_int_equal(s.skipped, 3);
    assert_int_equal(s.skipped_in_row, 3);
    good(&s, 1);
    assert_int_equal(s.skipped_in_row, 0);
}

static void no_scaling_skips_nothing(void **state)
{
    (void)state;
    td_scaler s;
    td_scaler_begin(&s, TD_SCALER_NONE, TD_SCALER_TF, 128, 1);
    assert_false(td_scaler_step(&s, false));
    assert_false(td_scaler_step(&s, true));
    assert_true(s.scale == 1 && s.skipped == 0 && s.good_steps == 0);
    assert_true(td_scaler_scale(&s) == 1 && td_scaler_inverse(&s) == 1);
}

static void scale_and_inverse_are_rounded_once(void **state)
{
    (void)state;
    td_scaler s;
    for (int e = -126; e <= 127; e++) {
        td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_PYTORCH, ldexp(1, e), 0);
        assert_true(td_scaler_scale(&s) * td_scaler_inverse(&s) == 1);
    }
    td_scaler_begin(&s, TD_SCALER_STATIC, TD_SCALER_TF, 1000.1, 0);
    assert_true(td_scaler_scale(&s) == 1000.1f);
    assert_true(td_scaler_inverse(&s) == (float)(1 / 1000.1));
}

static void a_checkpoint_s_scale_goes_on(void **state)
{
    (void)state;
    td_scaler saved = { .kind = TD_SCALER_DYNAMIC, .scale = 512, .good_steps = 7, .skipped = 9 };
    saved.skipped_in_row = 2;
    td_scaler s = dynamic(TD_SCALER_TF);
    td_scaler_resume(&s, &saved);
    assert_true(s.scale == 512);
    assert_int_equal(s.good_steps, 7);
    assert_int_equal(s.skipped, 9);
    assert_int_equal(s.skipped_in_row, 2);
    assert_int_equal(s.interval, 2000);

    /* a static one is what its option says, and one that only begins has its own start */
    td_scaler_begin(&s, TD_SCALER_STATIC, TD_SCALER_TF, 64, 0);
    td_scaler_resume(&s, &saved);
    assert_true(s.scale == 64);
    assert_int_equal(s.skipped, 9);
    saved.kind = TD_SCALER_NONE;
    s = dynamic(TD_SCALER_PYTORCH);
    td_scaler_resume(&s, &saved);
    assert_true(s.scale == 65536);
    assert_int_equal(s.good_steps, 0);
}

/* --- options ---------------------------------------------------------------------------------- */

typedef struct {
    double fixed;
    bool is_dynamic;
    td_loss_scaler scaler;
    bool is_deaf; /* float32 was asked for: the environment does not count */
} asked;

static td_scaler chosen(asked a, td_dtype half)
{
    td_train_opts o;
    td_scaler s;
    td_train_defaults(&o);
    o.loss_scaling.scale = a.fixed;
    o.loss_scaling.is_dynamic = a.is_dynamic;
    o.loss_scaling.scaler = a.scaler;
    td_scaler_choose(&o, half, !a.is_deaf, &s);
    return s;
}

static void expect_chosen(asked a, td_dtype half, td_scaler_kind kind, td_scaler_rule set,
                          double scale)
{
    td_scaler s = chosen(a, half);
    assert_string_equal(td_scaler_kind_name(s.kind), td_scaler_kind_name(kind));
    assert_int_equal(s.rule, set);
    assert_true(s.scale == scale);
}

static void options_choose(void **state)
{
    (void)state;
    unsetenv(VARIABLE);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 32768);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_BF16, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F32, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ 1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ 128, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_STATIC,
                  TD_SCALER_TF, 128);
    expect_chosen((asked){ 128, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F32, TD_SCALER_STATIC,
                  TD_SCALER_TF, 128);
    expect_chosen((asked){ -1, true, TD_LOSS_SCALER_AUTO, false }, TD_DT_BF16, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 32768);
    expect_chosen((asked){ 128, true, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 128);
    expect_chosen((asked){ 1, true, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_TF, false }, TD_DT_F32, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 32768);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_PYTORCH, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_PYTORCH, 65536);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_APEX, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_APEX, 65536);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_NVIDIA, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_NVIDIA, 1);
    expect_chosen((asked){ 128, false, TD_LOSS_SCALER_NVIDIA, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_NVIDIA, 128);
}

static void the_variable_decides_where_no_option_does(void **state)
{
    (void)state;
    setenv(VARIABLE, "0", 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ 128, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_STATIC,
                  TD_SCALER_TF, 128);
    expect_chosen((asked){ -1, true, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 32768);
    setenv(VARIABLE, "1", 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F32, TD_SCALER_DYNAMIC,
                  TD_SCALER_TF, 32768);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, true }, TD_DT_F32, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ 1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F16, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_BF16, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    setenv(VARIABLE, "", 1);
    expect_chosen((asked){ -1, false, TD_LOSS_SCALER_AUTO, false }, TD_DT_F32, TD_SCALER_NONE,
                  TD_SCALER_TF, 1);
    unsetenv(VARIABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_has_its_numbers),
        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(an_overflow_starts_the_count_again),
        cmocka_unit_test(a_growth_at_the_end_of_the_range_starts_it_too),
        cmocka_unit_test(an_interval_of_ones_own),
        cmocka_unit_test(a_static_scale_skips_and_stays),
        cmocka_unit_test(no_scaling_skips_nothing),
        cmocka_unit_test(scale_and_inverse_are_rounded_once),
        cmocka_unit_test(a_checkpoint_s_scale_goes_on),
        cmocka_unit_test(options_choose),
        cmocka_unit_test(the_variable_decides_where_no_option_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
