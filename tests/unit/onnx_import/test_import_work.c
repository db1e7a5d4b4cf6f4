/*
 * test_import_work.c -- a small ONNX file whose nodes all read one large computed tensor is refused
 * before that takes long
 */
#include "onnx_import/onnx_import.h"

#include <stdio.h>

#include "support/expect.h"

enum { ELEMENTS = 1 << 23, READS = (1 << 25) / ELEMENTS };

static void add(td_onnx *m, const char *op, const char *a, const char *b, const char *y)
{
    td_onnx_add_node(m, op, td_onnx_text(m, y), b ? 2 : 1, (const char *[]){ a, b },
                     td_onnx_text(m, y));
}

/* a sum with the same zeros and its mean, n_reads times; each time the zeros have a name of their
   own, as they would have after a Reshape */
static td_onnx *model_of(int n_reads)
{
    static const int64_t size = ELEMENTS, rank1 = 1, all = -1, last = 3;
    char zeros[16], sum[16], mean[16], before[16] = "x";
    td_onnx *m;
    td_onnx_value x = { .name = "x",
                        .dtype = TD_DT_F32,
                        .rank = 4,
                        .dim = {
                            { .value = -1 }, { .value = 3 }, { .value = 2 }, { .value = 1 } } };
    expect_ok(td_onnx_new(&m));
    m->opset = 17;
    td_onnx_add_value(m, &m->inputs, &x);
    td_onnx_add_tensor(m, "size", TD_DT_I64, 1, &rank1, &size);
    td_onnx_add_tensor(m, "all", TD_DT_I64, 1, &rank1, &all);
    add(m, "ConstantOfShape", "size", NULL, "zeros");
    for (int i = 0; i < n_reads; i++) {
        snprintf(zeros, sizeof zeros, "zeros%d", i);
        snprintf(sum, sizeof sum, "sum%d", i);
        snprintf(mean, sizeof mean, "mean%d", i);
        add(m, "Reshape", "zeros", "all", zeros);
        add(m, "Add", td_onnx_text(m, before), td_onnx_text(m, zeros), sum);
        add(m, "ReduceMean", td_onnx_text(m, sum), NULL, mean);
        td_onnx_attr_ints(m, "axes", 1, &last);
        snprintf(before, sizeof before, "%s", mean);
    }
    add(m, "Flatten", td_onnx_text(m, before), NULL, "y");
    const td_onnx_value y = {
        .name = "y", .dtype = TD_DT_F32, .rank = 2, .dim = { { .value = -1 }, { .value = 6 } }
    };
    td_onnx_add_value(m, &m->outputs, &y);
    expect_ok(m->st);
    return m;
}

static void constants_have_a_limit_in_all(void **state)
{
    (void)state;
    const td_onnx_import_opts o = { .batch = 4, .is_model = true };
    td_onnx_graph g;
    td_onnx *m = model_of(READS);
    expect_ok(td_graph_of_onnx(m, "m", &o, &g));
    td_onnx_graph_release(&g);
    td_onnx_free(m);
    m = model_of(READS + 1);
    expect_error(td_graph_of_onnx(m, "m", &o, &g), TD_EUNSUPPORTED,
                 "computed operands of too many elements in all");
    td_onnx_graph_release(&g);
    td_onnx_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(constants_have_a_limit_in_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
