/*
 * test_calibration.c -- ranges of random images: the weights that were made for them are those of
 * td_program_init, so that a benchmark need not make them again; reshaped values, fused blocks
 */
#include "quantize/calibration.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/weights.h"
#include "runtime/program_view.h"
#include "support/expect.h"
#include "tandem/program.h"

static const td_model_opts small = { .arch = "resnet18", .num_classes = 5, .image_size = 32 };

static void initial_weights_are_kept(void **state)
{
    (void)state;
    td_device *dev;
    td_tensors *fresh, *again;
    td_quantization q, of_file;
    td_calibration *c;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_calibrate_random(&small, dev, NULL, NULL, &fresh, &q));
    assert_non_null(fresh);
    expect_ok(td_calibration_new(&small, dev, 1, &c));
    td_program *p = td_calibration_program(c);
    expect_ok(td_program_init(p, 1));
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_tensor *t = td_tensors_get(fresh, name);
        assert_non_null(t);
        char *wanted = malloc(t->n_bytes);
        assert_non_null(wanted);
        expect_ok(td_program_get(p, name, wanted));
        assert_memory_equal(t->data, wanted, t->n_bytes);
        free(wanted);
    }
    td_calibration_free(c);
    /* and with them as a file, the ranges are the same */
    expect_ok(td_calibrate_random(&small, dev, fresh, "fresh", &again, &of_file));
    assert_null(again);
    assert_true(q.n > 10 && q.n == of_file.n);
    for (int i = 0; i < q.n; i++) {
        assert_string_equal(q.ranges[i].weight, of_file.ranges[i].weight);
        assert_true(q.ranges[i].input == of_file.ranges[i].input);
        assert_true(q.ranges[i].output == of_file.ranges[i].output);
    }
    td_tensors_free(fresh);
    td_quantization_release(&q);
    td_quantization_release(&of_file);
    td_device_close(dev);
}

/* a linear layer behind a reshape, which has no kernel: its input is that of the reshape */
static const char flat[] = "%images:f32[1,3,8,8] = input\n"
                           "%conv1.weight:f32[16,3,3,3] = param {init=normal, scale=3}\n"
                           "%1 = conv2d %images, %conv1.weight {pad=1}\n"
                           "%2 = relu %1\n"
                           "%3 = global_avg_pool %2\n"
                           "%4:f32[1,4,2,2] = reshape %3 {shape=1:4:2:2}\n"
                           "%5:f32[1,16] = reshape %4 {shape=-1:16}\n"
                           "%a.weight:f32[5,16] = param {init=normal, scale=1}\n"
                           "%6 = linear %5, %a.weight\n"
                           "%b.weight:f32[5,16] = param {init=normal, scale=1}\n"
                           "%7 = linear %3, %b.weight\n"
                           "%8 = add %6, %7\n"
                           "output logits = %8\n";

static void reshaped_values_are_observed(void **state)
{
    (void)state;
    const td_model_opts m = { .model_text = flat, .num_classes = 5, .image_size = 8 };
    td_device *dev;
    td_tensors *fresh;
    td_quantization q;
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_calibrate_random(&m, dev, NULL, NULL, &fresh, &q));
    assert_int_equal(q.n, 3);
    assert_string_equal(q.ranges[1].weight, "a.weight");
    assert_string_equal(q.ranges[2].weight, "b.weight");
    assert_true(q.ranges[1].input > 2); /* 1 if nothing was observed */
    assert_true(q.ranges[1].input == q.ranges[2].input);
    td_tensors_free(fresh);
    td_quantization_release(&q);
    td_device_close(dev);
}

/* blocks that are one node on some processors: all their layers have ranges, as on device ref */
static void fused_blocks_are_observed(void **state)
{
    (void)state;
    const td_model_opts m = { .arch = "mobilenet_v2", .num_classes = 5, .image_size = 32 };
    static const char *const devices[] = { "cpu", "ref" };
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        td_device *dev;
        td_tensors *fresh;
        td_quantization q;
        expect_ok(td_device_open(devices[i], &dev));
        expect_ok(td_calibrate_random(&m, dev, NULL, NULL, &fresh, &q));
        assert_int_equal(q.n, 53);
        td_tensors_free(fresh);
        td_quantization_release(&q);
        td_device_close(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(initial_weights_are_kept),
                                        cmocka_unit_test(fused_blocks_are_observed),
                                        cmocka_unit_test(reshaped_values_are_observed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
