/*
 * test_device.c -- opening devices, choosing kernels and saying why, layouts that are preferred
 */
#include "support/expect.h"

#include "ops/ops.h"
#include "runtime/device.h"
#include "runtime/kernel_choice.h"
#include "support/graphs.h"

static void devices_have_names(void **state)
{
    (void)state;
    td_device *dev = (td_device *)&dev;
    expect_error(td_device_open("gpu", &dev), TD_EUSAGE, "device 'gpu', wanted");
    assert_null(dev);
    expect_ok(td_device_open(NULL, &dev));
    assert_string_equal(dev->name, "cpu");
    td_device_close(dev);
    td_device_close(NULL);
}

static void a_device_needs_memory(void **state)
{
    (void)state;
    td_device *dev;
    td_alloc_fail_at(1);
    td_status st = td_device_open("cpu", &dev);
    td_alloc_fail_at(0);
    expect_error(st, TD_ENOMEM, "cannot allocate");
    assert_null(dev);
}

static void backends_are_listed_best_first(void **state)
{
    (void)state;
    const char *text = NULL, *last = NULL;
    int n = 0;
    for (; td_backend_name_at(n, &text); n++) {
        last = td_backend_name_at(n, NULL);
        assert_non_null(text);
    }
    assert_in_range(n, 1, TD_BACKENDS_MAX);
    assert_string_equal(last, "ref");
    assert_null(td_backend_at(-1));
    assert_null(td_backend_at(n));
}

static void every_op_that_runs_has_a_reference_kernel(void **state)
{
    (void)state;
    int n;
    const td_op *const *ops = td_op_all(&n);
    const td_backend *ref = NULL;
    for (int i = 0; td_backend_at(i); i++)
        ref = td_backend_at(i);
    for (int i = 0; i < n; i++) {
        bool has_kernel = ops[i]->is_leaf || ops[i]->is_composite || ops[i]->is_collective;
        for (int k = 0; k < ref->n_kernels; k++)
            has_kernel = has_kernel || ref->kernels[k]->op == ops[i];
        if (!has_kernel)
            fail_msg("no reference kernel for %s", ops[i]->name);
    }
}

static void refusals_are_told(void **state)
{
    (void)state;
    td_device *dev;
    td_text why = { 0 };
    td_graph *g =
        td_test_graph("%x:f64[2,3] = input\n%b:f64[2,3]@ba = input\n"
                      "%y = relu %x\n%z = relu %b\n%s = reorder %b\n%t = softmax %s\n"
                      "%u:f32[2,20,4,4]@aBcd16b = input\n%v:f32[2,20,1,1]@aBcd16b = input\n"
                      "%w = add %u, %v\noutput w = %w\n");
    expect_ok(td_device_open("cpu", &dev));
    const td_kernel *k = td_device_select(dev, td_test_value(g, "y")->producer, &why);
    assert_non_null(k);
    assert_string_equal(k->name, "ref_relu");
    td_text_release(&why);
    assert_null(td_device_select(dev, td_test_value(g, "w")->producer, &why));
    assert_non_null(strstr(td_text_get(&why), "ref_add: "));
    assert_non_null(strstr(td_text_get(&why), "; ref_add: ")); /* two kernels, two reasons */
    assert_null(td_device_select(dev, td_test_value(g, "w")->producer, NULL));
    assert_true(dev->target.supports(dev->target.ctx, td_test_value(g, "z")->producer));
    assert_false(dev->target.supports(dev->target.ctx, td_test_value(g, "w")->producer));
    td_text_release(&why);
    td_device_close(dev);
    td_graph_free(g);
}

/* conv gets the layouts that the device prefers for it */
static void take_preferred(td_device *dev, td_node *conv)
{
    td_node_layouts w;
    assert_true(dev->target.preferred_layout(dev->target.ctx, conv, &w));
    strcpy(conv->in[0]->type.layout, w.in[0]);
    strcpy(conv->in[1]->type.layout, w.in[1]);
    strcpy(conv->out[0]->type.layout, w.out);
    assert_true(dev->target.supports(dev->target.ctx, conv));
}

static void preferred_layouts_are_ones_that_a_kernel_takes(void **state)
{
    (void)state;
    td_device *cpu, *ref;
    td_node_layouts w;
    td_graph *g = td_test_graph("%x:f32[2,32,8,8] = input\n%f:f32[64,32,3,3] = param\n"
                                "%y = conv2d %x, %f {pad=1}\n%z = relu %y\noutput z = %z\n");
    td_node *conv = td_test_value(g, "y")->producer;
    expect_ok(td_device_open("cpu", &cpu));
    expect_ok(td_device_open("ref", &ref));
    assert_false(ref->target.preferred_layout(ref->target.ctx, conv, &w));
    assert_false(
        cpu->target.preferred_layout(cpu->target.ctx, td_test_value(g, "z")->producer, &w));
    if (TD_HAVE_DNNL) {
        take_preferred(cpu, conv);
        const td_kernel *k = td_device_select(cpu, conv, NULL);
        assert_string_equal(k->name, "dnnl_conv");
    }
    td_device_close(cpu);
    td_device_close(ref);
    td_graph_free(g);
}

/* oneDNN's filters of one block of groups have two dimensions of one element in any order */
static void depthwise_convolutions_of_one_block_are_not_plain(void **state)
{
    (void)state;
    td_device *cpu;
    td_graph *g = td_test_graph(
        "%x:f32[1,16,8,8] = input\n%f:f32[16,1,3,3] = param\n%b:f32[16] = param\n"
        "%y = conv2d_fused %x, %f, %b {pad=1, groups=16, relu=true}\noutput y = %y\n");
    td_node *conv = td_test_value(g, "y")->producer;
    expect_ok(td_device_open("cpu", &cpu));
    if (TD_HAVE_DNNL) {
        take_preferred(cpu, conv);
        assert_string_not_equal(conv->in[0]->type.layout, "");
        assert_string_not_equal(conv->out[0]->type.layout, "");
    }
    td_device_close(cpu);
    td_graph_free(g);
}

static void threads_are_set(void **state)
{
    (void)state;
    int before = td_threads();
    td_set_threads(1);
    assert_int_equal(td_threads(), 1);
    td_set_threads(0);
    assert_true(td_threads() >= 1);
    td_set_threads(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_names),
        cmocka_unit_test(a_device_needs_memory),
        cmocka_unit_test(backends_are_listed_best_first),
        cmocka_unit_test(every_op_that_runs_has_a_reference_kernel),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(preferred_layouts_are_ones_that_a_kernel_takes),
        cmocka_unit_test(depthwise_convolutions_of_one_block_are_not_plain),
        cmocka_unit_test(threads_are_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
