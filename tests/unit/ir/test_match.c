/*
 * test_match.c -- who uses a value, and what may be moved past an update
 */
#include "support/allocations.h"
#include "support/expect.h"

#include "ir/match.h"
#include "support/graphs.h"

static const char text[] = "%x:f32[4] = input\n"
                           "%w:f32[4] = param\n"
                           "%v:f32[4] = param\n"
                           "%lr:f32[] = input\n"
                           "%a = add %x, %x\n"
                           "%b = relu %a\n"
                           "%c = relu %b\n"
                           "%d = mul %a, %w\n"
                           "%r = reshape %w {shape=2:2}\n"
                           "%e = relu %r\n"
                           "%f = scale %x\n"
                           "sgd %w, %v, %d, %lr\n"
                           "output c = %c\n"
                           "output e = %e\n"
                           "output f = %f\n";

static void users_come_in_order_once_per_operand(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(text);
    td_uses u;
    int n;
    expect_ok(td_uses_init(&u, g));
    const td_node *const *users = td_uses_of(&u, td_test_value(g, "x"), &n);
    assert_int_equal(n, 3);
    assert_string_equal(users[0]->out[0]->name, "a");
    assert_string_equal(users[1]->out[0]->name, "a");
    assert_string_equal(users[2]->out[0]->name, "f");
    users = td_uses_of(&u, td_test_value(g, "w"), &n);
    assert_int_equal(n, 3);
    assert_string_equal(users[2]->op->name, "sgd");
    td_uses_of(&u, td_test_value(g, "c"), &n);
    assert_int_equal(n, 0);
    for (int i = 0, total = 0; i < g->n_values; i++) {
        users = td_uses_of(&u, g->values[i], &n);
        for (int k = 0; k < n; k++, total++)
            assert_true(k == 0 || users[k]->id >= users[k - 1]->id);
    }
    td_uses_release(&u);
    td_graph_free(g);
}

static void the_only_user_is_the_only_one(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(text);
    td_uses u;
    expect_ok(td_uses_init(&u, g));
    const td_node *only = td_uses_only(&u, td_test_value(g, "b"));
    assert_non_null(only);
    assert_string_equal(only->out[0]->name, "c");
    assert_null(td_uses_only(&u, td_test_value(g, "a"))); /* two users */
    assert_null(td_uses_only(&u, td_test_value(g, "x"))); /* one user, twice */
    assert_null(td_uses_only(&u, td_test_value(g, "c"))); /* an output, no user */
    td_graph_free(g);
    td_uses_release(&u);

    g = td_test_graph(
        "%x:f32[4] = input\n%y = relu %x\n%z = relu %y\noutput y = %y\noutput z = %z\n");
    expect_ok(td_uses_init(&u, g));
    assert_null(td_uses_only(&u, td_test_value(g, "y"))); /* one user and an output */
    td_uses_release(&u);
    td_graph_free(g);
}

static void updates_between_are_found(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(text);
    int end = g->n_nodes, sgd = end - 1;
    const td_node *reads_w = td_test_value(g, "d")->producer;
    const td_node *reads_reshape = td_test_value(g, "e")->producer;
    const td_node *reads_x = td_test_value(g, "f")->producer;
    assert_true(td_overwritten_between(g, reads_w->id, end, reads_w));
    assert_true(td_overwritten_between(g, reads_reshape->id, end, reads_reshape));
    assert_false(td_overwritten_between(g, reads_x->id, end, reads_x));
    assert_false(td_overwritten_between(g, reads_w->id, sgd, reads_w));
    assert_false(td_overwritten_between(g, sgd, end, reads_w));
    td_graph_free(g);
}

static td_graph *used;

static td_status count_uses(void)
{
    td_uses u;
    const td_status st = td_uses_init(&u, used);
    td_uses_release(&u);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    used = td_test_graph(text);
    assert_int_equal(td_test_allocations(count_uses, 3), 3);
    td_graph_free(used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_come_in_order_once_per_operand),
        cmocka_unit_test(the_only_user_is_the_only_one),
        cmocka_unit_test(updates_between_are_found),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
