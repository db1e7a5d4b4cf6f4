/*
 * test_multi_label.c -- mean average precision and F1 scores of several labels
 *
 * Expected numbers by the definitions; tests/oracle/multi_label.py compares with scikit-learn.
 */
#include "evaluation/multi_label.h"

#include <math.h>

#include "support/expect.h"

enum { N = 5, K = 3 };

static void scores_are_those_by_hand(void **state)
{
    (void)state;
    /* class 0 in order; class 1 with ties; class 2 has no image */
    static const float logits[N * K] = { 3, 1, -1, 2, 1, -2, 1, 0, -3, -1, 0, -4, -2, -1, 5 };
    static const uint8_t targets[N * K] = { 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0 };
    /* class 0: 1/2 * 1 + 1/2 * 2/3; class 1: 1/2 * 1/2 + 1/2 * 2/4 */
    const double ap0 = 0.5 + 1.0 / 3, ap1 = 0.5;
    td_label_scores classes[K];
    td_multi_scores s;
    expect_ok(td_multi_scores_compute(logits, targets, N, K, 0.5, classes, &s));
    assert_true(fabs(s.map - (ap0 + ap1 + 0) / 3) < 1e-12);
    assert_int_equal(s.n_absent, 1);
    /* predicted from a logit of 0: class 0 {0,1,2}, class 1 {0,1,2,3}, class 2 {4} */
    const double f0 = 2.0 * 2 / (3 + 2), f1 = 2.0 * 2 / (4 + 2);
    assert_true(fabs(s.macro_f1 - (f0 + f1 + 0) / 3) < 1e-12);
    assert_true(fabs(s.micro_f1 - 2.0 * 4 / (8 + 4)) < 1e-12);
    assert_true(fabs(classes[0].ap - ap0) < 1e-12 && fabs(classes[1].ap - ap1) < 1e-12);
    assert_true(fabs(classes[0].f1 - f0) < 1e-12 && fabs(classes[1].f1 - f1) < 1e-12);
    assert_true(classes[1].n_images == 2 && classes[1].n_predicted == 4 && classes[1].n_right == 2);
    assert_true(classes[2].n_images == 0 && classes[2].n_predicted == 1 && classes[2].ap == 0);
    /* from 0.7, a logit of 0.847: {0,1,2}, {0,1}, {4} */
    expect_ok(td_multi_scores_compute(logits, targets, N, K, 0.7, NULL, &s));
    assert_true(fabs(s.micro_f1 - 2.0 * 3 / (6 + 4)) < 1e-12);
}

static void nothing_is_zero(void **state)
{
    (void)state;
    static const float logits[2] = { -1, NAN };
    static const uint8_t targets[2] = { 0, 0 };
    td_multi_scores s;
    expect_ok(td_multi_scores_compute(logits, targets, 0, 1, 0.5, NULL, &s));
    assert_true(s.map == 0 && s.micro_f1 == 0);
    expect_ok(td_multi_scores_compute(logits, targets, 2, 1, 0.5, NULL, &s));
    assert_true(s.map == 0 && s.micro_f1 == 0 && s.macro_f1 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_by_hand),
        cmocka_unit_test(nothing_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
