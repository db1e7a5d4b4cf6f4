/* ctest: timeout 900 */
/*
 * test_golden_ssd320.c -- SSD320's variables, forward passes and steps against the reference's
 * numbers, in float32 on "cpu"
 *
 * Limits are those of the golden data's own README: three times what a float32 run of the
 * reference itself is away from float64.
 */
#include "support/detector_run.h"

#include "base/os.h"

#define PART "ssd320"

/* units of block 1 to 4, maps, box codes, scores: relative, as td_detector_error has it */
static const td_detector_limit plain[] = {
    { "stem", 3e-6 },    { "block1", 7e-6 },  { "block2", 2.4e-5 },        { "block3", 3e-4 },
    { "block4", 8e-4 },  { "proj", 4e-4 },    { "feature_map_level", 1e-3 },
    { "box_encodings", 1e-3 }, { "class_predictions", 4e-5 }, { NULL, 0 }
};
static const td_detector_limit calm[] = { { "", 3e-6 }, { NULL, 0 } };

static const td_detector_limit eval[] = { { "", 3e-5 }, { NULL, 0 } };

static void test_variables(void **state)
{
    (void)state;
    td_detector_check_variables(PART, 32840570, 269, 463, 22307953664);
}

static void test_forward_plain(void **state)
{
    (void)state;
    td_detector_check_forward(PART, false, plain, 9e-4, 2e-3);
}

static void test_forward_calm(void **state)
{
    (void)state;
    td_detector_check_forward(PART, true, calm, 9e-6, 2e-4);
}

static void test_eval(void **state)
{
    (void)state;
    td_detector_check_eval(PART, false, "forward_eval", NULL, eval, 2e-6);
    td_detector_check_eval(PART, false, "forward_eval_calibrated", "batch_statistics.safetensors",
                           plain, 2e-3);
    td_detector_check_eval(PART, true, "forward_eval_calm", "batch_statistics_calm.safetensors",
                           eval, 2.4e-5);
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
