/*
 * test_multi_tensor.c -- pass multi_tensor: updates are put together kind by kind, last of all, and
 * no node passes another one that it depends on
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"
#include "pass/pass.h"
#include "support/graphs.h"

/* all nodes of an op run as one call, casts and reorders together; other ops run by themselves */
static const void *multi(void *ctx, const td_node *n, int *chained)
{
    static const td_op *const ops[] = { &td_op_sgd,  &td_op_ema,        &td_op_carry,
                                        &td_op_cast, &td_op_accumulate, &td_op_commit };
    (void)ctx;
    *chained = n->op == &td_op_all_finite ? 1 : n->op == &td_op_grad_norm ? 2 : -1;
    if (*chained > 0)
        return n->op;
    if (n->op == &td_op_reorder)
        return &td_op_cast;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i] == n->op)
            return n->op;
    return NULL;
}

static const td_target target = { .multi = multi };

static td_graph *together(const char *text)
{
    td_graph *g = td_test_graph(text), *out;
    expect_ok(td_pass_run(&td_pass_multi_tensor, g, &target, NULL, &out));
    td_graph_free(g);
    return out;
}

/* the ops in order, each once for nodes that follow one another, with their number: "relu ema*2" */
static void expect_order(const char *text, const char *wanted)
{
    td_graph *g = together(text);
    char found[1000] = "";
    for (int i = 0, n = 1; i < g->n_nodes; i++, n++) {
        const td_op *op = g->nodes[i]->op;
        const size_t len = strlen(found);
        if (op->is_leaf || (i + 1 < g->n_nodes && g->nodes[i + 1]->op == op)) {
            n = op->is_leaf ? 0 : n;
            continue;
        }
        (void)snprintf(found + len, sizeof found - len, n > 1 ? "%s%s*%d" : "%s%s", len ? " " : "",
                       op->name, n);
        n = 0;
    }
    assert_string_equal(found, wanted);
    td_graph_free(g);
}

#define LEAVES                                                                                     \
    "%x:f32[8] = input\n%lr:f32[] = input\n%k:f32[] = input\n%w1:f32[8] = param\n"                 \
    "%w2:f32[8] = param\n%v1:f32[8] = param {role=momentum}\n"                                     \
    "%v2:f32[8] = param {role=momentum}\n%a1:f32[8] = param {role=momentum}\n"                     \
    "%a2:f32[8] = param {role=momentum}\n"

static void updates_are_put_together(void **state)
{
    (void)state;
    expect_order(LEAVES "%g1 = relu %x\nsgd %w1, %v1, %g1, %lr\nema %w1, %a1, %k, %k\n"
                        "%g2 = sigmoid %x\nsgd %w2, %v2, %g2, %lr\nema %w2, %a2, %k, %k\n"
                        "output g = %g2\n",
                 "relu sigmoid sgd*2 ema*2");
}

static void an_average_before_the_step_stays_before_it(void **state)
{
    (void)state;
    expect_order(LEAVES "ema %w1, %a1, %k, %k\nsgd %w1, %v1, %x, %lr\nema %w1, %a1, %k, %k\n"
                        "ema %w2, %a2, %k, %k\nsgd %w2, %v2, %x, %lr\nema %w2, %a2, %k, %k\n",
                 "ema*2 sgd*2 ema*2");
}

/* the average that the n-th ema writes */
static const char *averaged(const td_graph *g, int n)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == &td_op_ema && n-- == 0)
            return g->nodes[i]->in[1]->name;
    return "";
}

static void what_depends_is_not_passed(void **state)
{
    (void)state;
    /* write after read: the step waits for the average, the other one for its kind */
    expect_order(LEAVES "ema %a1, %a2, %k, %k\nsgd %a1, %v1, %x, %lr\nsgd %w1, %v2, %x, %lr\n",
                 "ema sgd*2");
    /* each kind waits for the other one once: three calls */
    expect_order(LEAVES "sgd %w1, %v1, %x, %lr\nema %w1, %a1, %k, %k\n"
                        "ema %w2, %a2, %k, %k\nsgd %w2, %v2, %x, %lr\n",
                 "sgd ema*2 sgd");
    /* read after write, and write after write, in one kind: the third goes before the second */
    static const char *const texts[] = { "ema %w1, %a1, %k, %k\nema %a1, %a2, %k, %k\n"
                                         "ema %w2, %v1, %k, %k\n",
                                         "ema %w1, %a1, %k, %k\nema %w2, %a1, %lr, %k\n"
                                         "ema %w2, %v1, %k, %k\n" };
    for (int i = 0; i < 2; i++) {
        char text[1000];
        (void)snprintf(text, sizeof text, "%s%s", LEAVES, texts[i]);
        td_graph *g = together(text);
        assert_string_equal(averaged(g, 0), "a1");
        assert_string_equal(averaged(g, 1), "v1");
        assert_string_equal(averaged(g, 2), i ? "a1" : "a2");
        td_graph_free(g);
    }
}

static void what_others_need_stays_early(void **state)
{
    (void)state;
    /* the cast is read by a node that runs by itself */
    expect_order(LEAVES "%h = cast %x {to=f16}\n%r = relu %h\nsgd %w1, %v1, %x, %lr\n"
                        "%s = sigmoid %x\n%i = cast %s {to=f16}\noutput r = %r\noutput i = %i\n",
                 "cast relu sigmoid sgd cast");
    /* what a node by itself reads may not be overwritten before; its reshape is the same memory */
    expect_order(LEAVES "sgd %w2, %v2, %x, %lr\n%t = reshape %w1 {shape=2:4}\n%s = sigmoid %t\n"
                        "sgd %w1, %v1, %x, %lr\noutput s = %s\n",
                 "reshape sigmoid sgd*2");
}

static void a_chain_of_tests_is_whole(void **state)
{
    (void)state;
    static const char text[] =
        LEAVES "%g1 = relu %x\n%f1 = all_finite %g1\n%g2 = sigmoid %x\n%c = cast %g2 {to=f16}\n"
               "%f2 = all_finite %c, %f1\n%g3 = scale %x {by=2}\n%f3 = all_finite %g3, %f2\n"
               "sgd %w1, %v1, %g1, %lr, %k, %f3\nsgd %w2, %v2, %g3, %lr, %k, %f3\n";
    expect_order(text, "relu sigmoid scale cast all_finite*3 sgd*2");
    td_graph *g = together(text);
    const td_node *first = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == &td_op_all_finite) {
            assert_true(first || g->nodes[i]->n_in == 1);
            assert_true(!first || g->nodes[i]->in[1]->producer == g->nodes[i - 1]);
            first = g->nodes[i];
        }
    td_graph_free(g);
}

static void limits_of_the_norm_go_between(void **state)
{
    (void)state;
    /* norm, limit, norm of the limited gradients, steps: casts, norms and steps are together */
    static const char text[] =
        LEAVES "%c1 = cast %x {to=f16}\n%n1 = grad_norm %c1, %k\n%g2 = sigmoid %x\n"
               "%c2 = cast %g2 {to=f16}\n%n2 = grad_norm %c2, %k, %n1\n%m = mul %n2, %k\n"
               "%d = add %m, %lr\n%l = relu %d\nsgd %w1, %v1, %x, %lr, %l\n%e = mul %l, %n2\n"
               "sgd %w2, %v2, %g2, %lr, %l\noutput norm = %n2\noutput e = %e\n";
    expect_order(text, "sigmoid cast*2 grad_norm*2 mul add relu mul sgd*2");
}

static void a_target_of_single_nodes_keeps_its_order(void **state)
{
    (void)state;
    static const char text[] =
        LEAVES "%g1 = relu %x\nsgd %w1, %v1, %g1, %lr\nema %w1, %a1, %k, %k\n"
               "%g2 = sigmoid %x\nsgd %w2, %v2, %g2, %lr\nema %w2, %a2, %k, %k\n";
    const td_target *const targets[] = { NULL, &(const td_target){ 0 } };
    for (int i = 0; i < 2; i++) {
        td_graph *g = td_test_graph(text), *out;
        expect_ok(td_pass_run(&td_pass_multi_tensor, g, targets[i], NULL, &out));
        char *before = td_test_print(g), *after = td_test_print(out);
        assert_string_equal(before, after);
        td_text_free(before);
        td_text_free(after);
        td_graph_free(g);
        td_graph_free(out);
    }
}

static td_graph *updates;

static td_status put_together(void)
{
    td_graph *out = NULL;
    const td_status st = td_pass_run(&td_pass_multi_tensor, updates, &target, NULL, &out);
    if (st == TD_OK)
        td_graph_free(out);
    return st;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    updates = td_test_graph(LEAVES "sgd %w1, %v1, %x, %lr\nema %w1, %a1, %k, %k\n"
                                   "sgd %w2, %v2, %x, %lr\nema %w2, %a2, %k, %k\n");
    td_test_allocations(put_together, 10000);
    td_graph_free(updates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_put_together),
        cmocka_unit_test(an_average_before_the_step_stays_before_it),
        cmocka_unit_test(what_depends_is_not_passed),
        cmocka_unit_test(what_others_need_stays_early),
        cmocka_unit_test(a_chain_of_tests_is_whole),
        cmocka_unit_test(limits_of_the_norm_go_between),
        cmocka_unit_test(a_target_of_single_nodes_keeps_its_order),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
