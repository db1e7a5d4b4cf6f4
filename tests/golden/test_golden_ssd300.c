/* ctest: timeout 900 */
/*
 * test_golden_ssd300.c -- SSD300's variables, forward passes and steps against the reference's
 * numbers, in float32 on "cpu"
 *
 * Limits: as test_golden_ssd320.c.
 */
#include "support/detector_run.h"
#include "support/detector_steps.h"

#include <math.h>

#define PART  "ssd300"
#define DECAY 5e-4

static const td_detector_limit plain[] = { { "stage_conv2", 5e-6 },
                                           { "stage_conv3", 1.5e-5 },
                                           { "stage_conv4", 1e-4 },
                                           { "", 7e-4 },
                                           { NULL, 0 } };
static const td_detector_limit calm[] = { { "feature_map_5", 1e-4 },
                                          { "feature_map", 2e-5 },
                                          { "loc", 1e-5 }, /* oneDNN's AVX2 kernels: 4.4e-6 */
                                          { "", 4e-6 },
                                          { NULL, 0 } };

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
    td_detector_check_forward(PART, true, calm, 2e-4, 0); /* AVX2 kernels: 8e-5 */
}

static void test_eval(void **state)
{
    (void)state;
    td_detector_check_eval(PART, false, "forward_eval",
                           "running_statistics_after_one_forward.safetensors", plain, 0.5);
    td_detector_check_eval(PART, true, "forward_eval_calm",
                           "running_statistics_after_one_forward_calm.safetensors", calm, 1e-3);
}

/* float32's own distance from float64 may be more where that is ill-conditioned */
static void check_statistics(const td_detector_steps *s, double limit)
{
    td_tensors *t = td_golden_tensors(
        PART, td_detector_file(s->c, "running_statistics_after_one_forward", "safetensors"));
    double worst = 0;
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *row = td_tensors_at(t, i);
        float *found = td_alloc((size_t)row->dim[0], sizeof *found);
        assert_non_null(found);
        expect_ok(td_program_get(s->p, row->name, found));
        for (int64_t k = 0; k < row->dim[0]; k++) {
            const double wanted = (double)((const float *)row->data)[k];
            worst = fmax(worst, fabs((double)found[k] - wanted) / fmax(fabs(wanted), 1));
        }
        td_free(found);
    }
    print_message("%zu running statistics: %.1e (%.1e)\n", td_tensors_count(t), worst, limit);
    assert_true(worst <= limit);
    td_tensors_free(t);
}

typedef struct {
    double losses[3], gradient_norms, gradients, statistics, changes;
} step_limits;

static void check_first(const td_detector_steps *s, const step_limits *l)
{
    td_json *rows = td_golden_json(PART, td_detector_file(s->c, "gradients", "json"));
    td_detector_check_gradients(s, rows, l->gradient_norms, l->gradients);
    check_statistics(s, l->statistics);
    td_json_free(rows);
}

static void check_steps(bool is_calm, const step_limits *l)
{
    td_detector_case c;
    td_detector_steps s;
    td_detector_open(&c, PART, is_calm);
    td_detector_steps_open(&s, &c, DECAY);
    td_json *doc = td_golden_json(PART, td_detector_file(&c, "after_step3", "json"));
    const td_json *losses = td_json_get(td_json_get(doc, "losses"), "float32");
    for (int k = 0; k < 3; k++) {
        double wanted;
        expect_ok(td_json_as_number(td_json_at(losses, (size_t)k), &wanted));
        td_detector_step(&s, k, 2.6e-3);
        td_detector_check_close("loss", td_detector_scalar(&s, "loss"), wanted, l->losses[k]);
        if (k == 0)
            check_first(&s, l);
    }
    if (l->changes > 0)
        td_detector_check_changes(&s, td_json_get(doc, "variables"), l->changes, 0);
    td_json_free(doc);
    td_detector_steps_close(&s);
    td_detector_close(&c);
}

/* statistics: 8.8e-5 with oneDNN's AVX2 kernels, 1.3e-4 with Winograd's algorithm as well */
static void test_steps_plain(void **state)
{
    (void)state;
    check_steps(false, &(step_limits){ { 1e-6, 1e-3, 3e-2 }, 3e-2, 0, 4e-4, 0 });
}

static void test_steps_calm(void **state)
{
    (void)state;
    check_steps(true, &(step_limits){ { 1e-6, 1e-6, 1e-6 }, 1e-3, 3e-3, 1e-5, 3e-3 });
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),    cmocka_unit_test(test_forward_plain),
        cmocka_unit_test(test_forward_calm), cmocka_unit_test(test_eval),
        cmocka_unit_test(test_steps_plain),  cmocka_unit_test(test_steps_calm),
    };
    td_process_setup(argv);
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
