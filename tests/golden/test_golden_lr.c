/*
 * test_golden_lr.c -- learning-rate curves against lr.json, every epoch of each
 *
 * Curves of policies that the schedule does not have are named and left out.
 */
#include <math.h>

#include "optim/lr_schedule.h"
#include "support/expect.h"
#include "support/golden.h"

#define TOLERANCE 1e-13 /* of the peak: both sides are a few roundings in double */

static bool find_policy(const char *name, td_lr_schedule *out)
{
    static const char *const names[] = { [TD_LR_STEP] = "step",
                                         [TD_LR_LINEAR] = "linear",
                                         [TD_LR_COSINE] = "cosine",
                                         [TD_LR_EXPONENTIAL] = "exponential" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (td_lr_schedule)i;
            return true;
        }
    return false;
}

/* the schedule's steps are fixed; a curve with others tests nothing */
static bool has_our_steps(const td_json *curve)
{
    static const double ours[] = { 30, 60, 80 };
    const td_json *steps = td_json_get(curve, "steps");
    double at;

    if (!steps)
        return true;
    for (size_t i = 0; i < td_json_count(steps); i++) {
        expect_ok(td_json_as_number(td_json_at(steps, i), &at));
        if (i >= 3 || at != ours[i])
            return false;
    }
    return td_json_count(steps) == 3 && td_golden_number(curve, "decay") == 0.1;
}

static bool check_curve(const td_json *curve)
{
    const char *policy = td_golden_text(curve, "policy");
    const td_json *lr = td_golden_rows(curve, "lr");
    td_lr_curve o = {
        .lr = td_golden_number(curve, "base_lr"),
        .warmup = td_golden_int(curve, "warmup"),
        .epochs = td_golden_int(curve, "epochs"),
    };

    if (!find_policy(policy, &o.schedule) || !has_our_steps(curve)) {
        print_message("left out: %s, warm-up %d\n", policy, o.warmup);
        return false;
    }
    if (td_json_get(curve, "decay_factor"))
        o.decay = td_golden_number(curve, "decay_factor");
    if (td_json_get(curve, "final_multiplier"))
        assert_true(td_golden_number(curve, "final_multiplier") == 0.001);
    if (td_json_get(curve, "decay_step"))
        o.decay_epochs = td_golden_int(curve, "decay_step");
    if (td_json_get(curve, "end_lr"))
        o.end_lr = td_golden_number(curve, "end_lr");
    assert_non_null(lr);
    assert_int_equal(td_json_count(lr), o.epochs);
    for (int e = 0; e < o.epochs; e++) {
        double wanted, found = td_lr_at(&o, e);
        expect_ok(td_json_as_number(td_json_at(lr, (size_t)e), &wanted));
        if (!(fabs(found - wanted) <= TOLERANCE * o.lr)) {
            print_error("%s, warm-up %d, epoch %d: %.17g, wanted %.17g\n", policy, o.warmup, e,
                        found, wanted);
            fail();
        }
    }
    return true;
}

static void curves(void **state)
{
    (void)state;
    td_json *doc = td_golden_json("classification", "lr.json");
    const td_json *all = td_golden_rows(doc, "curves");
    int n_checked = 0;
    assert_non_null(all);
    for (size_t i = 0; i < td_json_count(all); i++)
        n_checked += check_curve(td_json_at(all, i));
    print_message("%d curves\n", n_checked);
    assert_true(n_checked > 0);
    td_json_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves),
    };
    td_golden_require("classification");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
