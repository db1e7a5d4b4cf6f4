/*
 * test_golden_lr_ssd320.c -- the learning rates of SSD320's four configurations against
 * unit_learning_rate.json, which the reference program wrote as float32
 */
#include <math.h>
#include <stdlib.h>

#include "optim/lr_schedule.h"
#include "support/expect.h"
#include "support/golden.h"

#define PART      "ssd320"
#define TOLERANCE 1e-8 /* half a unit of float32 at 0.16, where the file's numbers are rounded */

/* detection.md 10: devices are in the numbers */
static const struct {
    const char *name;
    td_lr_steps o;
} configs[] = {
    { "ssd320_full_1gpus", { .lr = 0.02, .begin = 0.0086664, .warmup = 8000, .steps = 100000 } },
    { "ssd320_full_4gpus", { .lr = 0.08, .begin = 0.0346656, .warmup = 2000, .steps = 25000 } },
    { "ssd320_full_8gpus", { .lr = 0.16, .begin = 0.0693312, .warmup = 1000, .steps = 12500 } },
    { "ssd320_bench", { .lr = 0.02, .begin = 0.0086664, .warmup = 400, .steps = 1250 } },
};

static void every_configuration_agrees(void **state)
{
    (void)state;
    td_json *doc = td_golden_json(PART, "unit_learning_rate.json");
    int n = 0;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const td_json *curve = td_json_get(doc, configs[i].name);
        assert_non_null(curve);
        for (size_t k = 0; k < td_json_count(curve); k++, n++) {
            const long long step = atoll(td_json_key(curve, k));
            double wanted;
            expect_ok(td_json_as_number(td_json_member(curve, k), &wanted));
            const double found = (double)(float)td_lr_ssd320(&configs[i].o, step);
            if (!(fabs(found - wanted) <= TOLERANCE)) {
                print_error("%s, step %lld: %.9g, wanted %.9g\n", configs[i].name, step, found,
                            wanted);
                fail();
            }
        }
    }
    print_message("%d learning rates\n", n);
    assert_true(n >= 40);
    td_json_free(doc);
}

int main(void)
{
    td_golden_require(PART);
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_configuration_agrees) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
