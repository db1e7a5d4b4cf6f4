/*
 * test_build.c -- the sticky builder: what it makes, its first failure, names, and no memory
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <stdio.h>

#include "ir/build.h"
#include "ops/ops.h"
#include "support/graphs.h"

static td_type f32(int rank, const int64_t *dim)
{
    return td_type_of(TD_DT_F32, rank, dim);
}

static td_type image(void)
{
    return f32(4, (int64_t[]){ 2, 3, 8, 8 });
}

static void expect_text(td_builder *b, const char *wanted)
{
    td_graph *g;
    expect_ok(td_build_end(b, &g));
    char *text = td_test_print(g);
    assert_string_equal(text, wanted);
    td_text_free(text);
    td_graph_free(g);
}

/* the builder failed, and says `part` */
static void expect_failure(td_builder *b, td_status st, const char *part)
{
    td_graph *g = (td_graph *)&g;
    expect_error(td_build_end(b, &g), st, part);
    assert_null(g);
}

static void the_example_of_the_header_is_a_graph(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "images", f32(4, (int64_t[]){ 8, 3, 32, 32 }));
    td_value *w = td_param(b, "conv.weight", TD_DT_F32, 4, (int64_t[]){ 16, 3, 3, 3 },
                           "init=normal, scale=0.2");
    td_output(b, "logits", td_relu(b, td_conv2d(b, x, w, "pad=1")));
    expect_text(b, "%images:f32[8,3,32,32] = input\n"
                   "%conv.weight:f32[16,3,3,3] = param {init=normal, scale=0.2}\n"
                   "%1:f32[8,16,32,32] = conv2d %images, %conv.weight {pad=1}\n"
                   "%2:f32[8,16,32,32] = relu %1\n"
                   "output logits = %2\n");
}

static void every_helper_emits_its_op(void **state)
{
    (void)state;
    int64_t c[1] = { 3 };
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", image());
    td_value *v[4];
    static const char *const names[4] = { "g", "b", "m", "v" };
    for (int i = 0; i < 4; i++)
        v[i] = td_param(b, names[i], TD_DT_F32, 1, c, NULL);
    td_value *y = td_batch_norm_train(b, x, v[0], v[1], v[2], v[3], "momentum=0.3, eps=1e-3");
    y = td_sigmoid(b, td_relu6(b, td_relu(b, y)));
    y = td_max_pool2d(b, y, "stride=2");
    y = td_avg_pool2d(b, y, NULL);
    y = td_concat(b, 2, (td_value *[]){ y, y }, 1);
    y = td_resize_nearest(b, y, 4, 5);
    y = td_global_avg_pool(b, y);
    y = td_mul(b, y, td_add(b, y, y));
    td_value *labels = td_input(b, "labels", td_type_1d(TD_DT_I64, 2));
    td_value *loss = td_softmax_cross_entropy(b, y, td_one_hot(b, labels, 6, 0.1));
    td_output(b, "p", td_softmax(b, td_reshape(b, y, 1, (int64_t[]){ 12 })));
    td_output(b, "sum", td_sum(b, td_cast(b, loss, TD_DT_F64)));
    td_value *mean = td_mean(b, loss);
    td_output(b, "loss", mean);
    td_output(b, "dg", td_gradient(b, mean, v[0]));
    expect_text(b, "%x:f32[2,3,8,8] = input\n"
                   "%g:f32[3] = param\n"
                   "%b:f32[3] = param\n"
                   "%m:f32[3] = param\n"
                   "%v:f32[3] = param\n"
                   "%1:f32[2,3,8,8], %2:f32[3], %3:f32[3] = batch_norm %x, %g, %b {eps=0.001}\n"
                   "batch_norm_update %m, %v, %2, %3 {momentum=0.3, count=128}\n"
                   "%4:f32[2,3,8,8] = relu %1\n"
                   "%5:f32[2,3,8,8] = relu6 %4\n"
                   "%6:f32[2,3,8,8] = sigmoid %5\n"
                   "%7:f32[2,3,4,4], %8:u8[2,3,4,4] = max_pool2d %6 {stride=2}\n"
                   "%9:f32[2,3,3,3] = avg_pool2d %7\n"
                   "%10:f32[2,6,3,3] = concat %9, %9\n"
                   "%11:f32[2,6,4,5] = resize_nearest %10 {height=4, width=5}\n"
                   "%12:f32[2,6] = global_avg_pool %11\n"
                   "%13:f32[2,6] = add %12, %12\n"
                   "%14:f32[2,6] = mul %12, %13\n"
                   "%labels:i64[2] = input\n"
                   "%15:f32[2,6] = one_hot %labels {classes=6, smoothing=0.1}\n"
                   "%16:f32[2] = softmax_cross_entropy %14, %15\n"
                   "%17:f32[12] = reshape %14 {shape=12}\n"
                   "%18:f32[12] = softmax %17\n"
                   "%19:f64[2] = cast %16 {to=f64}\n"
                   "%20:f64[] = sum %19\n"
                   "%21:f32[] = mean %16\n"
                   "%22:f32[3] = gradient %21, %g\n"
                   "output p = %18\n"
                   "output sum = %20\n"
                   "output loss = %21\n"
                   "output dg = %22\n");
}

static void linear_takes_a_bias_or_none(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", f32(2, (int64_t[]){ 2, 3 }));
    td_value *w = td_param(b, "w", TD_DT_F32, 2, (int64_t[]){ 4, 3 }, NULL);
    td_value *bias = td_param(b, "bias", TD_DT_F32, 1, (int64_t[]){ 4 }, NULL);
    td_value *y = td_linear(b, x, w, NULL);
    td_output(b, "y", td_add(b, y, td_linear(b, x, w, bias)));
    expect_text(b, "%x:f32[2,3] = input\n"
                   "%w:f32[4,3] = param\n"
                   "%bias:f32[4] = param\n"
                   "%1:f32[2,4] = linear %x, %w\n"
                   "%2:f32[2,4] = linear %x, %w, %bias\n"
                   "%3:f32[2,4] = add %1, %2\n"
                   "output y = %3\n");
}

static void the_first_failure_stays(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", image());
    td_value *w = td_param(b, "w", TD_DT_F32, 4, (int64_t[]){ 4, 5, 3, 3 }, NULL);
    td_value *bad = td_conv2d(b, x, w, NULL);
    assert_int_equal(td_value_type(bad).rank, 0);
    assert_string_equal(td_value_name(bad), "");
    assert_false(td_build_ok(b));
    td_value *y = td_relu(b, td_reshape(b, bad, 2, (int64_t[]){ 1, 1 }));
    td_output(b, "y", y);
    td_output(b, "not a name", NULL);
    assert_int_equal(td_build_param_count(b), 0);
    expect_failure(b, TD_ESHAPE, "3 channels, filter needs 5 x 1");
}

static void expect_conv_failure(const char *attrs, const char *part)
{
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", image());
    td_value *w = td_param(b, "w", TD_DT_F32, 4, (int64_t[]){ 4, 3, 3, 3 }, NULL);
    td_output(b, "y", td_conv2d(b, x, w, attrs));
    expect_failure(b, TD_EFORMAT, part);
}

static void attributes_are_checked(void **state)
{
    (void)state;
    expect_conv_failure("stride=0", "stride");
    expect_conv_failure("strid=2", "did you mean 'stride'");
    expect_conv_failure("stride=two", "stride");
    expect_conv_failure("stride", "conv2d");
    expect_conv_failure("stride=2,", "a name is missing");
}

static void operands_are_checked(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_relu(b, NULL);
    expect_failure(b, TD_EARG, "relu: operand 0 is missing");

    b = td_build_begin();
    td_concat(b, -1, NULL, 0);
    expect_failure(b, TD_EARG, "concat: -1 operands");

    b = td_build_begin();
    td_concat(b, 0, NULL, 0);
    expect_failure(b, TD_ESHAPE, "0 operands, wanted 1");

    b = td_build_begin();
    td_value *many[TD_IN_MAX + 1], *x = td_input(b, "x", image());
    for (int i = 0; i <= TD_IN_MAX; i++)
        many[i] = x;
    td_concat(b, TD_IN_MAX + 1, many, 0);
    expect_failure(b, TD_ESHAPE, "concat: has 17 operands");

    b = td_build_begin();
    x = td_input(b, "x", td_type_1d(TD_DT_F32, 3));
    td_global_avg_pool(b, x);
    expect_failure(b, TD_ESHAPE, "global_avg_pool: operand 0 has 1 dimensions, wanted 4");

    b = td_build_begin();
    td_relu(b, td_input(b, "x", td_type_1d(TD_DT_I64, 3)));
    expect_failure(b, TD_ESHAPE, "relu: operand 0 is i64, wanted a float type");

    b = td_build_begin();
    x = td_input(b, "x", td_type_1d(TD_DT_F32, 3));
    td_sgd(b, x, x, x, x, NULL);
    expect_failure(b, TD_ESHAPE, "sgd: operand 0 is overwritten and must be a parameter");

    b = td_build_begin();
    td_value *w = td_param(b, "w", TD_DT_F32, 0, NULL, NULL);
    td_sgd(b, w, w, w, w, NULL);
    expect_failure(b, TD_ESHAPE, "sgd: operands 0 and 1 are both 'w', which is overwritten");
}

static void values_of_another_graph_are_refused(void **state)
{
    (void)state;
    td_builder *a = td_build_begin(), *b = td_build_begin();
    td_value *x = td_input(a, "x", image());
    td_output(b, "y", td_relu(b, x));
    expect_failure(b, TD_ESHAPE, "relu: operand 0 belongs to another graph");
    b = td_build_begin();
    td_output(b, "y", x);
    expect_failure(b, TD_ESHAPE, "output 'y' belongs to another graph");
    td_build_abandon(a);
}

static void expect_leaf_failure(const char *name, td_type type, td_status st, const char *part)
{
    td_builder *b = td_build_begin();
    td_input(b, name, type);
    expect_failure(b, st, part);
}

static void leaves_are_checked(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    expect_leaf_failure("", image(), TD_EARG, "' is not a valid name");
    expect_leaf_failure("two words", image(), TD_EARG, "'two words'");
    expect_leaf_failure("x%", image(), TD_EARG, "' is not a valid name");
    expect_leaf_failure(name, image(), TD_EARG, "' is not a valid name");
    expect_leaf_failure("x", td_type_1d(TD_DT_F32, 0), TD_ESHAPE, "dimension 0 of 'x' is 0");
    expect_leaf_failure("x", td_type_2d(TD_DT_F32, -4, -4), TD_ESHAPE, "dimension 0 of 'x' is -4");
    expect_leaf_failure("x", td_type_1d(TD_DT_NONE, 2), TD_ESHAPE, "or has an unknown");
    expect_leaf_failure("x", td_type_2d(TD_DT_F32, 1ll << 40, 1ll << 40), TD_ESHAPE, "too large");
    td_type t = { .dtype = TD_DT_F32, .rank = TD_RANK_MAX + 1 };
    expect_leaf_failure("x", t, TD_ESHAPE, "'x' has 6 dimensions, wanted at most 5");
    t.rank = -1;
    expect_leaf_failure("x", t, TD_ESHAPE, "'x' has -1 dimensions");
    t = image();
    strcpy(t.layout, "abc");
    expect_leaf_failure("x", t, TD_ESHAPE, "layout 'abc'");

    td_builder *b = td_build_begin();
    td_input(b, "x", image());
    td_input(b, "x", image());
    expect_failure(b, TD_EARG, "name 'x' is");
}

static void a_parameter_is_made_once(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *w = td_param(b, "w", TD_DT_F32, 1, (int64_t[]){ 3 }, "init=ones");
    assert_ptr_equal(td_param(b, "w", TD_DT_F32, 1, (int64_t[]){ 3 }, NULL), w);
    td_value *v = td_param(b, "v", TD_DT_F32, 1, (int64_t[]){ 3 }, NULL);
    assert_int_equal(td_build_param_count(b), 2);
    assert_ptr_equal(td_build_param(b, 0), w);
    assert_ptr_equal(td_build_param(b, 1), v);
    assert_null(td_build_param(b, 2));
    assert_null(td_build_param(b, -1));
    td_param(b, "w", TD_DT_F32, 1, (int64_t[]){ 4 }, NULL);
    expect_failure(b, TD_EARG, "name 'w' is");
}

static void outputs_are_checked(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_output(b, "y", NULL);
    expect_failure(b, TD_EARG, "output 'y' has no value");

    b = td_build_begin();
    td_value *x = td_input(b, "x", image());
    td_output(b, "y y", x);
    expect_failure(b, TD_EARG, "output 'y y'");

    b = td_build_begin();
    x = td_input(b, "x", image());
    td_output(b, "y", x);
    td_output(b, "y", x);
    expect_failure(b, TD_EARG, "name 'y' is");
}

static void apply_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *op, *attrs;
        int n_in, n_out;
        const char *part;
    } rows[] = {
        { "rleu", NULL, 1, 1, "'rleu'" },
        { "input", NULL, 0, 1, "input requires a name: use" },
        { "relu", NULL, 1, 2, "relu: has 1 results, wanted 2" },
        { "relu", "stride=2", 1, 1, "relu: has no attributes" },
        { "concat", NULL, 17, 1, "concat: more than 16 operands" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_builder *b = td_build_begin();
        td_value *in[17], *out[2] = { NULL, NULL }, *x = td_input(b, "x", image());
        for (int k = 0; k < 17; k++)
            in[k] = x;
        td_apply(b, rows[i].op, rows[i].n_in, in, rows[i].attrs, rows[i].n_out, out);
        for (int k = 0; k < rows[i].n_out; k++)
            assert_non_null(out[k]);
        expect_failure(b, TD_EARG, rows[i].part);
    }
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", image()), *out[2];
    td_apply(b, "max_pool2d", 1, &x, "kernel=3, stride=2, pad=1", 2, out);
    td_output(b, "y", out[0]);
    expect_text(b, "%x:f32[2,3,8,8] = input\n"
                   "%1:f32[2,3,4,4], %2:u8[2,3,4,4] = max_pool2d %x {kernel=3, stride=2, pad=1}\n"
                   "output y = %1\n");
}

static void unnamed_values_get_free_numbers(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "2", td_type_1d(TD_DT_F32, 2));
    td_value *y = td_relu(b, td_relu(b, x)), *z = td_relu(b, y), *u = td_relu(b, z);
    td_build_set_name(b, z, "z");
    td_build_set_name(b, u, "z");
    td_output(b, "y", u);
    expect_text(b, "%2:f32[2] = input\n"
                   "%1:f32[2] = relu %2\n"
                   "%3:f32[2] = relu %1\n"
                   "%z:f32[2] = relu %3\n"
                   "%z_2:f32[2] = relu %z\n"
                   "output y = %z_2\n");
}

static void long_names_stay_readable(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, name, td_type_1d(TD_DT_F32, 2)), *y = td_relu(b, x),
             *z = td_relu(b, y);
    td_build_set_name(b, y, name);
    td_build_set_name(b, z, name);
    td_output(b, "y", z);
    td_graph *g, *again;
    expect_ok(td_build_end(b, &g));
    char *text = td_test_print(g);
    expect_ok(td_graph_parse(text, "text", &again));
    td_graph_free(again);
    td_text_free(text);
    td_graph_free(g);
}

static void a_layout_must_fit(void **state)
{
    (void)state;
    td_builder *b = td_build_begin();
    td_value *y = td_relu(b, td_input(b, "x", image()));
    td_build_set_layout(b, y, "aBc16b");
    expect_failure(b, TD_ESHAPE, "'aBc16b'");
}

static td_status build_all(td_graph **out)
{
    td_builder *b = td_build_begin();
    int64_t c[1] = { 3 };
    td_value *x = td_input(b, "x", image());
    td_value *w = td_param(b, "w", TD_DT_F32, 4, (int64_t[]){ 3, 3, 3, 3 }, "init=normal");
    td_value *v[4];
    static const char *const names[4] = { "g", "b", "m", "v" };
    for (int i = 0; i < 4; i++)
        v[i] = td_param(b, names[i], TD_DT_F32, 1, c, NULL);
    td_value *y =
        td_batch_norm_train(b, td_conv2d(b, x, w, "pad=1"), v[0], v[1], v[2], v[3], "eps=1e-3");
    td_build_set_name(b, y, "y");
    int64_t dim[2] = { 2, td_value_type(y).dim[1] * td_value_type(y).dim[2] * 8 };
    td_value *z = td_cast(b, td_reshape(b, y, 2, dim), TD_DT_F64);
    td_value *loss = td_mean(b, td_cast(b, z, TD_DT_F32));
    td_sgd(b, w, td_param(b, "mom", TD_DT_F32, 4, (int64_t[]){ 3, 3, 3, 3 }, NULL),
           td_gradient(b, loss, w), td_param(b, "lr", TD_DT_F32, 0, NULL, NULL), "momentum=0.9");
    td_output(b, "loss", loss);
    return td_build_end(b, out);
}

static td_status build_and_free(void)
{
    td_graph *g;
    const td_status st = build_all(&g);
    assert_int_equal(g != NULL, st == TD_OK);
    td_graph_free(g);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    assert_true(td_test_allocations(build_and_free, 1000) > 10);
}

static void a_builder_without_memory_is_harmless(void **state)
{
    (void)state;
    td_alloc_fail_at(1);
    td_builder *a = td_build_begin();
    td_alloc_fail_at(0);
    assert_non_null(a);
    assert_false(td_build_ok(a));
    td_value *x = td_input(a, "x", image());
    assert_non_null(td_relu(a, x));
    assert_string_equal(td_build_type_text(a, &(td_type){ .dtype = TD_DT_F32 }), "");
    td_graph *g;
    expect_error(td_build_end(a, &g), TD_ENOMEM, "out of memory");
    td_graph_free(g);
    td_graph_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_header_is_a_graph),
        cmocka_unit_test(every_helper_emits_its_op),
        cmocka_unit_test(linear_takes_a_bias_or_none),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test(attributes_are_checked),
        cmocka_unit_test(operands_are_checked),
        cmocka_unit_test(values_of_another_graph_are_refused),
        cmocka_unit_test(leaves_are_checked),
        cmocka_unit_test(a_parameter_is_made_once),
        cmocka_unit_test(outputs_are_checked),
        cmocka_unit_test(apply_is_checked),
        cmocka_unit_test(unnamed_values_get_free_numbers),
        cmocka_unit_test(long_names_stay_readable),
        cmocka_unit_test(a_layout_must_fit),
        cmocka_unit_test(memory_may_fail_at_every_call),
        cmocka_unit_test(a_builder_without_memory_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
