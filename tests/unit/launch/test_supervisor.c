/*
 * test_supervisor.c -- processes that are watched until all have ended: who was the cause, what is
 * kept of their words, how the others end
 */
#include "launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"

static td_text lines;

static void keep_line(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)module;
    if (level <= TD_LOG_WARN)
        td_text_add(&lines, "%s\n", text);
}

/* the cause that td_children_tell describes; its code must be `code` */
static const char *told(const td_children *c, int code)
{
    static char cause[TD_CAUSE_BYTES];
    assert_int_equal(td_children_tell(c, false, cause), code);
    return cause;
}

static void prepare(td_children *c, int n)
{
    expect_ok(td_children_make(n, c));
    for (int i = 0; i < n; i++)
        snprintf(c->at[i].name, sizeof c->at[i].name, "rank %d", i);
}

/* the rest of a child's life */
typedef enum {
    ENDS,     /* with a code */
    DIES,     /* of a signal */
    WAITS,    /* for a signal */
    IS_DEAF,  /* to SIGTERM */
    IS_FROZEN /* by SIGSTOP */
} life;

static int ready[2]; /* a byte comes when a child cannot hear SIGTERM */

static void live(life how, int n)
{
    sigset_t none;
    sigemptyset(&none);
    switch (how) {
    case ENDS:
        _exit(n);
    case DIES:
        raise(n);
        break;
    case IS_FROZEN:
        raise(SIGSTOP);
        break;
    case IS_DEAF:
        signal(SIGTERM, SIG_IGN);
        if (write(ready[1], "", 1) != 1)
            _exit(9);
        break;
    case WAITS:
        break;
    }
    for (;;)
        sigsuspend(&none);
}

static void start(td_children *c, int i, life how, int n)
{
    bool is_child;
    expect_ok(td_child_fork(c, i, false, &is_child));
    if (is_child)
        live(how, n);
    assert_true(c->at[i].pid > 0);
    char byte;
    siginfo_t info;
    if (how == IS_DEAF)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    if (how == IS_FROZEN)
        assert_int_equal(waitid(P_PID, (id_t)c->at[i].pid, &info, WSTOPPED | WNOWAIT), 0);
}

static void all_may_end_well(void **state)
{
    (void)state;
    td_children c;
    prepare(&c, 3);
    for (int i = 0; i < 3; i++)
        start(&c, i, ENDS, 0);
    assert_int_equal(c.n_living, 3);
    expect_ok(td_children_watch(&c));
    assert_int_equal(c.n_living, 0);
    assert_null(td_children_cause(&c));
    assert_string_equal(told(&c, 0), "");
    td_children_release(&c);
}

/* one that fails ends the others: by SIGTERM, the deaf and the frozen by SIGKILL */
static void a_failure_ends_the_others(void **state)
{
    (void)state;
    td_children c;
    prepare(&c, 4);
    start(&c, 0, WAITS, 0);
    start(&c, 1, IS_DEAF, 0);
    start(&c, 2, IS_FROZEN, 0);
    start(&c, 3, ENDS, 7);
    expect_ok(td_children_watch(&c));
    assert_ptr_equal(td_children_cause(&c), &c.at[3]);
    assert_int_equal(c.at[0].code, 128 + SIGTERM);
    assert_int_equal(c.at[1].code, 128 + SIGKILL);
    assert_int_equal(c.at[2].code, 128 + SIGKILL);
    for (int i = 0; i < 3; i++)
        assert_true(c.at[i].is_ended && c.at[i].by_signal);
    assert_false(c.at[3].is_ended || c.at[3].by_signal);
    const char *text = told(&c, 7);
    assert_non_null(strstr(text, "rank 3"));
    assert_non_null(strstr(text, "7"));
    td_children_release(&c);
}

static void a_signal_is_named(void **state)
{
    (void)state;
    td_children c;
    prepare(&c, 1);
    start(&c, 0, DIES, SIGUSR2);
    expect_ok(td_children_watch(&c));
    assert_true(c.at[0].by_signal);
    const char *text = told(&c, 128 + SIGUSR2);
    assert_non_null(strstr(text, "rank 0"));
    assert_non_null(strstr(text, "signal 12"));
    td_children_release(&c);
}

/* as reap() leaves it */
static void fail_with(td_children *c, int i, int code)
{
    c->at[i].code = code;
    c->at[i].by_signal = code > 128;
    c->first_failed = &c->at[i];
}

/* the rank that others blame, unless the first was killed, refused its line, or merely stopped */
static void blame_goes_to_the_cause(void **state)
{
    (void)state;
    static const struct {
        int code;
        bool blamed_is_cause;
    } rows[] = { { 1, true }, { 2, false }, { 128 + SIGKILL, false }, { 3, false }, { 4, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_children c;
        prepare(&c, 2);
        fail_with(&c, 0, rows[i].code);
        assert_ptr_equal(td_children_cause(&c), &c.at[0]);
        c.blamed = &c.at[1];
        assert_ptr_equal(td_children_cause(&c), &c.at[rows[i].blamed_is_cause]);
        td_children_release(&c);
    }
}

static void who_was_blamed_is_told(void **state)
{
    (void)state;
    td_children c;
    prepare(&c, 2);
    fail_with(&c, 0, 1);
    c.blamed = &c.at[1];
    c.at[1].is_ended = true; /* it hung: the code of who found out */
    c.at[1].code = 128 + SIGKILL;
    assert_non_null(strstr(told(&c, 1), "rank 1"));
    c.at[1].is_ended = false;
    c.at[1].by_signal = true;
    assert_non_null(strstr(told(&c, 128 + SIGKILL), "signal 9"));
    fail_with(&c, 0, 3); /* stopped after saving: it said so itself */
    assert_string_equal(told(&c, 3), "");
    td_children_release(&c);
    assert_true(td_child_is_quiet(3) && td_child_is_quiet(4));
    assert_false(td_child_is_quiet(0) || td_child_is_quiet(1) || td_child_is_quiet(2));
}

/* all that it says goes to its file, the last of it is kept */
static void words_are_heard(void **state)
{
    (void)state;
    enum { LINES = 3000 };
    td_children c;
    bool is_child;
    char *bytes;
    size_t n;
    const char *path = td_scratch_path("words");
    prepare(&c, 1);
    c.at[0].file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(c.at[0].file >= 0);
    expect_ok(td_child_fork(&c, 0, true, &is_child));
    if (is_child) {
        for (int i = 0; i < LINES; i++)
            dprintf(1 + i % 2, "line %d\n", i);
        _exit(0);
    }
    expect_ok(td_children_watch(&c));
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    assert_true(n > 2 * TD_CHILD_TAIL);
    assert_memory_equal(bytes, "line 0\nline 1\n", 14);
    assert_int_equal(c.at[0].n_tail, TD_CHILD_TAIL);
    assert_memory_equal(c.at[0].tail, bytes + n - TD_CHILD_TAIL, TD_CHILD_TAIL);
    assert_memory_equal(bytes + n - 10, "line 2999\n", 10);
    td_free(bytes);
    td_children_release(&c);
}

/* the disk is full: the child goes on, and what it says is kept */
static void a_log_that_cannot_be_written_is_left(void **state)
{
    (void)state;
    td_children c;
    bool is_child;
    prepare(&c, 1);
    c.at[0].file = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (c.at[0].file < 0)
        skip();
    td_text_release(&lines);
    td_log_set_sink(keep_line, NULL);
    expect_ok(td_child_fork(&c, 0, true, &is_child));
    if (is_child) {
        dprintf(1, "a word\n");
        _exit(0);
    }
    expect_ok(td_children_watch(&c));
    td_log_set_sink(NULL, NULL);
    assert_non_null(strstr(td_text_get(&lines), "rank 0"));
    assert_int_equal(c.at[0].file, -1);
    assert_int_equal(c.at[0].code, 0);
    assert_int_equal(c.at[0].n_tail, 7);
    td_children_release(&c);
}

/* the last test: the signal stays caught */
static void a_signal_is_forwarded_once(void **state)
{
    (void)state;
    td_children c;
    prepare(&c, 2);
    start(&c, 0, WAITS, 0);
    start(&c, 1, WAITS, 0);
    td_signals_catch();
    raise(SIGINT);
    expect_ok(td_children_watch(&c));
    assert_true(c.was_told);
    for (int i = 0; i < 2; i++)
        assert_int_equal(c.at[i].code, 128 + SIGINT);
    td_children_release(&c);
}

/* a child has an empty stdin, and a process group of its own, which Ctrl-C does not reach */
static void children_are_apart(void **state)
{
    (void)state;
    td_children c;
    bool is_child;
    char byte;
    prepare(&c, 1);
    expect_ok(td_child_fork(&c, 0, false, &is_child));
    if (is_child)
        _exit(getpgrp() != getpid() ? 10 : read(0, &byte, 1) != 0 ? 11 : 0);
    expect_ok(td_children_watch(&c));
    assert_int_equal(c.at[0].code, 0);
    td_children_release(&c);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    td_children c;
    td_alloc_fail_at(1);
    assert_int_equal(td_children_make(3, &c), TD_ENOMEM);
    td_children_release(&c);
    td_children_release(NULL);
    td_alloc_fail_at(0);
    prepare(&c, 1);
    td_alloc_fail_at(1);
    assert_int_equal(td_children_watch(&c), TD_ENOMEM);
    td_alloc_fail_at(0);
    td_children_release(&c);
}

static int forget(void **state)
{
    td_log_set_sink(NULL, NULL);
    td_text_release(&lines);
    return td_test_leaks_end(state);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, td_test_leaks_begin, forget)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_may_end_well),
        TEST(a_failure_ends_the_others),
        TEST(a_signal_is_named),
        TEST(blame_goes_to_the_cause),
        TEST(who_was_blamed_is_told),
        TEST(words_are_heard),
        TEST(a_log_that_cannot_be_written_is_left),
        TEST(children_are_apart),
        TEST(memory_may_run_out),
        TEST(a_signal_is_forwarded_once),
    };
    if (pipe2(ready, O_CLOEXEC) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
