/*
 * test_plan.c -- who shares memory, who must not, and a checker that notices every damage
 */
#include "support/expect.h"

#include <stdio.h>

#include "plan/plan.h"
#include "support/graphs.h"

typedef struct {
    td_graph *g;
    td_plan plan;
    bool *is_setup;
    size_t *scratch;
} planned;

static planned plan_of(const char *text)
{
    planned p = { .g = td_test_graph(text) };
    p.is_setup = td_alloc((size_t)p.g->n_nodes, sizeof *p.is_setup);
    p.scratch = td_alloc((size_t)p.g->n_nodes, sizeof *p.scratch);
    assert_non_null(p.is_setup);
    assert_non_null(p.scratch);
    expect_ok(td_plan_make(&p.plan, p.g, p.is_setup, NULL, p.scratch));
    expect_ok(td_plan_check(&p.plan, p.g, p.is_setup, NULL));
    return p;
}

static void again(planned *p)
{
    td_plan_release(&p->plan);
    expect_ok(td_plan_make(&p->plan, p->g, p->is_setup, NULL, p->scratch));
    expect_ok(td_plan_check(&p->plan, p->g, p->is_setup, NULL));
}

static void release(planned *p)
{
    td_plan_release(&p->plan);
    td_free(p->is_setup);
    td_free(p->scratch);
    td_graph_free(p->g);
}

static int buffer_of(const planned *p, const char *name)
{
    return p->plan.slots[td_test_value(p->g, name)->id].buffer;
}

static bool share(const planned *p, const char *a, const char *b)
{
    return buffer_of(p, a) == buffer_of(p, b);
}

/* --- nodes that run as one call --------------------------------------------------------------- */

/* the plan of nodes [first, end) as one call */
static td_status plan_together(planned *p, int first, int end, bool is_checked)
{
    int *calls = td_alloc((size_t)p->g->n_nodes, sizeof *calls);
    assert_non_null(calls);
    for (int i = 0; i < p->g->n_nodes; i++)
        calls[i] = i >= first && i < end ? first : i;
    td_status st = TD_OK;
    if (!is_checked) {
        td_plan_release(&p->plan);
        st = td_plan_make(&p->plan, p->g, p->is_setup, calls, p->scratch);
    }
    if (st == TD_OK)
        st = td_plan_check(&p->plan, p->g, p->is_setup, calls);
    td_free(calls);
    return st;
}

static bool overlap(const planned *p, const char *a, const char *b)
{
    const td_buffer *x = &p->plan.buffers[buffer_of(p, a)], *y = &p->plan.buffers[buffer_of(p, b)];
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static void operands_of_a_call_stay_until_its_end(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = relu %x\n%b = sigmoid %x\n"
                        "%c = cast %a {to=f16}\n%d = cast %b {to=f16}\n"
                        "output c = %c\noutput d = %d\n");
    assert_true(overlap(&p, "a", "d")); /* one by one: a is read no more */
    expect_error(plan_together(&p, 3, 5, true), TD_EARG, "share memory");
    expect_ok(plan_together(&p, 3, 5, false));
    assert_false(overlap(&p, "a", "d"));
    assert_false(overlap(&p, "b", "c"));
    release(&p);
}

static void a_result_in_a_call_takes_what_no_other_reads(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = scale %x {by=3}\n"
                        "%c = sigmoid %a\n%d = sigmoid %b\n%e = add %c, %d\noutput e = %e\n");
    expect_ok(plan_together(&p, 3, 5, false));
    assert_true(share(&p, "a", "c"));
    assert_true(share(&p, "b", "d"));
    release(&p);
    p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%c = sigmoid %a\n%d = relu %a\n"
                "%e = add %c, %d\noutput e = %e\n");
    assert_true(share(&p, "a", "d"));
    expect_error(plan_together(&p, 2, 4, true), TD_EARG, "share memory");
    expect_ok(plan_together(&p, 2, 4, false));
    assert_false(overlap(&p, "a", "d"));
    assert_false(overlap(&p, "a", "c"));
    release(&p);
}

/* --- in place --------------------------------------------------------------------------------- */

static void a_result_takes_its_dead_operands_place(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = relu %a\n%c = sigmoid %b\n"
                        "output c = %c\n");
    assert_int_equal(buffer_of(&p, "x"), -1); /* the caller's memory */
    assert_true(share(&p, "a", "b"));
    assert_true(share(&p, "b", "c"));
    assert_int_equal(p.plan.transient_bytes, 256);
    assert_int_equal(p.plan.peak_live_bytes, 256);
    assert_int_equal(p.plan.persistent_bytes, 0);
    release(&p);
}

static void what_is_read_later_is_not_overwritten(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = relu %a\n%c = add %b, %a\n"
                        "output c = %c\n");
    assert_false(share(&p, "a", "b"));
    assert_true(share(&p, "b", "c") || share(&p, "a", "c"));
    release(&p);
    p = plan_of(
        "%x:f32[64] = input\n%a = scale %x {by=2}\n%b = relu %a\noutput a = %a\noutput b = %b\n");
    assert_false(share(&p, "a", "b"));
    release(&p);
}

static void a_reshape_keeps_its_memory_alive(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%r = reshape %a {shape=8:8}\n"
                        "%b = relu %a\n%c = relu %r\n%d = reshape %b {shape=8:8}\n%e = add %c, %d\n"
                        "output e = %e\n");
    assert_true(share(&p, "a", "r"));
    assert_false(share(&p, "a", "b"));
    release(&p);
    p = plan_of(
        "%x:f32[64] = input\n%a = scale %x {by=2}\n%r = reshape %a {shape=8:8}\n%b = relu %a\n"
        "output r = %r\noutput b = %b\n");
    assert_false(share(&p, "a", "b"));
    release(&p);
}

static void two_reshapes_of_one_value_live_together(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%r = reshape %a {shape=8:8}\n"
                        "%s = reshape %a {shape=4:16}\n%t = reshape %r {shape=2:32}\n"
                        "%u = relu %r\n%v = relu %s\n%w = relu %t\n"
                        "output u = %u\noutput v = %v\noutput w = %w\n");
    assert_true(share(&p, "r", "s"));
    assert_true(share(&p, "a", "t"));
    assert_false(share(&p, "a", "u"));
    release(&p);
    p = plan_of("%w:f32[64] = param\n%r = reshape %w {shape=8:8}\n%s = reshape %w {shape=4:16}\n"
                "output r = %r\noutput s = %s\n");
    assert_true(share(&p, "w", "s"));
    release(&p);
    p = plan_of("%x:f32[64] = input\n%r = reshape %x {shape=8:8}\n%s = relu %r\noutput s = %s\n");
    assert_int_equal(buffer_of(&p, "r"), -1);
    assert_int_not_equal(buffer_of(&p, "s"), -1);
    release(&p);
}

static void one_value_twice_is_overwritten_only_where_both_may(void **state)
{
    (void)state;
    planned p =
        plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = mul %a, %a\noutput b = %b\n");
    assert_true(share(&p, "a", "b"));
    release(&p);
    /* the residual is the image: the convolution still reads it while it writes */
    p = plan_of("%x:f32[1,4,8,8] = input\n%w:f32[4,4,3,3] = param\n%c:f32[4] = param\n"
                "%a = scale %x {by=2}\n%b = conv2d_fused %a, %w, %c, %a {pad=1}\noutput b = %b\n");
    assert_false(share(&p, "a", "b"));
    release(&p);
    p = plan_of("%x:f32[1,4,8,8] = input\n%g:f32[4] = param\n%a = scale %x {by=2}\n"
                "%y, %m, %v, %k = batch_norm_add_relu %a, %g, %g, %a\noutput y = %y\n");
    assert_false(share(&p, "a", "y"));
    release(&p);
    p = plan_of(
        "%x:f32[1,4,8,8] = input\n%w:f32[4,4,3,3] = param\n%c:f32[4] = param\n"
        "%a = scale %x {by=2}\n%r = reshape %a {shape=1:4:64:1}\n%t = reshape %r {shape=1:4:8:8}\n"
        "%b = conv2d_fused %a, %w, %c, %t {pad=1}\noutput b = %b\n");
    assert_false(share(&p, "a", "b"));
    release(&p);
    p = plan_of("%x:f32[1,4,8,8] = input\n%w:f32[4,4,3,3] = param\n%c:f32[4] = param\n"
                "%a = scale %x {by=2}\n%r = scale %x {by=3}\n"
                "%b = conv2d_fused %a, %w, %c, %r {pad=1}\noutput b = %b\n");
    assert_true(share(&p, "r", "b"));
    release(&p);
}

/* a gradient with two sums that may each have the place of an operand: never both the same */
static void the_last_result_takes_a_place_too(void **state)
{
    (void)state;
    static const char head[] = "%x:f32[2,16,4,4] = input\n%z:f32[2,16,4,4] = input\n"
                               "%g:f32[16] = param\n%b:f32[16] = param\n%d:f32[2,16,4,4] = input\n"
                               "%y, %m, %v, %k = batch_norm_add_relu %x, %g, %b, %z\n"
                               "%d1 = scale %d {by=2}\n%d2 = scale %d {by=3}\n";
    static const char tail[] = "output dx = %dx\noutput ds = %ds\n";
    static const char *const calls[] = {
        "%dx, %dg, %db, %ds = batch_norm_add_relu_grad %d1, %k, %x, %g, %m, %v, %d2\n",
        "%dx, %dg, %db, %ds = batch_norm_add_relu_grad %d1, %k, %x, %g, %m, %v, %d1\n",
        "%dx, %dg, %db, %ds = batch_norm_add_relu_grad %d1, %k, %x, %g, %m, %v\n",
    };
    for (int i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s%s", head, calls[i], tail);
        planned p = plan_of(text); /* evaluated there */
        assert_false(share(&p, "dx", "ds"));
        assert_true(share(&p, "dx", "d1"));
        assert_int_equal(share(&p, "ds", "d2"), i == 0);
        /* the checker notices both in one place */
        td_slot *s = p.plan.slots;
        s[td_test_value(p.g, "ds")->id].buffer = buffer_of(&p, "dx");
        expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG, "share memory");
        release(&p);
    }
}

static void a_smaller_operand_gives_no_place(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[4] = input\n%y:f32[4,1] = input\n%a = scale %x {by=2}\n"
                        "%b = scale %y {by=2}\n%c = add %a, %b\noutput c = %c\n");
    assert_false(share(&p, "a", "c"));
    assert_false(share(&p, "b", "c"));
    release(&p);
    /* operand 1 is the larger one: result 0 takes its place */
    p = plan_of(
        "%x:f32[4] = input\n%y:f32[16,4] = input\n%a = scale %x {by=2}\n%b = scale %y {by=2}\n"
        "%c = mul %a, %b\noutput c = %c\n");
    assert_true(share(&p, "b", "c"));
    release(&p);
}

static void parameters_are_never_overwritten(void **state)
{
    (void)state;
    planned p =
        plan_of("%w:f32[64] = param\n%r = reshape %w {shape=8:8}\n%a = relu %w\n%b = relu %r\n"
                "output a = %a\noutput b = %b\n");
    assert_false(share(&p, "w", "a"));
    assert_false(share(&p, "w", "b"));
    assert_int_equal(p.plan.persistent_bytes, 256);
    release(&p);
}

static void what_is_only_asked_for_its_shape_may_die(void **state)
{
    (void)state;
    planned p =
        plan_of("%x:f32[2,4,8,8] = input\n%a = scale %x {by=2}\n%b = avg_pool2d %a {stride=2}\n"
                "%c = relu %b\n%d = avg_pool2d_grad %c, %a {stride=2}\noutput d = %d\n");
    /* a's memory is free again when d is made */
    assert_int_equal(p.plan.peak_live_bytes, 4 * 512 + 4 * 128);
    assert_int_equal(p.plan.unplanned_bytes, 4 * 512 + 4 * 128 + 4 * 512);
    release(&p);
}

static void what_runs_read_of_the_setup_stays(void **state)
{
    (void)state;
    planned p =
        plan_of("%w:f32[64] = param\n%x:f32[64] = input\n%a = scale %w {by=2}\n%b = relu %a\n"
                "%c = add %b, %x\n%d = relu %c\noutput d = %d\n");
    p.is_setup[2] = p.is_setup[3] = true;
    again(&p);
    assert_false(share(&p, "a", "b"));
    assert_false(share(&p, "b", "c"));
    assert_true(share(&p, "c", "d"));
    /* a is done with before a run begins */
    assert_int_equal(p.plan.buffers[buffer_of(&p, "a")].offset,
                     p.plan.buffers[buffer_of(&p, "c")].offset);
    assert_int_equal(p.plan.persistent_bytes, 2 * 256);
    assert_int_equal(p.plan.transient_bytes, 256);
    /* unless a run reads it, or it leaves the graph */
    static const char *const ends[] = {
        "%e = add %d, %a\noutput e = %e\n", "output a = %a\n",
        "%e = reshape %a {shape=8:8}\n%f = relu %e\noutput f = %f\n"
    };
    for (int i = 0; i < 3; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "%%w:f32[64] = param\n%%x:f32[64] = input\n%%a = scale %%w {by=2}\n"
                 "%%b = relu %%a\n%%c = add %%b, %%x\n%%d = relu %%c\noutput d = %%d\n%s",
                 ends[i]);
        release(&p);
        p = plan_of(text);
        p.is_setup[2] = p.is_setup[3] = true;
        again(&p);
        assert_int_equal(p.plan.persistent_bytes, 3 * 256);
    }
    release(&p);
}

/* what an update writes is no ground to stand on, what is frozen is */
static void the_setup_of_a_training_is_what_is_frozen(void **state)
{
    static const struct {
        const char *name;
        bool is_setup;
    } rows[] = { { "a", true },  { "b", true },  { "c", false },     { "d", false },
                 { "e", false }, { "h", true },  { "k", false },     { "u", false },
                 { "w", false }, { "x", false }, { "copy.w", false } };
    (void)state;
    td_graph *g = td_test_graph("%x:f32[64] = input\n%lr:f32[] = input\n%u:f32[64] = param\n"
                                "%w:f32[64] = param\n%m:f32[64] = param {role=momentum}\n"
                                "%copy.w:bf16[64] = param {role=copy, of=w}\n"
                                "%a = cast %u {to=bf16}\n%b = scale %a {by=2}\n"
                                "%c = scale %w {by=2}\n%d = add %u, %w\n%e = add %u, %x\n"
                                "%h = add %u, %u\n%k = add %b, %copy.w\n"
                                "sgd %w, %m, %x, %lr\n"
                                "output b = %b\noutput c = %c\noutput d = %d\noutput e = %e\n"
                                "output h = %h\noutput k = %k\n");
    bool *is_setup = td_alloc((size_t)g->n_nodes, sizeof *is_setup);
    assert_non_null(is_setup);
    assert_false(td_plan_mark_setup(g, is_setup));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const td_value *v = td_graph_find(g, rows[i].name);
        assert_non_null(v);
        if (is_setup[v->producer->id] != rows[i].is_setup)
            fail_msg("%%%s", rows[i].name);
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (td_node_has_effect(g->nodes[i]))
            assert_false(is_setup[i]);
    td_free(is_setup);
    td_graph_free(g);
}

static void scratch_has_a_place_of_its_own(void **state)
{
    (void)state;
    planned p =
        plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = sigmoid %a\noutput b = %b\n");
    p.scratch[1] = 1000;
    p.scratch[2] = 100;
    again(&p);
    assert_int_equal(p.plan.scratch[0], -1);
    const td_buffer *one = &p.plan.buffers[p.plan.scratch[1]];
    const td_buffer *two = &p.plan.buffers[p.plan.scratch[2]];
    assert_int_equal(one->bytes, 1024);
    assert_int_equal(one->node, 1);
    assert_int_equal(two->bytes, 128);
    assert_int_equal(p.plan.largest_scratch_bytes, 1000);
    assert_int_equal(p.plan.transient_bytes, 1024 + 256);
    assert_int_equal(p.plan.unplanned_bytes, 256);
    release(&p);
}

static void plans_of_networks_are_small(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[1,8,16,16] = input\n%w:f32[8,8,3,3] = param\n"
                        "%a = conv2d %x, %w {pad=1}\n%b = relu %a\n%c = conv2d %b, %w {pad=1}\n"
                        "%d = relu %c\n%e = conv2d %d, %w {pad=1}\n%f = relu %e\noutput f = %f\n");
    int64_t one = 4 * 8 * 16 * 16;
    assert_int_equal(p.plan.transient_bytes, 2 * one); /* ping and pong */
    assert_int_equal(p.plan.peak_live_bytes, 2 * one);
    assert_int_equal(p.plan.unplanned_bytes, 3 * one);
    release(&p);
    p = plan_of(td_test_training);
    release(&p);
}

/* --- the checker ------------------------------------------------------------------------------ */

static const char chain[] = "%x:f32[1,4,8,8] = input\n"
                            "%w:f32[4,4,3,3] = param\n"
                            "%a = conv2d %x, %w {pad=1}\n"
                            "%b = relu %a\n"
                            "%r = reshape %b {shape=4:64}\n"
                            "%c = conv2d %b, %w {pad=1}\n"
                            "%d = scale %c {by=2}\n"
                            "%e = add %d, %b\n"
                            "%s = softmax %r\n"
                            "%o = scale %e {by=3}\n"
                            "output o = %o\n"
                            "output s = %s\n";

/* may v and w lie on the same bytes?  Said by hand from the text above */
static bool may_meet(const char *v, const char *w)
{
    static const char *const pairs[] = { "ab", "ac", "ad", "ae", "as", "ao", "bo", "cd",
                                         "ce", "co", "de", "do", "eo", "cs", "ds" };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((pairs[i][0] == *v && pairs[i][1] == *w) || (pairs[i][0] == *w && pairs[i][1] == *v))
            return true;
    return false;
}

static void the_checker_catches_each_pair_that_must_not_meet(void **state)
{
    (void)state;
    static const char *const names[] = { "w", "a", "b", "c", "d", "e", "s", "o" };
    enum { N = sizeof names / sizeof *names };
    int n_caught = 0;
    for (int v = 0; v < N; v++)
        for (int w = v + 1; w < N; w++) {
            planned p = plan_of(chain);
            /* every value in a buffer of its own, far apart; then these two in one place */
            p.plan.n_buffers = p.g->n_values;
            td_free(p.plan.buffers);
            p.plan.buffers = td_alloc((size_t)p.g->n_values, sizeof *p.plan.buffers);
            assert_non_null(p.plan.buffers);
            for (int i = 0; i < p.g->n_values; i++) {
                p.plan.slots[i].buffer = i ? i : -1;
                p.plan.buffers[i] = (td_buffer){ .bytes = 1024, .offset = 4096 * i };
            }
            p.plan.buffers[td_test_value(p.g, "r")->id].offset =
                p.plan.buffers[td_test_value(p.g, "b")->id].offset;
            p.plan.persistent_bytes = 0;
            p.plan.transient_bytes = 4096 * (p.g->n_values + 1);
            expect_ok(td_plan_check(&p.plan, p.g, p.is_setup, NULL));
            int iv = td_test_value(p.g, names[v])->id, iw = td_test_value(p.g, names[w])->id;
            int64_t to = p.plan.buffers[iv].offset;
            p.plan.buffers[iw].offset = to;
            if (strcmp(names[w], "b") == 0 || strcmp(names[v], "b") == 0)
                p.plan.buffers[td_test_value(p.g, "r")->id].offset =
                    p.plan.buffers[td_test_value(p.g, "b")->id].offset;
            td_status st = td_plan_check(&p.plan, p.g, p.is_setup, NULL);
            if ((st == TD_OK) != may_meet(names[v], names[w]))
                fail_msg("'%s' on '%s': %s", names[w], names[v],
                         st == TD_OK ? "taken" : td_error_message());
            if (st != TD_OK) {
                expect_error(st, TD_EARG, "share memory while both live");
                n_caught++;
            }
            /* half on top of one another is never in place */
            p.plan.buffers[iw].offset = to + 64;
            if (strcmp(names[w], "b") != 0 && may_meet(names[v], names[w]) &&
                td_test_value(p.g, names[w])->producer->n_in == 1 &&
                td_test_value(p.g, names[w])->producer->in[0] == td_test_value(p.g, names[v]))
                expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                             "share memory");
            release(&p);
        }
    assert_in_range(n_caught, 8, N * (N - 1) / 2);
}

static void the_checker_catches_a_place_taken_too_early(void **state)
{
    (void)state;
    planned p = plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = relu %a\n%c = add %b, %a\n"
                        "output c = %c\n");
    /* relu may overwrite its operand, but a is read once more */
    p.plan.slots[td_test_value(p.g, "b")->id] = p.plan.slots[td_test_value(p.g, "a")->id];
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "'%a' and '%b' share memory while both live");
    release(&p);

    p = plan_of("%x:f32[1,4,8,8] = input\n%w:f32[4,4,3,3] = param\n%c:f32[4] = param\n"
                "%a = scale %x {by=2}\n%b = conv2d_fused %a, %w, %c, %a {pad=1}\noutput b = %b\n");
    p.plan.slots[td_test_value(p.g, "b")->id] = p.plan.slots[td_test_value(p.g, "a")->id];
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "'%a' and '%b' share memory");
    release(&p);

    p = plan_of(
        "%x:f32[64] = input\n%a = scale %x {by=2}\n%r = reshape %a {shape=8:8}\n%b = relu %a\n"
        "output r = %r\noutput b = %b\n");
    p.plan.slots[td_test_value(p.g, "b")->id] = p.plan.slots[td_test_value(p.g, "a")->id];
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "'%a' and '%b' share memory");
    release(&p);
}

static void the_checker_catches_a_lost_reshape(void **state)
{
    (void)state;
    planned p = plan_of(chain);
    int r = td_test_value(p.g, "r")->id;
    p.plan.slots[r].buffer = buffer_of(&p, "s");
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "'%r' is not at the address of '%b'");
    release(&p);
}

static void the_checker_catches_what_lies_outside(void **state)
{
    (void)state;
    planned p = plan_of(chain);
    p.plan.transient_bytes -= 64;
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG, "is outside the slab");
    p.plan.transient_bytes += 64;
    td_buffer *b = &p.plan.buffers[buffer_of(&p, "o")];
    b->offset = -64;
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG, "is outside the slab");
    b->offset = 4;
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG, "is outside the slab");
    release(&p);
}

static void the_checker_catches_scratch_on_a_living_value(void **state)
{
    (void)state;
    planned p =
        plan_of("%x:f32[64] = input\n%a = scale %x {by=2}\n%b = sigmoid %a\noutput b = %b\n");
    p.scratch[2] = 100;
    again(&p);
    p.plan.buffers[p.plan.scratch[2]].offset = p.plan.buffers[buffer_of(&p, "b")].offset;
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "the scratch of node 2 and '%a' share memory");
    release(&p);
}

static void the_checker_catches_a_lost_setup_result(void **state)
{
    (void)state;
    planned p = plan_of("%w:f32[64] = param\n%x:f32[64] = input\n%a = relu %w\n%b = relu %x\n"
                        "%c = add %a, %b\n%d = sigmoid %c\noutput d = %d\n");
    p.is_setup[2] = true;
    /* planned as if a were made in every run: c takes a's place */
    bool none[8] = { false };
    td_plan_release(&p.plan);
    expect_ok(td_plan_make(&p.plan, p.g, none, NULL, p.scratch));
    assert_true(share(&p, "a", "c"));
    expect_error(td_plan_check(&p.plan, p.g, p.is_setup, NULL), TD_EARG,
                 "'%a' and '%c' share memory");
    release(&p);
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_graph *g = td_test_graph(td_test_training);
    bool *is_setup = td_alloc((size_t)g->n_nodes, sizeof *is_setup);
    int64_t live = td_alloc_live();
    int n = 1;
    for (;; n++) {
        td_plan plan;
        td_alloc_fail_at(n);
        td_status st = td_plan_make(&plan, g, is_setup, NULL, NULL);
        if (st == TD_OK)
            st = td_plan_check(&plan, g, is_setup, NULL);
        td_alloc_fail_at(0);
        td_plan_release(&plan);
        assert_int_equal(td_alloc_live(), live);
        if (st == TD_OK)
            break;
        assert_int_equal(st, TD_ENOMEM);
    }
    assert_in_range(n, 8, 10);
    td_free(is_setup);
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_a_call_stay_until_its_end),
        cmocka_unit_test(a_result_in_a_call_takes_what_no_other_reads),
        cmocka_unit_test(a_result_takes_its_dead_operands_place),
        cmocka_unit_test(what_is_read_later_is_not_overwritten),
        cmocka_unit_test(a_reshape_keeps_its_memory_alive),
        cmocka_unit_test(two_reshapes_of_one_value_live_together),
        cmocka_unit_test(one_value_twice_is_overwritten_only_where_both_may),
        cmocka_unit_test(the_last_result_takes_a_place_too),
        cmocka_unit_test(a_smaller_operand_gives_no_place),
        cmocka_unit_test(parameters_are_never_overwritten),
        cmocka_unit_test(what_is_only_asked_for_its_shape_may_die),
        cmocka_unit_test(what_runs_read_of_the_setup_stays),
        cmocka_unit_test(the_setup_of_a_training_is_what_is_frozen),
        cmocka_unit_test(scratch_has_a_place_of_its_own),
        cmocka_unit_test(plans_of_networks_are_small),
        cmocka_unit_test(the_checker_catches_each_pair_that_must_not_meet),
        cmocka_unit_test(the_checker_catches_a_place_taken_too_early),
        cmocka_unit_test(the_checker_catches_a_lost_reshape),
        cmocka_unit_test(the_checker_catches_what_lies_outside),
        cmocka_unit_test(the_checker_catches_scratch_on_a_living_value),
        cmocka_unit_test(the_checker_catches_a_lost_setup_result),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
