/*
 * test_autocast.c -- precision decided op by op, before gradients exist
 *
 * tests/golden/passes/autocast_* show whole graphs; here is what holds behind the grad pass.
 */
#include "support/expect.h"

#include "ops/ops.h"
#include "pass/amp.h"
#include "pass/pass.h"
#include "support/graphs.h"

/* a filter used five times, a norm, a softmax beside the loss */
static const char text[] = "%x:f32[2,8,6,6] = input\n"
                           "%labels:i64[2] = input\n"
                           "%lr:f32[] = input\n"
                           "%w:f32[8,8,3,3] = param\n"
                           "%m.w:f32[8,8,3,3] = param {role=momentum}\n"
                           "%g:f32[8] = param\n"
                           "%m.g:f32[8] = param {role=momentum}\n"
                           "%b:f32[8] = param\n"
                           "%fc:f32[5,8] = param\n"
                           "%m.fc:f32[5,8] = param {role=momentum}\n"
                           "%bias:f32[5] = param\n"
                           "%m.bias:f32[5] = param {role=momentum}\n"
                           "%c1 = conv2d %x, %w {pad=1}\n"
                           "%c2 = conv2d %c1, %w {pad=1}\n"
                           "%n, %m, %s = batch_norm %c2, %g, %b\n"
                           "%r = relu %n\n"
                           "%c3 = conv2d %r, %w {pad=1}\n"
                           "%c4 = conv2d %c3, %w {pad=1}\n"
                           "%c5 = conv2d %c4, %w {pad=1}\n"
                           "%p = global_avg_pool %c5\n"
                           "%y = linear %p, %fc, %bias\n"
                           "%q = softmax %y\n"
                           "%h = one_hot %labels {classes=5}\n"
                           "%l = softmax_cross_entropy %y, %h\n"
                           "%z = mean %l\n"
                           "%dw = gradient %z, %w\n"
                           "%dg = gradient %z, %g\n"
                           "%dfc = gradient %z, %fc\n"
                           "%dbias = gradient %z, %bias\n"
                           "sgd %w, %m.w, %dw, %lr\n"
                           "sgd %g, %m.g, %dg, %lr\n"
                           "sgd %fc, %m.fc, %dfc, %lr\n"
                           "sgd %bias, %m.bias, %dbias, %lr\n"
                           "output z = %z\n"
                           "output q = %q\n";

/* through all passes up to fuse */
static td_graph *rewritten(const char *from, const td_amp_opts *o)
{
    const td_pass *pass;
    td_graph *g = td_test_graph(from), *next;
    for (int i = 0; (pass = td_pass_at(i)) != NULL && strcmp(pass->name, "fuse") != 0; i++) {
        expect_ok(td_pass_run(pass, g, &td_test_target, o, &next));
        td_graph_free(g);
        g = next;
    }
    return g;
}

static td_dtype dtype_of(const td_graph *g, const char *name)
{
    return td_test_value(g, name)->type.dtype;
}

/* nodes of an op whose operand 0 is of dtype d */
static int count(const td_graph *g, const td_op *op, td_dtype d)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op && td_in_type(g->nodes[i], 0)->dtype == d;
    return n;
}

static const td_node *update_of(const td_graph *g, const char *weight)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == &td_op_sgd && strcmp(g->nodes[i]->in[0]->name, weight) == 0)
            return g->nodes[i];
    fail_msg("no update of '%s'", weight);
    return NULL;
}

static void a_weight_is_cast_once_however_often_used(void **state)
{
    (void)state;
    const td_amp_opts o = { .precision = TD_PRECISION_BF16, .level = TD_AMP_LEVEL_AUTOCAST };
    td_graph *g = rewritten(text, &o);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == &td_op_cast && strcmp(g->nodes[i]->in[0]->name, "w") == 0;
    assert_int_equal(n, 1);
    assert_int_equal(count(g, &td_op_conv2d, TD_DT_BF16), 5);
    td_graph_free(g);
}

static void gradients_have_the_types_of_the_forward_ops(void **state)
{
    (void)state;
    static const td_amp_level levels[] = { TD_AMP_LEVEL_AUTOCAST, TD_AMP_LEVEL_O1,
                                           TD_AMP_LEVEL_O2 };
    for (int i = 0; i < 3; i++) {
        const td_amp_opts o = { .precision = TD_PRECISION_FP16, .level = levels[i] };
        td_graph *g = rewritten(text, &o);
        assert_int_equal(count(g, &td_op_conv2d_grad_x, TD_DT_F16), 4);
        assert_int_equal(count(g, &td_op_conv2d_grad_w, TD_DT_F16), 5);
        assert_int_equal(count(g, &td_op_batch_norm_grad, TD_DT_F16), 1);
        assert_int_equal(count(g, &td_op_relu_grad, TD_DT_F16), 1);
        assert_int_equal(count(g, &td_op_softmax_cross_entropy, TD_DT_F32), 1);
        assert_int_equal(count(g, &td_op_softmax_cross_entropy_grad, TD_DT_F32), 1);
        assert_int_equal(count(g, &td_op_sgd, TD_DT_F32), 4);
        for (int k = 0; k < g->n_nodes; k++)
            for (int j = 0; g->nodes[k]->op == &td_op_sgd && j < g->nodes[k]->n_in; j++)
                assert_int_equal(td_in_type(g->nodes[k], j)->dtype, TD_DT_F32);
        td_graph_free(g);
    }
}

static void o3_stores_weights_in_half_but_not_norms(void **state)
{
    (void)state;
    const td_amp_opts o = { .precision = TD_PRECISION_FP16, .level = TD_AMP_LEVEL_O3 };
    td_graph *g = rewritten(text, &o);
    assert_int_equal(dtype_of(g, "w"), TD_DT_F16);
    assert_int_equal(dtype_of(g, "m.w"), TD_DT_F16);
    assert_int_equal(dtype_of(g, "fc"), TD_DT_F16);
    assert_int_equal(dtype_of(g, "g"), TD_DT_F32);
    assert_int_equal(dtype_of(g, "m.g"), TD_DT_F32);
    assert_int_equal(dtype_of(g, "bias"), TD_DT_F32);
    assert_int_equal(td_in_type(update_of(g, "w"), 2)->dtype, TD_DT_F16);
    assert_int_equal(td_in_type(update_of(g, "w"), 3)->dtype, TD_DT_F32);
    assert_int_equal(td_in_type(update_of(g, "g"), 2)->dtype, TD_DT_F32);
    td_graph_free(g);
}

static void the_lists_are_cudas_for_fp16_and_the_cpus_for_bf16(void **state)
{
    (void)state;
    static const struct {
        td_precision precision;
        td_amp_level level;
        td_dtype softmax;
    } rows[] = { { TD_PRECISION_BF16, TD_AMP_LEVEL_AUTOCAST, TD_DT_BF16 },
                 { TD_PRECISION_FP16, TD_AMP_LEVEL_AUTOCAST, TD_DT_F32 },
                 { TD_PRECISION_BF16, TD_AMP_LEVEL_O1, TD_DT_F32 },
                 { TD_PRECISION_BF16, TD_AMP_LEVEL_O2, TD_DT_F32 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const td_amp_opts o = { .precision = rows[i].precision, .level = rows[i].level };
        td_graph *g = rewritten(text, &o);
        assert_int_equal(count(g, &td_op_softmax, rows[i].softmax), 1);
        for (int k = 0; k < g->n_outputs; k++) /* what leaves the graph has the type it had */
            assert_int_equal(g->outputs[k].value->type.dtype, TD_DT_F32);
        td_graph_free(g);
    }
}

static void where_half_meets_float32(void **state)
{
    (void)state;
    static const char sum[] = "%x:f32[2,8,6,6] = input\n"
                              "%w:f32[8,8,3,3] = param\n"
                              "%c = conv2d %x, %w {pad=1}\n"
                              "%s = add %c, %x\n"
                              "output s = %s\n";
    td_amp_opts o = { .precision = TD_PRECISION_BF16, .level = TD_AMP_LEVEL_AUTOCAST };
    td_graph *g = rewritten(sum, &o);
    assert_int_equal(count(g, &td_op_add, TD_DT_F32), 1);
    td_graph_free(g);
    o.level = TD_AMP_LEVEL_O2;
    g = rewritten(sum, &o);
    assert_int_equal(count(g, &td_op_add, TD_DT_BF16), 1);
    td_graph_free(g);
}

static void float64_stays_float64(void **state)
{
    (void)state;
    static const char wide[] = "%x:f64[2,8,6,6] = input\n"
                               "%w:f64[8,8,3,3] = param\n"
                               "%c:f64[2,8,6,6] = conv2d %x, %w {pad=1}\n"
                               "%r:f64[2,8,6,6] = relu %c\n"
                               "output r = %r\n";
    for (int level = 0; level <= TD_AMP_LEVEL_O3; level++) {
        const td_amp_opts o = { .precision = TD_PRECISION_FP16, .level = (td_amp_level)level };
        td_graph *g = rewritten(wide, &o);
        char *found = td_test_print(g);
        assert_string_equal(found, wide);
        td_text_free(found);
        td_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_cast_once_however_often_used),
        cmocka_unit_test(gradients_have_the_types_of_the_forward_ops),
        cmocka_unit_test(o3_stores_weights_in_half_but_not_norms),
        cmocka_unit_test(the_lists_are_cudas_for_fp16_and_the_cpus_for_bf16),
        cmocka_unit_test(where_half_meets_float32),
        cmocka_unit_test(float64_stays_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
