/*
 * test_quantization.c -- quantized weight files: I8 tensors with scales, ranges as metadata
 */
#include "checkpoint/quantization.h"

#include <math.h>
#include <string.h>

#include "support/expect.h"

#define LAYER(weight, input, output)                                                               \
    "{\"weight\": \"" weight "\", \"input\": " input ", \"output\": " output                       \
    ", \"wide\": false, \"why\": \"quantized\", \"input_db\": 40, \"weights_db\": 41}"
#define DOCUMENT(layers)                                                                           \
    "{\"method\": \"mse\", \"percentile\": 99.9, \"images\": 7, \"layers\": [" layers "]}"

static const int8_t integers[4] = { 1, -127, 64, 0 };
static const float scales[2] = { 0.5F, 0.25F };

static td_tensors *make(const char *json)
{
    td_tensors *t;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "a.weight", TD_DT_S8, 4, (int64_t[]){ 2, 2, 1, 1 }, integers));
    expect_ok(td_tensors_add(t, "a.weight_scale", TD_DT_F32, 1, (int64_t[]){ 2 }, scales));
    expect_ok(td_tensors_add(t, "a.bias", TD_DT_F32, 1, (int64_t[]){ 2 }, scales));
    if (json)
        expect_ok(td_tensors_set_meta(t, TD_QUANTIZATION_META, json));
    return t;
}

static void what_is_stored_is_read(void **state)
{
    td_quantization q, again;
    (void)state;
    td_tensors *t = make(DOCUMENT(LAYER("a.weight", "0.1", "6")));
    expect_ok(td_quantization_read(t, "q", &q));
    assert_int_equal(q.table.n, 1);
    assert_string_equal(q.table.ranges[0].weight, "a.weight");
    expect_ok(td_quantization_store(&q, t));
    expect_ok(td_quantization_read(t, "q", &again));
    assert_true(again.ranges[0].input == 0.1F && again.ranges[0].output == 6);
    assert_true(again.n_images == 7 && strcmp(again.method, "mse") == 0);
    td_quantization_release(&q);
    td_quantization_release(&again);
    td_tensors_free(t);
}

static void integers_become_floats(void **state)
{
    static const float wanted[4] = { 0.5F, -63.5F, 16, 0 };
    (void)state;
    td_tensors *t = make(NULL);
    expect_ok(td_tensors_dequantize(t, "q"));
    const td_tensor *w = td_tensors_get(t, "a.weight");
    assert_int_equal(td_tensors_count(t), 2);
    assert_null(td_tensors_get(t, "a.weight_scale"));
    assert_int_equal(w->dtype, TD_DT_F32);
    assert_int_equal(w->n_bytes, sizeof wanted);
    assert_memory_equal(w->data, wanted, sizeof wanted);
    assert_memory_equal(td_tensors_get(t, "a.bias")->data, scales, sizeof scales);
    td_tensors_free(t);
}

static void bad_scales_are_refused(void **state)
{
    static const float bad[5] = { 0, -1, NAN, INFINITY, 1 };
    (void)state;
    for (int i = 0; i < 5; i++) {
        td_tensors *t;
        const float two[2] = { 1, bad[i] };
        expect_ok(td_tensors_new(&t));
        expect_ok(td_tensors_add(t, "w", TD_DT_S8, 1, (int64_t[]){ 2 }, integers));
        if (i < 4)
            expect_ok(td_tensors_add(t, "w_scale", TD_DT_F32, 1, (int64_t[]){ 2 }, two));
        else
            expect_ok(td_tensors_add(t, "w_scale", TD_DT_F32, 1, (int64_t[]){ 1 }, two));
        assert_int_equal(td_tensors_dequantize(t, "file"), TD_EFORMAT);
        assert_non_null(strstr(td_error_message(), "'file'"));
        assert_non_null(strstr(td_error_message(), "'w'"));
        td_tensors_free(t);
    }
}

static void bad_metadata_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"method\": \"mse\"}",
        DOCUMENT("1"),
        DOCUMENT("{}"),
        DOCUMENT(LAYER("b.weight", "1", "1")),
        DOCUMENT(LAYER("a.bias", "1", "1")),
        DOCUMENT(LAYER("a.weight", "0", "1")),
        DOCUMENT(LAYER("a.weight", "1", "-1")),
        DOCUMENT(LAYER("a.weight", "1", "1e31")),
        DOCUMENT(LAYER("a.weight", "1e-31", "1")),
        DOCUMENT(LAYER("a.weight", "\"1\"", "1")),
        DOCUMENT(LAYER("a.weight", "1", "1") ", " LAYER("a.weight", "1", "1")),
        DOCUMENT("1, 2, 3, 4"),
        "{\"method\": \"mse\", \"percentile\": 1, \"images\": 1, \"layers\": {}}",
        "{\"method\": \"mse\", \"percentile\": 1, \"images\": 1}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_quantization q;
        td_tensors *t = make(bad[i]);
        if (td_quantization_read(t, "file", &q) != TD_EFORMAT)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(td_error_message(), "'file'"));
        td_quantization_release(&q);
        td_tensors_free(t);
    }
}

static td_precision precision_after(const td_tensors *t, td_amp_opts amp, td_status wanted)
{
    td_quantization q;
    assert_int_equal(td_quantization_apply(t, "file", &amp, &q), wanted);
    assert_int_equal(amp.ranges != NULL, wanted == TD_OK && amp.precision == TD_PRECISION_INT8);
    td_quantization_release(&q);
    return amp.precision;
}

static void a_quantized_file_runs_in_int8_by_default(void **state)
{
    (void)state;
    td_tensors *t = make(DOCUMENT(LAYER("a.weight", "1", "2"))), *wide = make(NULL);
    const td_amp_opts none = { 0 }, int8 = { .precision = TD_PRECISION_INT8 },
                      fp32 = { .precision = TD_PRECISION_FP32 }, off = { .force_float32 = true },
                      half = { .amp = true };
    assert_int_equal(precision_after(t, none, TD_OK), TD_PRECISION_INT8);
    assert_int_equal(precision_after(t, int8, TD_OK), TD_PRECISION_INT8);
    assert_int_equal(precision_after(t, fp32, TD_OK), TD_PRECISION_FP32);
    assert_int_equal(precision_after(t, off, TD_OK), TD_PRECISION_DEFAULT);
    assert_int_equal(precision_after(t, half, TD_OK), TD_PRECISION_DEFAULT);
    assert_int_equal(precision_after(wide, none, TD_OK), TD_PRECISION_DEFAULT);
    (void)precision_after(wide, int8, TD_EUSAGE);
    td_tensors_free(t);
    td_tensors_free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stored_is_read),
        cmocka_unit_test(integers_become_floats),
        cmocka_unit_test(bad_scales_are_refused),
        cmocka_unit_test(bad_metadata_are_refused),
        cmocka_unit_test(a_quantized_file_runs_in_int8_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
