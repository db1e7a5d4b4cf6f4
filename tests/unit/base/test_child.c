/*
 * test_child.c -- work in a process of its own: what it makes, how it fails, how it dies
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/child.h"
#include "base/machine.h"
#include "base/signals.h"

static int touched; /* by the child, in its own memory */
static char name[] = "child", x[] = "x";

static td_status say(void *ctx, td_text *out)
{
    touched = 1;
    td_text_add(out, "hello %s", (const char *)ctx);
    return TD_OK;
}

static td_status say_much(void *ctx, td_text *out)
{
    (void)ctx;
    for (int i = 0; i < 100000; i++)
        td_text_add(out, "%05d ", i);
    return TD_OK;
}

static td_status give_up(void *ctx, td_text *out)
{
    td_text_add(out, "half of it");
    return td_error(TD_EFORMAT, "'%s' is broken", (const char *)ctx);
}

static td_status die(void *ctx, td_text *out)
{
    (void)out;
    raise(*(const int *)ctx);
    return TD_OK;
}

static td_status hold(void *ctx, td_text *out)
{
    const size_t bytes = *(const size_t *)ctx;
    char *p = td_alloc(bytes, 1);
    if (!p)
        return TD_ENOMEM;
    memset(p, 1, bytes);
    td_text_add(out, "%lld", (long long)td_memory_peak_bytes());
    td_free(p);
    return TD_OK;
}

static td_status wait_for_signal(void *ctx, td_text *out)
{
    (void)ctx;
    for (int i = 0; i < 2000; i++) {
        if (td_signal_caught()) {
            td_text_add(out, "caught %d", td_signal_caught());
            return TD_OK;
        }
        usleep(10000);
        if (i == 20)
            kill(getppid(), SIGTERM);
    }
    return td_error(TD_EARG, "no signal came");
}

static void the_text_comes_back(void **state)
{
    (void)state;
    td_text t = { 0 };
    expect_ok(td_child_run(say, name, &t));
    expect_ok(td_child_run(say, name, &t));
    assert_string_equal(td_text_get(&t), "hello childhello child");
    assert_int_equal(touched, 0);
    td_text_release(&t);
    expect_ok(td_child_run(say_much, NULL, &t));
    assert_int_equal(t.len, 600000);
    assert_string_equal(t.data + t.len - 6, "99999 ");
    td_text_release(&t);
}

static void an_error_comes_back_with_its_sentence(void **state)
{
    (void)state;
    td_text t = { 0 };
    expect_error(td_child_run(give_up, x, &t), TD_EFORMAT, "'x' is broken");
    assert_int_equal(t.len, 0);
    td_text_release(&t);
}

static void a_death_is_an_error(void **state)
{
    (void)state;
    td_text t = { 0 };
    int sig = SIGKILL;
    expect_error(td_child_run(die, &sig, &t), TD_EIO, "signal 9, perhaps");
    assert_int_equal(t.len, 0);
    td_text_release(&t);
}

/* each child's peak is its own, whatever the one before held */
static void memory_of_each_is_its_own(void **state)
{
    (void)state;
    long long peak[2] = { 0, 0 };
    const size_t bytes[2] = { 200u << 20, 1u << 20 };
    for (int i = 0; i < 2; i++) {
        td_text t = { 0 };
        size_t each = bytes[i];
        expect_ok(td_child_run(hold, &each, &t));
        assert_int_equal(sscanf(td_text_get(&t), "%lld", &peak[i]), 1);
        td_text_release(&t);
    }
    assert_true(peak[0] >= 200 << 20);
    assert_true(peak[1] < 100 << 20);
}

static void a_signal_is_passed_on(void **state)
{
    (void)state;
    td_text t = { 0 };
    td_signals_catch();
    expect_ok(td_child_run(wait_for_signal, NULL, &t));
    assert_string_equal(td_text_get(&t), "caught 15");
    td_text_release(&t);
}

static td_status say_name(void)
{
    td_text t = { 0 };
    const td_status st = td_child_run(say, name, &t);
    td_text_release(&t);
    return st;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_test_allocations(say_name, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_comes_back),
        cmocka_unit_test(an_error_comes_back_with_its_sentence),
        cmocka_unit_test(a_death_is_an_error),
        cmocka_unit_test(memory_of_each_is_its_own),
        cmocka_unit_test(memory_may_fail_at_every_call),
        cmocka_unit_test(a_signal_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
