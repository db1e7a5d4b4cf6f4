/*
 * test_buckets.c -- pass buckets: sums over ranks begin where their number is there, and are
 * awaited behind all else, in order; buckets are filled; what a sum feeds comes late, no other
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"
#include "pass/pass.h"
#include "support/graphs.h"

static td_graph *split(const char *text)
{
    td_graph *g = td_test_graph(text), *out;
    expect_ok(td_pass_run(&td_pass_buckets, g, NULL, NULL, &out));
    td_graph_free(g);
    return out;
}

/* where the n-th node of an op stands; -1: there are fewer */
static int place(const td_graph *g, const td_op *op, int n)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == op && n-- == 0)
            return i;
    return -1;
}

static const td_all_reduce_attr *part(const td_graph *g, const td_op *op, int n)
{
    return g->nodes[place(g, op, n)]->attr;
}

static const char two_updates[] = "%g1:f32[3] = input\n%lr:f32[] = input\n"
                                  "%w1:f32[3] = param\n%v1:f32[3] = param {role=momentum}\n"
                                  "%w2:f32[20] = param\n%v2:f32[20] = param {role=momentum}\n"
                                  "%a:f32[20] = param {role=momentum}\n%k:f32[] = input\n"
                                  "%s1 = all_reduce %g1\nsgd %w1, %v1, %s1, %lr\n"
                                  "%x:f32[20] = input\n%g2 = relu %x\n"
                                  "%s2 = all_reduce %g2\nsgd %w2, %v2, %s2, %lr\n"
                                  "ema %w2, %a, %k, %k\n%y = sigmoid %x\noutput y = %y\n";

static void begin_early_end_late(void **state)
{
    (void)state;
    td_graph *g = split(two_updates);
    const int begin1 = place(g, &td_op_all_reduce_begin, 0);
    const int begin2 = place(g, &td_op_all_reduce_begin, 1);
    const int end1 = place(g, &td_op_all_reduce_end, 0), end2 = place(g, &td_op_all_reduce_end, 1);
    const int sgd1 = place(g, &td_op_sgd, 0), sgd2 = place(g, &td_op_sgd, 1);
    assert_int_equal(place(g, &td_op_all_reduce, 0), -1);
    assert_true(begin1 < place(g, &td_op_relu, 0));
    assert_int_equal(begin2, place(g, &td_op_relu, 0) + 1);
    assert_true(place(g, &td_op_sigmoid, 0) < end1); /* has nothing to do with it */
    assert_true(end1 < sgd1 && sgd1 < end2 && end2 < sgd2);
    assert_int_equal(place(g, &td_op_ema, 0), sgd2 + 1); /* reads what the update has written */
    /* one bucket: 3 numbers take a line of 16 */
    assert_int_equal(part(g, &td_op_all_reduce_begin, 0)->at, 0);
    assert_int_equal(part(g, &td_op_all_reduce_begin, 1)->at, 16);
    assert_int_equal(part(g, &td_op_all_reduce_begin, 1)->bucket, 0);
    assert_false(part(g, &td_op_all_reduce_begin, 0)->is_last);
    assert_true(part(g, &td_op_all_reduce_begin, 1)->is_last);
    assert_int_equal(part(g, &td_op_all_reduce_end, 1)->at, 16);
    td_graph_free(g);
}

static void full_buckets_are_closed(void **state)
{
    (void)state;
    td_graph *g =
        split("%a:f32[1048576] = input\n%b:f32[1048576] = input\n%c:f32[4194304] = input\n"
              "%d:f32[5] = input\n"
              "%1 = all_reduce %a\n%2 = all_reduce %b\n%3 = all_reduce %c\n"
              "%4 = all_reduce %d\n"
              "output 1 = %1\noutput 2 = %2\noutput 3 = %3\noutput 4 = %4\n");
    static const int bucket[] = { 0, 0, 1, 2 }, at[] = { 0, 1048576, 0, 0 };
    static const bool is_last[] = { false, true, true, true };
    for (int i = 0; i < 4; i++) {
        const td_all_reduce_attr *p = part(g, &td_op_all_reduce_begin, i);
        assert_int_equal(p->bucket, bucket[i]);
        assert_int_equal(p->at, at[i]);
        assert_int_equal(p->is_last, is_last[i]);
    }
    td_graph_free(g);
}

static void sums_of_sums_have_their_own(void **state)
{
    (void)state;
    td_graph *g = split("%a:f32[4] = input\n%1 = all_reduce %a\n%2 = relu %1\n%3 = all_reduce %2\n"
                        "output y = %3\n");
    assert_int_equal(part(g, &td_op_all_reduce_begin, 1)->bucket, 1);
    assert_true(part(g, &td_op_all_reduce_begin, 1)->is_last);
    assert_true(place(g, &td_op_all_reduce_end, 0) < place(g, &td_op_relu, 0));
    assert_true(place(g, &td_op_relu, 0) < place(g, &td_op_all_reduce_begin, 1));
    assert_true(place(g, &td_op_all_reduce_begin, 1) < place(g, &td_op_all_reduce_end, 1));
    td_graph_free(g);
}

/* sums of several batches: what is kept for the next batch needs no other rank */
static void carried_sums_stay_early(void **state)
{
    (void)state;
    td_graph *g = split("%g:f32[4] = input\n%u:f32[] = input\n%lr:f32[] = input\n"
                        "%w:f32[4] = param\n%v:f32[4] = param {role=momentum}\n"
                        "%k:f32[4] = param {role=momentum}\n"
                        "%s = accumulate %k, %g\n%t = all_reduce %s, %u\n"
                        "sgd %w, %v, %t, %lr, %u, %u\ncarry %w, %k, %s, %u\n"
                        "%x:f32[4] = input\n%y = relu %x\noutput y = %y\n");
    assert_true(place(g, &td_op_carry, 0) < place(g, &td_op_relu, 0));
    assert_true(place(g, &td_op_relu, 0) < place(g, &td_op_all_reduce_end, 0));
    assert_int_equal(g->nodes[place(g, &td_op_all_reduce_end, 0)]->n_in, 3); /* obeys %u */
    td_graph_free(g);
    /* batch by batch: the sum that is kept is that of all ranks */
    g = split("%g:f32[4] = input\n%u:f32[] = input\n%lr:f32[] = input\n"
              "%w:f32[4] = param\n%v:f32[4] = param {role=momentum}\n"
              "%k:f32[4] = param {role=momentum}\n"
              "%t = all_reduce %g, %u, %k {always=true}\n"
              "sgd %w, %v, %t, %lr, %u, %u\ncarry %w, %k, %t, %u\n");
    assert_true(place(g, &td_op_carry, 0) > place(g, &td_op_all_reduce_end, 0));
    assert_int_equal(g->nodes[place(g, &td_op_all_reduce_begin, 0)]->n_in, 3);
    assert_true(part(g, &td_op_all_reduce_end, 0)->always);
    td_graph_free(g);
}

static void without_sums_nothing_changes(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(td_test_inference), *out;
    expect_ok(td_pass_run(&td_pass_buckets, g, NULL, NULL, &out));
    char *before = td_test_print(g), *after = td_test_print(out);
    assert_string_equal(before, after);
    td_text_free(before);
    td_text_free(after);
    td_graph_free(g);
    td_graph_free(out);
}

static td_graph *updates;

static td_status fill_buckets(void)
{
    td_graph *out = NULL;
    const td_status st = td_pass_run(&td_pass_buckets, updates, NULL, NULL, &out);
    if (st == TD_OK)
        td_graph_free(out);
    return st;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    updates = td_test_graph(two_updates);
    td_test_allocations(fill_buckets, 10000);
    td_graph_free(updates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begin_early_end_late),         cmocka_unit_test(full_buckets_are_closed),
        cmocka_unit_test(sums_of_sums_have_their_own),  cmocka_unit_test(carried_sums_stay_early),
        cmocka_unit_test(without_sums_nothing_changes), cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
