/*
 * test_program_multi.c -- which consecutive nodes run as one call: those of one kind that do not
 * depend on each other, and chains
 */
#include "support/expect.h"

#include "ops/ops.h"
#include "runtime/program_parts.h"
#include "support/graphs.h"

static const td_multi steps = { .chained = -1 }, averages = { .chained = -1 },
                      copies = { .chained = -1 }, tests_of_all = { .chained = 1 };

static const td_kernel kernels[] = {
    { .op = &td_op_sgd, .name = "sgd", .multi = &steps },
    { .op = &td_op_ema, .name = "ema", .multi = &averages },
    { .op = &td_op_cast, .name = "cast", .multi = &copies },
    { .op = &td_op_assign, .name = "assign", .multi = &copies },
    { .op = &td_op_all_finite, .name = "all_finite", .multi = &tests_of_all },
    { .op = &td_op_relu, .name = "relu" },
};

static td_program *program_of(const char *text)
{
    td_program *p = TD_NEW(td_program);
    assert_non_null(p);
    p->graph = td_test_graph(text);
    p->calls = td_alloc((size_t)p->graph->n_nodes, sizeof *p->calls);
    p->is_setup = td_alloc((size_t)p->graph->n_nodes, sizeof *p->is_setup);
    assert_non_null(p->calls);
    assert_non_null(p->is_setup);
    for (int i = 0; i < p->graph->n_nodes; i++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            if (kernels[k].op == p->graph->nodes[i]->op)
                p->calls[i].prepared.kernel = &kernels[k];
    return p;
}

static void release(td_program *p)
{
    td_program_unplan(p);
    td_graph_free(p->graph);
    td_free(p);
}

/* the sizes of the calls of the last `n` nodes, as digits */
static void expect_calls(td_program *p, const char *sizes)
{
    char found[32] = "";
    int n = 0, all = 0;
    for (const char *s = sizes; *s; s++)
        all += *s - '0';
    td_free(p->call_of);
    p->call_of = NULL;
    expect_ok(td_program_find_multi(p));
    for (int i = p->graph->n_nodes - all, end; i < p->graph->n_nodes; i = end) {
        end = td_program_call_end(p, i);
        assert_int_equal(p->call_of[i], i);
        found[n++] = (char)('0' + end - i);
    }
    assert_string_equal(found, sizes);
}

static void expect_sizes(const char *text, const char *sizes)
{
    td_program *p = program_of(text);
    expect_calls(p, sizes);
    release(p);
}

#define LEAVES                                                                                     \
    "%x:f32[8] = input\n%lr:f32[] = input\n%k:f32[] = input\n%w1:f32[8] = param\n"                 \
    "%w2:f32[8] = param\n%v1:f32[8] = param {role=momentum}\n"                                     \
    "%v2:f32[8] = param {role=momentum}\n%a1:f32[8] = param {role=momentum}\n"                     \
    "%a2:f32[8] = param {role=momentum}\n"

static void nodes_of_one_kind_are_a_call(void **state)
{
    (void)state;
    expect_sizes(LEAVES "sgd %w1, %v1, %x, %lr\nsgd %w2, %v2, %x, %lr\nema %w1, %a1, %k, %k\n"
                        "ema %w2, %a2, %k, %k\n",
                 "22");
    /* two kernels with one td_multi; one without */
    expect_sizes(LEAVES "%c = cast %x {to=f16}\nassign %w1, %x\nassign %w2, %v1\n%r = relu %x\n"
                        "%s = relu %x\noutput c = %c\noutput r = %r\noutput s = %s\n",
                 "311");
}

/* read after write, write after read, write after write; in a node's reshape, too */
static void nodes_that_depend_are_not(void **state)
{
    (void)state;
    expect_sizes(LEAVES "ema %w1, %a1, %k, %k\nema %a1, %a2, %k, %k\nema %w2, %v1, %k, %k\n", "12");
    expect_sizes(LEAVES "ema %a1, %a2, %k, %k\nema %w2, %a1, %k, %k\n", "11");
    expect_sizes(LEAVES "ema %w1, %a1, %k, %k\nema %w2, %a1, %k, %k\n", "11");
    expect_sizes(LEAVES "%t = reshape %w1 {shape=2:4}\n%b:f32[2,4] = param {role=momentum}\n"
                        "ema %t, %b, %k, %k\nema %w2, %w1, %k, %k\n",
                 "11");
    expect_sizes(LEAVES "%c = cast %x {to=f16}\n%d = cast %c {to=f32}\noutput d = %d\n", "11");
}

static void a_chain_needs_its_only_reader(void **state)
{
    (void)state;
    expect_sizes(LEAVES "%f = all_finite %x\n%g = all_finite %w1, %f\n%h = all_finite %w2, %g\n"
                        "output h = %h\n",
                 "3");
    expect_sizes(LEAVES "%f = all_finite %x\n%g = all_finite %w1, %f\n%h = all_finite %w2, %g\n"
                        "output h = %h\noutput g = %g\n",
                 "21");
    expect_sizes(LEAVES "%f = all_finite %x\n%g = all_finite %w1\n%h = all_finite %w2, %f\n"
                        "output h = %h\noutput g = %g\n",
                 "111");
    expect_sizes(LEAVES "%f = all_finite %x\n%g = all_finite %f, %f\noutput g = %g\n", "11");
}

static void setup_keeps_a_node_by_itself(void **state)
{
    (void)state;
    td_program *p = program_of(LEAVES "ema %w1, %a1, %k, %k\nema %w2, %a2, %k, %k\n");
    expect_calls(p, "2");
    p->calls[10].prepared.scratch_bytes = 1; /* the call has memory of its own */
    expect_calls(p, "2");
    p->is_setup[9] = true;
    expect_calls(p, "11");
    release(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_one_kind_are_a_call),
        cmocka_unit_test(nodes_that_depend_are_not),
        cmocka_unit_test(a_chain_needs_its_only_reader),
        cmocka_unit_test(setup_keeps_a_node_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
