/*
 * test_golden_lr_pytorch.c -- learning rates of PyTorch's schedulers and of timm's cosine
 * (tests/oracle/schedules.py)
 */
#include <math.h>

#include "optim/lr_schedule.h"
#include "support/expect.h"
#include "support/golden.h"

#define TOLERANCE 1e-12 /* of the peak: PyTorch multiplies from step to step */

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("no name '%s'", name);
    return 0;
}

static double number_or_0(const td_json *j, const char *key)
{
    return td_json_get(j, key) ? td_golden_number(j, key) : 0;
}

static void compare(const td_json *rates, size_t i, double found, double peak)
{
    double wanted;
    expect_ok(td_json_as_number(td_json_at(rates, i), &wanted));
    if (!(fabs(found - wanted) <= TOLERANCE * peak))
        fail_msg("rate %zu: %.17g, wanted %.17g", i, found, wanted);
}

static void check_curve(const td_json *curve)
{
    static const char *const schedules[] = { [TD_LR_STEP] = "step",
                                             [TD_LR_LINEAR] = "linear",
                                             [TD_LR_COSINE] = "cosine",
                                             [TD_LR_EXPONENTIAL] = "exponential",
                                             [TD_LR_POLYNOMIAL] = "polynomial" };
    static const char *const forms[] = {
        [TD_WARMUP_LINEAR] = "linear", [TD_WARMUP_CONSTANT] = "constant"
    };
    const td_json *rates = td_golden_rows(curve, "lr");
    td_lr_drops drops;
    td_lr_curve o = {
        .schedule = (td_lr_schedule)find(schedules, 5, td_golden_text(curve, "schedule")),
        .lr = td_golden_number(curve, "peak"),
        .end_lr = number_or_0(curve, "end"),
        .warmup = td_golden_int(curve, "warmup"),
        .warms_from = true,
        .warmup_form = (td_warmup)find(forms, 2, td_golden_text(curve, "warmup_form")),
        .warmup_start = td_golden_number(curve, "warmup_start"),
        .epochs = td_golden_int(curve, "epochs"),
        .decay = number_or_0(curve, "decay"),
        .decay_epochs =
            td_json_get(curve, "decay_epochs") ? td_golden_int(curve, "decay_epochs") : 0,
        .power = number_or_0(curve, "power"),
        .counts_warmup = td_json_get(curve, "counts_warmup") != NULL,
    };
    if (td_json_get(curve, "drops")) {
        expect_ok(td_lr_drops_parse(td_golden_text(curve, "drops"), &drops));
        o.drops = &drops;
    }
    assert_int_equal(td_json_count(rates), o.epochs);
    for (int e = 0; e < o.epochs; e++)
        compare(rates, (size_t)e, td_lr_at(&o, e), o.lr);
}

static void check_cycle(const td_json *cycle)
{
    static const char *const forms[] = { [TD_ANNEAL_COS] = "cos", [TD_ANNEAL_LINEAR] = "linear" };
    const td_json *rates = td_golden_rows(cycle, "lr"),
                  *momenta = td_golden_rows(cycle, "momentum");
    const double base = td_golden_number(cycle, "base"), most = td_golden_number(cycle, "most");
    const td_lr_cycle o = {
        .lr = td_golden_number(cycle, "peak"),
        .start = td_golden_number(cycle, "start"),
        .div = td_golden_number(cycle, "div"),
        .end_div = td_golden_number(cycle, "end_div"),
        .form = (td_anneal)find(forms, 2, td_golden_text(cycle, "form")),
        .steps = td_golden_int(cycle, "steps"),
    };
    assert_int_equal(td_json_count(rates), o.steps);
    for (int64_t t = 0; t < o.steps; t++) {
        compare(rates, (size_t)t, td_lr_one_cycle(&o, t), o.lr);
        compare(momenta, (size_t)t, td_momentum_one_cycle(&o, base, most, t), most);
    }
}

static void each(const char *name, int n_least, void (*check)(const td_json *))
{
    td_json *doc = td_golden_json("classification", "lr_pytorch.json");
    const td_json *all = td_golden_rows(doc, name);
    assert_non_null(all);
    assert_true(td_json_count(all) >= (size_t)n_least);
    for (size_t i = 0; i < td_json_count(all); i++)
        check(td_json_at(all, i));
    td_json_free(doc);
}

static void warm_ups_and_curves(void **state)
{
    (void)state;
    each("curves", 10, check_curve);
}

static void one_cycle(void **state)
{
    (void)state;
    each("cycles", 8, check_cycle);
}

/* a cycle too short for a rise or a fall has finite rates */
static void short_cycles(void **state)
{
    (void)state;
    for (int64_t steps = 1; steps < 5; steps++)
        for (double start = 0; start <= 1; start += 0.25)
            for (int64_t t = 0; t <= steps; t++) {
                const td_lr_cycle o = {
                    .lr = 1, .start = start, .div = 25, .end_div = 1e4, .steps = steps
                };
                const double lr = td_lr_one_cycle(&o, t);
                assert_true(lr >= 0 && lr <= 1);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_ups_and_curves),
        cmocka_unit_test(one_cycle),
        cmocka_unit_test(short_cycles),
    };
    td_golden_require("classification");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
