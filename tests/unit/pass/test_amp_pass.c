/*
 * test_amp_pass.c -- what the amp pass does to the training graphs of four networks, op by op
 *
 * The tables say for every kind of op how many there are and, for each rule, how many become half
 * and how many casts stand behind them.  They hold what TensorFlow's rewrite does to the same
 * networks; docs/numerics.md lists the rows that differ, and why.
 */
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "pass/pass.h"
#include "support/graphs.h"
#include "tandem/model.h"

/* clang-format off */
static const td_amp_opts modes[] = {
    { .precision = TD_PRECISION_FP16, .rule = TD_AMP_RULE_CURRENT },
    { .precision = TD_PRECISION_FP16, .rule = TD_AMP_RULE_CLASSIC },
    { .precision = TD_PRECISION_FP16, .rule = TD_AMP_RULE_2_15 },
    { .precision = TD_PRECISION_BF16, .rule = TD_AMP_RULE_CURRENT },
    { .precision = TD_PRECISION_BF16, .rule = TD_AMP_RULE_2_15 },
};
#define N_MODES ((int)(sizeof modes / sizeof *modes))

typedef struct {
    const char *op;
    int n;
    struct {
        int half, to_half, to_wide; /* nodes in half; casts of their results */
    } is[N_MODES];
} row;

/* every figure that is the same in all modes */
#define ALL(h, n, w) { { h, n, w }, { h, n, w }, { h, n, w }, { h, n, w }, { h, n, w } }

/* in five modes: fp16 current, classic, 2.15; bf16 current, 2.15 */
static const row resnet50[] = {
    { "input",                       3, ALL(0, 1, 0) },       /* images */
    { "param",                     428, ALL(0, 54, 0) },      /* 53 filters, fc.weight: no bias */
    { "conv2d",                     53, ALL(53, 0, 0) },
    { "batch_norm",                 53, ALL(53, 0, 0) },
    { "batch_norm_update",          53, ALL(0, 0, 0) },
    { "relu",                       49,
      { { 49, 0, 1 }, { 49, 0, 1 }, { 49, 0, 1 }, { 49, 0, 0 }, { 49, 0, 1 } } },
    { "max_pool2d",                  1, ALL(1, 0, 0) },
    { "add",                        32, ALL(32, 0, 0) },      /* residuals, their gradients */
    { "global_avg_pool",             1,
      { { 0, 1, 0 }, { 0, 1, 0 }, { 0, 1, 0 }, { 1, 0, 0 }, { 0, 1, 0 } } },
    { "linear",                      1, ALL(1, 0, 1) },
    { "one_hot",                     1, ALL(0, 0, 0) },
    { "softmax_cross_entropy",       1, ALL(0, 0, 0) },
    { "mean",                        1, ALL(0, 0, 0) },
    { "constant",                    1, ALL(0, 0, 0) },
    { "broadcast_like",              1, ALL(0, 0, 0) },
    { "softmax_cross_entropy_grad",  1, ALL(0, 1, 0) },
    { "linear_grad_x",               1, ALL(1, 0, 0) },
    { "linear_grad_w",               1, ALL(1, 0, 1) },
    { "sum_to",                      1, ALL(0, 0, 0) },       /* the bias's gradient: denied */
    { "global_avg_pool_grad",        1, ALL(1, 0, 0) },
    { "relu_grad",                  49, ALL(49, 0, 0) },
    { "batch_norm_grad",            53, ALL(53, 0, 0) },
    { "conv2d_grad_w",              53, ALL(53, 0, 53) },
    { "conv2d_grad_x",              52, ALL(52, 0, 0) },
    { "max_pool2d_grad",             1, ALL(1, 0, 0) },
    { "sgd",                       161, ALL(0, 0, 0) },
    { NULL, 0, ALL(0, 0, 0) },
};

static const row se_resnext101[] = {
    { "input",                       3, ALL(0, 1, 0) },
    { "param",                    1100, ALL(0, 171, 0) },     /* 104 filters, 2 * 33 + 1 matrices */
    { "conv2d",                    104, ALL(104, 0, 0) },
    { "batch_norm",                104,
      { { 104, 0, 33 }, { 104, 0, 33 }, { 104, 0, 33 }, { 104, 0, 0 }, { 104, 0, 33 } } },
    { "batch_norm_update",         104, ALL(0, 0, 0) },
    { "relu",                      133,
      { { 133, 0, 1 }, { 133, 0, 1 }, { 133, 0, 1 }, { 133, 0, 0 }, { 133, 0, 1 } } },
    { "max_pool2d",                  1, ALL(1, 0, 0) },
    { "global_avg_pool",            34,
      { { 0, 34, 0 }, { 0, 34, 0 }, { 0, 34, 0 }, { 34, 0, 0 }, { 0, 34, 0 } } },
    /* views of gates and gradients; 66 of SE weights' gradients, cast for the update */
    { "reshape",                   198,
      { { 165, 0, 66 }, { 165, 0, 66 }, { 165, 0, 66 }, { 198, 0, 66 }, { 198, 0, 66 } } },
    { "linear",                     67, ALL(67, 0, 1) },
    { "sigmoid",                    33,
      { { 33, 0, 33 }, { 33, 0, 33 }, { 33, 0, 33 }, { 33, 0, 0 }, { 33, 0, 0 } } },
    { "mul",                        66, ALL(66, 0, 0) },
    { "add",                        99, ALL(99, 0, 0) },
    { "one_hot",                     1, ALL(0, 0, 0) },
    { "softmax_cross_entropy",       1, ALL(0, 0, 0) },
    { "mean",                        1, ALL(0, 0, 0) },
    { "constant",                    1, ALL(0, 0, 0) },
    { "broadcast_like",              1, ALL(0, 0, 0) },
    { "softmax_cross_entropy_grad",  1, ALL(0, 1, 0) },
    { "linear_grad_x",              67, ALL(67, 0, 0) },
    { "linear_grad_w",              67, ALL(67, 0, 1) },
    /* fc1's bias follows in the current rule and in bf16; fc2's is behind a denied sum in fp16 */
    { "sum_to",                     67,
      { { 33, 0, 33 }, { 0, 0, 0 }, { 0, 0, 0 }, { 66, 0, 66 }, { 66, 0, 66 } } },
    { "global_avg_pool_grad",       34, ALL(34, 0, 0) },
    /* a cast per SE block for the gate's gradient, and one for fc1's bias where that is wide */
    { "relu_grad",                 133,
      { { 133, 0, 33 }, { 133, 0, 66 }, { 133, 0, 66 }, { 133, 0, 0 }, { 133, 0, 33 } } },
    { "mul_reduce",                 33,
      { { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 33, 0, 0 }, { 0, 33, 0 } } },
    { "sigmoid_grad",               33,
      { { 0, 33, 0 }, { 0, 33, 0 }, { 0, 33, 0 }, { 33, 0, 0 }, { 33, 0, 0 } } },
    { "batch_norm_grad",           104, ALL(104, 0, 0) },
    { "conv2d_grad_w",             104, ALL(104, 0, 104) },
    { "conv2d_grad_x",             103, ALL(103, 0, 0) },
    { "max_pool2d_grad",             1, ALL(1, 0, 0) },
    { "sgd",                       446, ALL(0, 0, 0) },
    { NULL, 0, ALL(0, 0, 0) },
};

/*
 * 70 kernels, 10 of them used on five levels.  adds: 16 residuals, 2 of the pyramid and 27 where
 * gradients meet at forks are half; 40 of shared kernels' gradients, 8 of predictors' biases' and
 * the loss are not.
 */
static const row ssd320[] = {
    { "input",                     4, ALL(0, 1, 0) },
    { "param",                   732, ALL(0, 70, 0) },
    { "conv2d",                  110, ALL(110, 0, 0) },
    { "batch_norm",               97, ALL(97, 0, 0) },
    { "batch_norm_update",        97, ALL(0, 0, 0) },
    { "relu6",                    77, ALL(77, 0, 0) },
    { "relu",                     16, ALL(16, 0, 0) },
    { "max_pool2d",                4, ALL(4, 0, 0) },         /* three decimate */
    { "add",                      94,
      { { 45, 0, 0 }, { 45, 0, 2 }, { 45, 0, 2 }, { 45, 0, 0 }, { 45, 0, 0 } } },
    { "bias_add",                  3, ALL(3, 0, 0) },         /* laterals */
    { "resize_nearest",            2, ALL(2, 0, 0) },
    { "join_heads",                2, ALL(2, 0, 2) },
    { "sigmoid_focal_loss",        1, ALL(0, 0, 0) },
    { "huber_box_loss",            1, ALL(0, 0, 0) },
    { "constant",                  1, ALL(0, 0, 0) },
    { "sigmoid_focal_loss_grad",   1, ALL(0, 1, 0) },
    { "huber_box_loss_grad",       1, ALL(0, 1, 0) },
    { "join_heads_grad",          10, ALL(10, 0, 0) },
    { "conv2d_grad_w",           110, ALL(110, 0, 110) },
    { "conv2d_grad_x",           109,
      { { 109, 0, 0 }, { 109, 0, 1 }, { 109, 0, 1 }, { 109, 0, 0 }, { 109, 0, 0 } } },
    { "relu6_grad",               77, ALL(77, 0, 0) },
    { "batch_norm_grad",          97, ALL(97, 0, 0) },
    { "bias_add_grad",             3,
      { { 3, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 3, 0, 0 }, { 3, 0, 0 } } },
    { "resize_nearest_grad",       2, ALL(2, 0, 0) },
    { "relu_grad",                16, ALL(16, 0, 0) },
    { "max_pool2d_grad",           4, ALL(4, 0, 0) },
    { "sgd",                     269, ALL(0, 0, 0) },
    { NULL, 0, ALL(0, 0, 0) },
};

static const row ssd300[] = {
    { "input",                     4, ALL(0, 1, 0) },
    { "param",                   472, ALL(0, 65, 0) },
    { "conv2d",                   65, ALL(65, 0, 0) },        /* 43, 10 of extra blocks, 12 heads */
    { "batch_norm",               53, ALL(53, 0, 0) },
    { "batch_norm_update",        53, ALL(0, 0, 0) },
    { "relu",                     50, ALL(50, 0, 0) },
    { "max_pool2d",                1, ALL(1, 0, 0) },
    { "add",                      38, ALL(37, 0, 0) },        /* the loss is the other one */
    { "join_heads",                2, ALL(2, 0, 2) },
    { "multibox_class_loss",       1, ALL(0, 0, 0) },
    { "huber_box_loss",            1, ALL(0, 0, 0) },
    { "constant",                  1, ALL(0, 0, 0) },
    { "multibox_class_loss_grad",  1, ALL(0, 1, 0) },
    { "huber_box_loss_grad",       1, ALL(0, 1, 0) },
    { "join_heads_grad",          12, ALL(12, 0, 0) },
    { "conv2d_grad_w",            65, ALL(65, 0, 65) },
    { "conv2d_grad_x",            64, ALL(64, 0, 0) },
    { "relu_grad",                50, ALL(50, 0, 0) },
    { "batch_norm_grad",          53, ALL(53, 0, 0) },
    { "max_pool2d_grad",           1, ALL(1, 0, 0) },
    { "sgd",                     183, ALL(0, 0, 0) },
    { NULL, 0, ALL(0, 0, 0) },
};
/* clang-format on */

/* the graph of a training step as it comes to the pass */
static td_graph *training_with(const char *arch, td_step_opts sgd)
{
    td_model_opts model;
    const td_pass *pass;
    td_graph *g, *next;
    td_model_defaults(&model);
    model.arch = arch;
    model.num_classes = 10;
    model.image_size = strncmp(arch, "ssd", 3) == 0 ? 0 : 64;
    expect_ok(td_training_graph(&model, 2, &sgd, &g));
    for (int i = 0; (pass = td_pass_at(i)) != NULL && strcmp(pass->name, "amp") != 0; i++) {
        expect_ok(td_pass_run(pass, g, NULL, NULL, &next));
        td_graph_free(g);
        g = next;
    }
    return g;
}

static td_graph *training(const char *arch)
{
    return training_with(arch, (td_step_opts){ .momentum = 0.9, .decay = 1e-4 });
}

static td_graph *passed(const char *name, const td_graph *g, const td_amp_opts *o)
{
    td_graph *out = NULL;
    const td_pass *pass;
    for (int i = 0; (pass = td_pass_at(i)) != NULL; i++)
        if (strcmp(pass->name, name) == 0)
            expect_ok(td_pass_run(pass, g, NULL, o, &out));
    assert_non_null(out);
    return out;
}

static const row *row_of(const row *table, const char *op)
{
    for (; table->op; table++)
        if (strcmp(table->op, op) == 0)
            return table;
    return NULL;
}

/* rows that are not as the table says */
static int count_wrong(const row *table, const td_amp_explanation *e, int mode)
{
    int n_wrong = 0, n_rows = 0;
    for (const row *r = table; r->op; r++) {
        int n = 0, half = 0, to_half = 0, to_wide = 0;
        for (int i = 0; i < e->n_rows; i++)
            if (strcmp(e->rows[i].node->op->name, r->op) == 0) {
                n++;
                half += e->rows[i].is_half;
                to_half += e->rows[i].casts_to_half;
                to_wide += e->rows[i].casts_to_wide;
            }
        n_rows += n;
        if (n == r->n && half == r->is[mode].half && to_half == r->is[mode].to_half &&
            to_wide == r->is[mode].to_wide)
            continue;
        print_error("mode %d, %s: found %d, %d half, %d + %d casts; wanted %d, %d, %d + %d\n", mode,
                    r->op, n, half, to_half, to_wide, r->n, r->is[mode].half, r->is[mode].to_half,
                    r->is[mode].to_wide);
        n_wrong++;
    }
    for (int i = 0; i < e->n_rows; i++)
        if (!row_of(table, e->rows[i].node->op->name))
            print_error("mode %d: %s is not in the table\n", mode, e->rows[i].node->op->name);
    return n_wrong + (n_rows != e->n_rows);
}

static void check_table(const char *arch, const row *table)
{
    td_graph *g = training(arch);
    for (int mode = 0; mode < N_MODES; mode++) {
        td_amp_explanation e;
        expect_ok(td_amp_explain(g, &modes[mode], &e));
        int n_wrong = count_wrong(table, &e, mode), n_casts = 0;
        for (const row *r = table; r->op; r++)
            n_casts += r->is[mode].to_half + r->is[mode].to_wide;
        assert_int_equal(n_wrong, 0);
        assert_int_equal(e.n_casts, n_casts);
        td_amp_explanation_release(&e);
    }
    td_graph_free(g);
}

static void resnet50_is_painted_as_tensorflow_does(void **state)
{
    (void)state;
    check_table("resnet50", resnet50);
}

static void se_resnext101_is_painted_as_tensorflow_does(void **state)
{
    (void)state;
    check_table("se-resnext101-32x4d", se_resnext101);
}

static void ssd320_is_painted_as_tensorflow_does(void **state)
{
    (void)state;
    check_table("ssd320", ssd320);
}

static void ssd300_is_painted_by_the_same_rules(void **state)
{
    (void)state;
    check_table("ssd300", ssd300);
}

static void the_message_is_tensorflows(void **state)
{
    (void)state;
    td_graph *g = training("resnet50");
    td_amp_explanation e;
    expect_ok(td_amp_explain(g, &modes[0], &e));
    assert_string_equal(e.message, "Converted 400/1055 nodes to float16 precision using 3 cast(s) "
                                   "to float16 (excluding Const and Variable casts)");
    td_amp_explanation_release(&e);
    expect_ok(td_amp_explain(g, &modes[3], &e));
    assert_string_equal(e.message, "Converted 401/1055 nodes to bfloat16 precision using 2 cast(s) "
                                   "to bfloat16 (excluding Const and Variable casts)");
    td_amp_explanation_release(&e);
    td_graph_free(g);
}

/* --- the graph itself ------------------------------------------------------------------------- */

static int count_casts(const td_graph *g, td_dtype from, td_dtype to)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == &td_op_cast && td_in_type(g->nodes[i], 0)->dtype == from &&
             g->nodes[i]->out[0]->type.dtype == to;
    return n;
}

/* operands that the op wants wide, and everything an update touches */
static void check_wide(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        bool is_wide = n->op->wide_in >> i & 1 || td_node_has_effect(n);
        if (is_wide && !(n->op->shape_only >> i & 1) && td_in_type(n, i)->dtype != TD_DT_F32)
            fail_msg("%s: operand %d is %s", n->op->name, i,
                     td_dtype_name(td_in_type(n, i)->dtype));
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->op->wide_out >> i & 1)
            assert_int_equal(n->out[i]->type.dtype, TD_DT_F32);
}

static void masters_statistics_and_updates_are_float32(void **state)
{
    (void)state;
    td_graph *g = training("se-resnext101-32x4d");
    for (int mode = 0; mode < N_MODES; mode++) {
        td_graph *mixed = passed("amp", g, &modes[mode]);
        for (int i = 0; i < mixed->n_nodes; i++) {
            const td_node *n = mixed->nodes[i];
            check_wide(n);
            if (n->op == &td_op_param || n->op == &td_op_softmax_cross_entropy ||
                n->op == &td_op_softmax_cross_entropy_grad)
                assert_int_equal(n->out[0]->type.dtype, TD_DT_F32);
        }
        for (int i = 0; i < mixed->n_outputs; i++)
            assert_int_equal(mixed->outputs[i].value->type.dtype, TD_DT_F32);
        td_graph_free(mixed);
    }
    td_graph_free(g);
}

static void casts_are_where_the_report_says(void **state)
{
    (void)state;
    td_graph *g = training("resnet50"), *mixed = passed("amp", g, &modes[0]);
    assert_int_equal(count_casts(mixed, TD_DT_F32, TD_DT_F16), 57);
    assert_int_equal(count_casts(mixed, TD_DT_F16, TD_DT_F32), 56);
    /* a weight's gradient leaves its op in float32: logits and the pooling's operand are left */
    td_graph *fused = passed("fuse", mixed, &modes[0]);
    assert_int_equal(count_casts(fused, TD_DT_F32, TD_DT_F16), 57);
    assert_int_equal(count_casts(fused, TD_DT_F16, TD_DT_F32), 2);
    td_graph_free(fused);
    td_graph_free(mixed);
    mixed = passed("amp", g, &modes[3]);
    fused = passed("fuse", mixed, &modes[3]);
    assert_int_equal(count_casts(fused, TD_DT_F32, TD_DT_BF16), 56);
    assert_int_equal(count_casts(fused, TD_DT_BF16, TD_DT_F32), 1);
    td_graph_free(fused);
    td_graph_free(mixed);
    td_graph_free(g);
}

/* --- detectors -------------------------------------------------------------------------------- */

static bool is_box_loss(const td_op *op)
{
    return op == &td_op_sigmoid_focal_loss || op == &td_op_sigmoid_focal_loss_grad ||
           op == &td_op_huber_box_loss || op == &td_op_huber_box_loss_grad ||
           op == &td_op_multibox_class_loss || op == &td_op_multibox_class_loss_grad;
}

static bool is_half_or_wide(const td_node *n, int i, bool is_half)
{
    return td_dtype_is_half(td_in_type(n, i)->dtype) == is_half;
}

/* one node of the step as it runs */
static void check_detector_node(const td_node *n)
{
    const td_join_attr *join = n->attr;
    check_wide(n);
    for (int i = 0; is_box_loss(n->op) && i < n->n_in; i++)
        assert_true(is_half_or_wide(n, i, false));
    if (is_box_loss(n->op))
        assert_int_equal(n->out[0]->type.dtype, TD_DT_F32);
    if (n->op == &td_op_conv2d)
        assert_true(is_half_or_wide(n, 0, true) && is_half_or_wide(n, 1, true));
    /* the heads' table: half maps, biases added in float32, a float32 result */
    for (int i = 0; n->op == &td_op_join_heads && i < n->n_in; i++)
        assert_true(is_half_or_wide(n, i, i % 2 == 0));
    if (n->op == &td_op_join_heads)
        assert_true(join->wide && n->out[0]->type.dtype == TD_DT_F32);
    /* its gradient: from float32 to half for the convolution, and to float32 for the bias */
    if (n->op == &td_op_join_heads_grad)
        assert_true(join->narrow && is_half_or_wide(n, 0, false) &&
                    td_dtype_is_half(n->out[0]->type.dtype) && n->out[1]->type.dtype == TD_DT_F32);
    /* filters' gradients leave in float32, so that those of five levels are added in it */
    if (n->op == &td_op_conv2d_grad_w)
        assert_int_equal(n->out[0]->type.dtype, TD_DT_F32);
}

/* casts of the step as it runs: kernels and images; and, where lateral biases' gradients do not
   follow, the three gradients that those sum up */
static void check_fused_detector(const char *arch, int n_kernels, int n_laterals)
{
    td_graph *g = training(arch);
    for (int mode = 0; mode < N_MODES; mode++) {
        const td_dtype half = modes[mode].precision == TD_PRECISION_FP16 ? TD_DT_F16 : TD_DT_BF16;
        const bool follows = half == TD_DT_BF16 || modes[mode].rule == TD_AMP_RULE_CURRENT;
        td_graph *mixed = passed("amp", g, &modes[mode]);
        td_graph *fused = passed("fuse", mixed, &modes[mode]);
        for (int i = 0; i < fused->n_nodes; i++)
            check_detector_node(fused->nodes[i]);
        assert_int_equal(count_casts(fused, TD_DT_F32, half), n_kernels + 1);
        assert_int_equal(count_casts(fused, half, TD_DT_F32), follows ? 0 : n_laterals);
        td_graph_free(fused);
        td_graph_free(mixed);
    }
    td_graph_free(g);
}

static void detectors_keep_losses_tables_and_sums_in_float32(void **state)
{
    (void)state;
    check_fused_detector("ssd320", 70, 3);
    check_fused_detector("ssd300", 65, 0);
}

/*
 * A step of ranks with loss scaling, of several batches: what is summed over batches and ranks,
 * asked whether it is finite, multiplied by 1 / S and decayed is float32, a filter's gradient from
 * its own op on.
 */
static void sums_over_batches_and_ranks_are_float32(void **state)
{
    (void)state;
    static const char *const archs[] = { "resnet50", "ssd320" };
    for (int i = 0; i < 2 * N_MODES; i++) {
        td_graph *g = training_with(archs[i % 2], (td_step_opts){ .momentum = 0.9,
                                                                  .decay = 1e-4,
                                                                  .is_scaled = true,
                                                                  .accumulates = true,
                                                                  .ranks = 2 });
        td_graph *mixed = passed("amp", g, &modes[i / 2]), *fused = passed("fuse", mixed, NULL);
        int n_sums = 0, n_exchanged = 0, n_asked = 0, n_unscaled = 0;
        for (int k = 0; k < fused->n_nodes; k++) {
            const td_node *n = fused->nodes[k];
            check_wide(n);
            n_sums += n->op == &td_op_accumulate;
            n_exchanged += n->op == &td_op_all_reduce;
            n_asked += n->op == &td_op_all_finite;
            n_unscaled += n->op == &td_op_sgd && n->n_in > 4; /* inverse_scale */
            const bool is_of_sum = n->op == &td_op_accumulate || n->op == &td_op_all_reduce ||
                                   n->op == &td_op_all_finite;
            for (int in = 0; is_of_sum && in < n->n_in; in++)
                assert_int_equal(td_in_type(n, in)->dtype, TD_DT_F32);
            if (n->op == &td_op_conv2d_grad_w || n->op == &td_op_linear_grad_w)
                assert_int_equal(n->out[0]->type.dtype, TD_DT_F32);
        }
        assert_int_equal(n_unscaled, i % 2 ? 269 : 161);
        assert_int_equal(n_sums, n_unscaled + 1); /* and the loss */
        assert_int_equal(n_exchanged, n_unscaled + 1);
        assert_int_equal(n_asked, n_unscaled + 1);
        td_graph_free(fused);
        td_graph_free(mixed);
        td_graph_free(g);
    }
}

/* --- edits of the lists ----------------------------------------------------------------------- */

static int count_half(const td_graph *g, const td_op *op, const td_amp_opts *o)
{
    int n = 0;
    td_amp_explanation e;
    expect_ok(td_amp_explain(g, o, &e));
    for (int i = 0; i < e.n_rows; i++)
        n += e.rows[i].node->op == op && e.rows[i].is_half;
    td_amp_explanation_release(&e);
    return n;
}

static void lists_are_edited_by_either_name(void **state)
{
    (void)state;
    td_graph *g = training("resnet50");
    td_amp_opts o = { .precision = TD_PRECISION_FP16 };
    assert_int_equal(count_half(g, &td_op_max_pool2d, &o), 1);
    o.deny_add = "max_pool2d";
    assert_int_equal(count_half(g, &td_op_max_pool2d, &o), 0);
    assert_int_equal(count_half(g, &td_op_conv2d, &o), 53);
    o.deny_add = NULL;
    o.clear_remove = "MaxPool"; /* in no list: a wall */
    assert_int_equal(count_half(g, &td_op_max_pool2d, &o), 0);
    o.clear_remove = NULL;
    assert_int_equal(count_half(g, &td_op_global_avg_pool, &o), 0);
    o.deny_remove = o.infer_add = "global_avg_pool";
    assert_int_equal(count_half(g, &td_op_global_avg_pool, &o), 1);
    td_graph_free(g);
}

static void an_op_in_two_lists_leaves_the_graph_alone(void **state)
{
    (void)state;
    td_graph *g = training("resnet50");
    const td_amp_opts o = { .precision = TD_PRECISION_FP16,
                            .deny_add = "Relu" }; /* stays in clear, too */
    td_amp_explanation e;
    expect_ok(td_amp_explain(g, &o, &e));
    assert_true(e.is_failed);
    td_amp_explanation_release(&e);
    td_graph *mixed = passed("amp", g, &o);
    char *before = td_test_print(g), *after = td_test_print(mixed);
    assert_string_equal(before, after);
    td_text_free(before);
    td_text_free(after);
    td_graph_free(mixed);
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet50_is_painted_as_tensorflow_does),
        cmocka_unit_test(se_resnext101_is_painted_as_tensorflow_does),
        cmocka_unit_test(ssd320_is_painted_as_tensorflow_does),
        cmocka_unit_test(ssd300_is_painted_by_the_same_rules),
        cmocka_unit_test(the_message_is_tensorflows),
        cmocka_unit_test(masters_statistics_and_updates_are_float32),
        cmocka_unit_test(casts_are_where_the_report_says),
        cmocka_unit_test(sums_over_batches_and_ranks_are_float32),
        cmocka_unit_test(detectors_keep_losses_tables_and_sums_in_float32),
        cmocka_unit_test(lists_are_edited_by_either_name),
        cmocka_unit_test(an_op_in_two_lists_leaves_the_graph_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
