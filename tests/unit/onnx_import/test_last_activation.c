/*
 * test_last_activation.c -- the logits of models that end with probabilities
 */
#include "onnx_import/onnx_import.h"

#include "ir/graph.h"
#include "ir/op.h"
#include "support/expect.h"

enum { CLASSES = 12, NO_AXIS = 99 };

static void add(td_onnx *m, const char *op, const char *x, const char *y)
{
    td_onnx_add_node(m, op, y, 1, (const char *[]){ x }, y);
}

/* images, Flatten, Relu and `op` with an axis */
static td_onnx *model_of(const char *op, int axis)
{
    td_onnx *m;
    const td_onnx_value x = {
        .name = "x",
        .dtype = TD_DT_F32,
        .rank = 4,
        .dim = { { .value = -1 }, { .value = 3 }, { .value = 2 }, { .value = 2 } }
    };
    const td_onnx_value y = {
        .name = "y", .dtype = TD_DT_F32, .rank = 2, .dim = { { .value = -1 }, { .value = CLASSES } }
    };
    expect_ok(td_onnx_new(&m));
    m->opset = 17;
    td_onnx_add_value(m, &m->inputs, &x);
    td_onnx_add_value(m, &m->outputs, &y);
    add(m, "Flatten", "x", "flat");
    add(m, "Relu", "flat", "rectified");
    add(m, op, "rectified", "y");
    if (axis != NO_AXIS)
        td_onnx_attr_int(m, "axis", axis);
    expect_ok(m->st);
    return m;
}

/* `op` after which the logits are, and the op that makes them */
static void expect_logits(const char *op, int axis, const char *output, const char *after,
                          const char *made_by, bool multi_label)
{
    td_onnx *m = model_of(op, axis);
    td_onnx_graph g;
    const td_onnx_import_opts o = { .batch = 4, .is_model = true, .output = output };
    expect_ok(td_graph_of_onnx(m, "m", &o, &g));
    const td_value *logits = td_graph_output_value(g.graph, "logits");
    assert_non_null(logits);
    assert_int_equal(logits->type.dim[1], CLASSES);
    assert_string_equal(logits->producer->op->name, made_by);
    assert_string_equal(g.last_activation ? g.last_activation->op : "", after);
    assert_int_equal(g.multi_label, multi_label);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
}

static void probabilities_are_left_out(void **state)
{
    (void)state;
    expect_logits("Softmax", NO_AXIS, NULL, "Softmax", "relu", false);
    expect_logits("Softmax", -1, NULL, "Softmax", "relu", false);
    expect_logits("Softmax", 1, "y", "Softmax", "relu", false);
    expect_logits("Sigmoid", NO_AXIS, NULL, "Sigmoid", "relu", true);
}

static void other_results_stay(void **state)
{
    (void)state;
    expect_logits("Softmax", 0, NULL, "", "transpose", false); /* over the images of a batch */
    expect_logits("Tanh", NO_AXIS, NULL, "", "tanh", false);
    expect_logits("Sigmoid", NO_AXIS, "rectified", "", "relu", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_left_out),
        cmocka_unit_test(other_results_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
