/*
 * test_golden_averages.c -- averages of weights by torchvision's rule (tests/oracle/averages.py)
 */
#include <math.h>

#include "optim/weight_average.h"
#include "support/expect.h"
#include "support/golden.h"

#define TOLERANCE 1e-12

/* The factors of a training whose weight is cos(0.7 t) after step t. */
static void check_case(const td_json *c)
{
    const td_json *averages = td_golden_rows(c, "average");
    const td_weight_average o = { .rule = TD_EMA_TORCHVISION,
                                  .decay = td_golden_number(c, "decay"),
                                  .every = td_golden_int(c, "every"),
                                  .warmup = td_golden_int(c, "warmup"),
                                  .epochs = td_golden_int(c, "epochs"),
                                  .step_images = td_golden_number(c, "step_images") };
    const int64_t steps = td_golden_int(c, "steps"), n = (int64_t)td_json_count(averages);
    double average = 0;
    for (int64_t t = 0; t < n; t++) {
        const td_weight_average_place at = {
            .batch = t, .epoch = t / steps, .step = t % steps, .is_last = true
        };
        const double m = td_weight_average_factor(&o, &at), weight = cos(0.7 * (double)t);
        double wanted;
        average = m * average + (1 - m) * weight;
        expect_ok(td_json_as_number(td_json_at(averages, (size_t)t), &wanted));
        if (!(fabs(average - wanted) <= TOLERANCE))
            fail_msg("step %lld: %.17g, wanted %.17g", (long long)t, average, wanted);
    }
}

static void averages_are_torchvisions(void **state)
{
    (void)state;
    td_json *doc = td_golden_json("classification", "averages.json");
    const td_json *cases = td_golden_rows(doc, "cases");
    assert_true(td_json_count(cases) >= 5);
    for (size_t i = 0; i < td_json_count(cases); i++)
        check_case(td_json_at(cases, i));
    td_json_free(doc);
}

/* Batches before the last of a step change nothing. */
static void steps_of_several_batches(void **state)
{
    (void)state;
    const td_weight_average o = {
        .rule = TD_EMA_TORCHVISION, .decay = 0.9, .every = 1, .epochs = 4, .step_images = 2
    };
    for (int64_t i = 1; i < 12; i++) {
        const td_weight_average_place at = {
            .batch = i, .epoch = 1, .step = i / 4, .is_last = i % 4 == 3
        };
        const double m = td_weight_average_factor(&o, &at);
        assert_true(fabs(m - (at.is_last ? 0.95 : 1)) < 1e-15);
    }
}

static void the_reference_rises(void **state)
{
    (void)state;
    const td_weight_average o = { .rule = TD_EMA_NVIDIA, .decay = 0.99 };
    for (int64_t t = 0; t < 2000; t++) {
        const double ramp = (1 + (double)t) / (10 + (double)t);
        const td_weight_average_place at = { .batch = t };
        assert_true(td_weight_average_factor(&o, &at) == (ramp < 0.99 ? ramp : 0.99));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_torchvisions),
        cmocka_unit_test(steps_of_several_batches),
        cmocka_unit_test(the_reference_rises),
    };
    td_golden_require("classification");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
