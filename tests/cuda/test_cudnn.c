/*
 * test_cudnn.c -- src/backend/cuda/cudnn_graph.h: what it refuses, and why
 *
 *   test_cudnn DEVICE.json, with the stand-in for the driver's library
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/cudnn_parts.h"

static char json[1 << 14];
static char error[TD_CUDNN_TEXT];
static td_cudnn_plan plan;

static td_cudnn_conv layer(td_cudnn_dtype dtype)
{
    return (td_cudnn_conv){ .dtype = dtype,
                            .n = 32,
                            .c = 64,
                            .h = 56,
                            .w = 56,
                            .k = 64,
                            .r = 3,
                            .s = 3,
                            .groups = 1,
                            .pad_before = { 1, 1 },
                            .pad_after = { 1, 1 },
                            .stride = { 1, 1 },
                            .dilation = { 1, 1 } };
}

static int plan_of(const td_cudnn_conv *conv, td_cudnn_target target)
{
    error[0] = '\0';
    return td_cudnn_plan_init(&plan, conv, &target, error);
}

static void expect_refused(const td_cudnn_conv *conv, const char *word)
{
    assert_int_equal(plan_of(conv, (td_cudnn_target){ .json = json }), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, word));
    assert_int_equal(plan.made.n, 0);
}

/* the first test: nothing is open yet */
static void a_missing_library_is_an_error(void **state)
{
    (void)state;
    int64_t version = 0;
    const td_cudnn_conv conv = layer(TD_CUDNN_F16);
    expect_refused(&conv, "not open");
    assert_int_equal(td_cudnn_open("/nonexistent/libcudnn.so.9", &version, error),
                     TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "/nonexistent/libcudnn.so.9"));
    assert_int_equal(td_cudnn_open("libm.so.6", &version, error), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "cudnnGetVersion"));
    assert_int_equal(setenv("TANDEM_CUDNN", "/nonexistent/named.so", 1), 0);
    assert_int_equal(td_cudnn_open(NULL, &version, error), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "/nonexistent/named.so"));
    assert_int_equal(unsetenv("TANDEM_CUDNN"), 0);
    assert_int_equal(td_cudnn_open(NULL, &version, error), 0);
    assert_true(version >= 90800);
}

/* there is no device here */
static void a_handle_needs_a_device(void **state)
{
    (void)state;
    void *handle = error;
    assert_true(td_cudnn_handle_create(NULL, &handle, error) >= 1000);
    assert_non_null(strstr(error, "cudnnCreate"));
    assert_null(handle);
    td_cudnn_handle_destroy(handle);
}

static size_t old_version(void)
{
    return 90701;
}

static void an_old_version_cannot_plan_without_a_device(void **state)
{
    (void)state;
    size_t (*version)(void) = td_cudnn.version;
    const td_cudnn_conv conv = layer(TD_CUDNN_F16);
    td_cudnn.version = old_version;
    expect_refused(&conv, "9.7.1");
    td_cudnn.version = version;
}

static void invalid_problems_are_refused(void **state)
{
    (void)state;
    td_cudnn_conv conv = layer(TD_CUDNN_F16);
    conv.groups = 3;
    expect_refused(&conv, "3 groups");
    conv = layer(TD_CUDNN_F16);
    conv.groups = 0;
    expect_refused(&conv, "positive");
    conv = layer(TD_CUDNN_F16);
    conv.r = 59;
    expect_refused(&conv, "59x3");
    conv = layer(TD_CUDNN_F16);
    conv.n = INT64_MAX;
    expect_refused(&conv, "2^30");
    conv = layer(TD_CUDNN_F16);
    conv.dilation[1] = 0;
    expect_refused(&conv, "positive");
    conv = layer(TD_CUDNN_F16);
    conv.wide_filter = true;
    expect_refused(&conv, "wide");
    conv = layer((td_cudnn_dtype)7);
    expect_refused(&conv, "7");
}

static void tensors_that_exceed_memory_are_refused(void **state)
{
    (void)state;
    td_cudnn_conv conv = layer(TD_CUDNN_F16);
    conv.n = conv.h = conv.w = conv.k = 1 << 30;
    expect_refused(&conv, "2^40");
}

static void impossible_fusions_are_refused(void **state)
{
    (void)state;
    static const struct {
        td_cudnn_direction direction;
        unsigned fused;
    } cases[] = {
        { TD_CUDNN_FORWARD, TD_CUDNN_STATISTICS | TD_CUDNN_BIAS },
        { TD_CUDNN_FORWARD, TD_CUDNN_RELU_BACKWARD },
        { TD_CUDNN_DATA_GRADIENT, TD_CUDNN_SCALE_RELU },
        { TD_CUDNN_DATA_GRADIENT, TD_CUDNN_BIAS },
        { TD_CUDNN_FILTER_GRADIENT, TD_CUDNN_STATISTICS },
        { TD_CUDNN_FORWARD, TD_CUDNN_BIAS | TD_CUDNN_CLIP_6 },
        { TD_CUDNN_FORWARD, 128 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_cudnn_conv conv = layer(TD_CUDNN_F16);
        conv.direction = cases[i].direction;
        conv.fused = cases[i].fused;
        expect_refused(&conv, "fused");
    }
}

static void a_device_is_needed(void **state)
{
    (void)state;
    const td_cudnn_conv conv = layer(TD_CUDNN_F16);
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ 0 }), TD_CUDNN_EREQUEST);
    assert_true(plan_of(&conv, (td_cudnn_target){ .json = "{\"deviceVer\": 900" }) >= 1000);
    assert_non_null(strstr(error, "JSON"));
    assert_true(plan_of(&conv, (td_cudnn_target){ .json = "" }) >= 1000);
    assert_int_equal(plan.made.n, 0);
}

static void properties_come_back_as_they_were(void **state)
{
    static char read[sizeof json];
    const td_cudnn_target target = { .json = json };
    (void)state;
    assert_int_equal(td_cudnn_read_device(&target, read, strlen(json) + 1, error), 0);
    assert_string_equal(read, json);
    assert_int_not_equal(td_cudnn_read_device(&target, read, strlen(json), error), 0);
    assert_non_null(strstr(error, "properties"));
    assert_string_equal(read, "");
}

/* workspaces above the limit are refusals, and another engine is found; without another, one of
   these is */
static void a_workspace_limit_holds(void **state)
{
    (void)state;
    td_cudnn_conv conv = layer(TD_CUDNN_F16);
    conv.direction = TD_CUDNN_FILTER_GRADIENT;
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    const int64_t unlimited = plan.workspace_bytes;
    td_cudnn_plan_release(&plan);
    assert_true(unlimited > 1000);
    assert_int_equal(
        plan_of(&conv, (td_cudnn_target){ .json = json, .workspace_limit_bytes = 1000 }), 0);
    assert_true(plan.workspace_bytes <= 1000);
    assert_true(plan.n_refused > 0 && plan.n_refusals > 0);
    assert_non_null(strstr(plan.refusals[0].why, "1000 are allowed"));
    td_cudnn_plan_release(&plan);
    conv.direction = TD_CUDNN_FORWARD;
    conv.fused = TD_CUDNN_STATISTICS;
    const td_cudnn_target few = {
        .json = json, .workspace_limit_bytes = 1, .without_fallback = true, .without_compiled = true
    };
    assert_int_equal(plan_of(&conv, few), 0);
    assert_true(plan.workspace_bytes > 1);
    td_cudnn_plan_release(&plan);
}

static void the_next_best_can_be_asked_for(void **state)
{
    (void)state;
    char first[TD_CUDNN_KNOBS];
    const td_cudnn_conv conv = layer(TD_CUDNN_F16);
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    const int64_t engine = plan.engine;
    memcpy(first, plan.knobs, sizeof first);
    td_cudnn_plan_release(&plan);
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json, .choice = 1 }), 0);
    assert_true(plan.engine != engine || strcmp(plan.knobs, first) != 0);
    td_cudnn_plan_release(&plan);
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json, .choice = 100000 }),
                     TD_CUDNN_EPLAN);
}

static void float32_uses_tensor_cores_only_if_allowed(void **state)
{
    (void)state;
    td_cudnn_conv conv = layer(TD_CUDNN_F32);
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    assert_false(plan.has_tensor_cores);
    assert_non_null(strstr(plan.refusals[0].why, "TF32"));
    td_cudnn_plan_release(&plan);
    conv.allow_tf32 = true;
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    assert_true(plan.has_tensor_cores);
    td_cudnn_plan_release(&plan);
}

static void pads_may_differ_and_filters_be_dilated(void **state)
{
    (void)state;
    td_cudnn_conv conv = layer(TD_CUDNN_F16);
    conv.pad_before[0] = conv.pad_before[1] = 0;
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    td_cudnn_plan_release(&plan);
    conv = layer(TD_CUDNN_F16);
    conv.dilation[0] = conv.dilation[1] = 2;
    conv.groups = 32;
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    td_cudnn_plan_release(&plan);
}

/* nothing can run here, but arguments are checked before cuDNN sees them */
static void execution_checks_its_arguments(void **state)
{
    (void)state;
    _Alignas(16) static char memory[64];
    void *tensors[TD_CUDNN_TENSORS] = { memory, memory, NULL };
    td_cudnn_conv conv = layer(TD_CUDNN_F16);
    conv.direction = TD_CUDNN_FILTER_GRADIENT;
    assert_int_equal(plan_of(&conv, (td_cudnn_target){ .json = json }), 0);
    assert_int_equal(td_cudnn_plan_execute(&plan, NULL, tensors, memory, error), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "tensor 2"));
    tensors[2] = memory + 2;
    assert_int_equal(td_cudnn_plan_execute(&plan, NULL, tensors, memory, error), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "aligned"));
    tensors[2] = memory;
    assert_int_equal(td_cudnn_plan_execute(&plan, NULL, tensors, NULL, error), TD_CUDNN_EREQUEST);
    assert_non_null(strstr(error, "workspace"));
    assert_true(td_cudnn_plan_execute(&plan, NULL, tensors, memory, error) >= 1000);
    td_cudnn_plan_release(&plan);
    assert_int_equal(td_cudnn_plan_execute(&plan, NULL, tensors, memory, error), TD_CUDNN_EREQUEST);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_an_error),
        cmocka_unit_test(a_handle_needs_a_device),
        cmocka_unit_test(an_old_version_cannot_plan_without_a_device),
        cmocka_unit_test(invalid_problems_are_refused),
        cmocka_unit_test(tensors_that_exceed_memory_are_refused),
        cmocka_unit_test(impossible_fusions_are_refused),
        cmocka_unit_test(a_device_is_needed),
        cmocka_unit_test(properties_come_back_as_they_were),
        cmocka_unit_test(a_workspace_limit_holds),
        cmocka_unit_test(the_next_best_can_be_asked_for),
        cmocka_unit_test(float32_uses_tensor_cores_only_if_allowed),
        cmocka_unit_test(pads_may_differ_and_filters_be_dilated),
        cmocka_unit_test(execution_checks_its_arguments),
    };
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file) {
        fprintf(stderr, "usage: test_cudnn DEVICE.json\n");
        return 2;
    }
    json[fread(json, 1, sizeof json - 1, file)] = '\0';
    fclose(file);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
