/* test_status.c -- the error sentence: setting, context, errno, threads, length */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

static void names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(td_status_name(TD_OK), "OK");
    assert_string_equal(td_status_text(TD_OK), "ok");
    assert_string_equal(td_status_name(TD_ESHAPE), "ESHAPE");
    assert_string_equal(td_status_text(TD_ESHAPE), "shapes do not fit");
    assert_string_equal(td_status_name(TD_EEND), "EEND");
    assert_string_equal(td_status_text((td_status)999), "unknown status");
    assert_string_equal(td_status_name((td_status)999), "UNKNOWN");
    for (int i = 0; i < TD_N_STATUS; i++)
        assert_true(strlen(td_status_text((td_status)i)) > 0);
}

static void a_message_is_kept(void **state)
{
    (void)state;
    assert_int_equal(td_error(TD_EIO, "cannot read '%s'", "x"), TD_EIO);
    assert_string_equal(td_error_message(), "cannot read 'x'");
    assert_int_equal(td_error(TD_EARG, "again: %s", td_error_message()), TD_EARG);
    assert_string_equal(td_error_message(), "again: cannot read 'x'");
    td_error_clear();
    assert_string_equal(td_error_message(), "");
    assert_int_equal(td_error_set(TD_ELIMIT, "100% of it"), TD_ELIMIT);
    assert_string_equal(td_error_message(), "100% of it");
}

static void context_stands_before(void **state)
{
    (void)state;
    (void)td_error(TD_EFORMAT, "inner");
    assert_int_equal(td_error_context(TD_EFORMAT, "header of '%s'", "x"), TD_EFORMAT);
    assert_string_equal(td_error_message(), "header of 'x': inner");
    td_error_clear();
    (void)td_error_context(TD_ESHAPE, "conv1");
    assert_string_equal(td_error_message(), "conv1: shapes do not fit");
}

static void errno_is_told(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(td_error_errno(TD_ENOTFOUND, "cannot open '%s'", "x"), TD_ENOTFOUND);
    assert_string_equal(td_error_message(), "cannot open 'x': No such file or directory");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[4000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)td_error(TD_EIO, "%s", text);
    size_t n = strlen(td_error_message());
    assert_in_range(n, 500, sizeof text - 2);
    (void)td_error_context(TD_EIO, "%s", text);
    assert_int_equal(strlen(td_error_message()), n);
    (void)td_error_context(TD_EIO, "ctx");
    assert_int_equal(strncmp(td_error_message(), "ctx: aaa", 8), 0);
    assert_int_equal(strlen(td_error_message()), n);
}

static void *other_thread(void *arg)
{
    (void)arg;
    (void)td_error(TD_EIO, "of the other thread");
    return NULL;
}

static void threads_have_their_own(void **state)
{
    (void)state;
    pthread_t id;
    (void)td_error(TD_EIO, "mine");
    assert_int_equal(pthread_create(&id, NULL, other_thread, NULL), 0);
    pthread_join(id, NULL);
    assert_string_equal(td_error_message(), "mine");
}

static td_status fails(td_status st)
{
    return st == TD_OK ? TD_OK : td_error(st, "inner");
}

static td_status tries(td_status st, int *reached)
{
    TD_TRY(fails(st));
    *reached = 1;
    TD_TRY_MSG(fails(TD_EEND), "epoch %d", 3);
    return TD_OK;
}

static td_status outs(td_status inner, int *released)
{
    td_status st;
    TD_OUT(fails(inner));
    *released = 10;
out:
    *released += 1;
    return st;
}

static void macros_change_the_flow(void **state)
{
    (void)state;
    int reached = 0, released = 0;
    assert_int_equal(tries(TD_EIO, &reached), TD_EIO);
    assert_int_equal(reached, 0);
    assert_int_equal(tries(TD_OK, &reached), TD_EEND);
    assert_int_equal(reached, 1);
    assert_string_equal(td_error_message(), "epoch 3: inner");
    assert_int_equal(outs(TD_EIO, &released), TD_EIO);
    assert_int_equal(released, 1);
    assert_int_equal(outs(TD_OK, &released), TD_OK);
    assert_int_equal(released, 11);
}

static void a_bug_aborts_and_says_where(void **state)
{
    (void)state;
    int ends[2], status;
    char text[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        TD_CHECK(1 + 1 == 2);
        TD_CHECK(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_status.c:"));
    assert_non_null(strstr(text, "1 + 1 == 3"));
}

static void the_version_is_known(void **state)
{
    static const char before[] = "project(Tandem VERSION ";
    char line[256] = "";
    FILE *f = fopen("CMakeLists.txt", "r"); /* the one place that says it */
    (void)state;
    assert_non_null(f);
    while (strncmp(line, before, strlen(before)) != 0)
        assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    line[strcspn(line + strlen(before), " ") + strlen(before)] = '\0';
    assert_string_equal(td_version(), line + strlen(before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_texts),        cmocka_unit_test(a_message_is_kept),
        cmocka_unit_test(context_stands_before),  cmocka_unit_test(errno_is_told),
        cmocka_unit_test(long_messages_are_cut),  cmocka_unit_test(threads_have_their_own),
        cmocka_unit_test(macros_change_the_flow), cmocka_unit_test(a_bug_aborts_and_says_where),
        cmocka_unit_test(the_version_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
