/* ctest: timeout 900 */
/*
 * test_golden_ssd300.c -- SSD300's variables, forward passes and steps against the reference's
 * numbers, in float32 on "cpu"
 *
 * Limits: as test_golden_ssd320.c.
 */
#include "support/detector_run.h"

#include "base/os.h"

#define PART "ssd300"

static const td_detector_limit plain[] = {
    { "stage_conv2", 5e-6 }, { "stage_conv3", 1.5e-5 }, { "stage_conv4", 1e-4 }, { "", 7e-4 }, { NULL, 0 }
};
static const td_detector_limit calm[] = { { "feature_map_5", 1e-4 }, { "feature_map", 2e-5 }, { "", 4e-6 }, { NULL, 0 } };

static void test_variables(void **state)
{
    (void)state;
    td_detector_check_variables(PART, 22894902, 183, 289, 0);
}

static void test_forward_plain(void **state)
{
    (void)state;
    td_detector_check_forward(PART, false, plain, 4e-4, 0);
}

static void test_forward_calm(void **state)
{
    (void)state;
    td_detector_check_forward(PART, true, calm, 2e-5, 0);
}

static void test_eval(void **state)
{
    (void)state;
    td_detector_check_eval(PART, false, "forward_eval",
                           "running_statistics_after_one_forward.safetensors", plain, 0.5);
    td_detector_check_eval(PART, true, "forward_eval_calm",
                           "running_statistics_after_one_forward_calm.safetensors", calm, 1e-3);
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_forward_plain),
        cmocka_unit_test(test_forward_calm),
        cmocka_unit_test(test_eval),
    };
    td_process_setup(argv);
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
