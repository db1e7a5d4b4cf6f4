/* test_log.c -- levels, sinks, what stands on stderr and on a terminal, threads */
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/threads.h"

typedef struct {
    int n;
    td_log_level level;
    char module[32];
    char text[8192];
} record;

static void keep(void *ctx, td_log_level level, const char *module, const char *text)
{
    record *r = ctx;
    r->n++;
    r->level = level;
    snprintf(r->module, sizeof r->module, "%s", module ? module : "(none)");
    snprintf(r->text, sizeof r->text, "%s", text);
}

static int reset(void **state)
{
    (void)state;
    td_alloc_fail_at(0);
    td_log_set_sink(NULL, NULL);
    return td_log_configure("info") != TD_OK || td_alloc_live() != 0;
}

/* --- levels ---------------------------------------------------------------------------------- */

static void levels_are_per_module(void **state)
{
    (void)state;
    assert_true(td_log_wants(TD_LOG_ERROR, "pass"));
    assert_true(td_log_wants(TD_LOG_INFO, "pass"));
    assert_false(td_log_wants(TD_LOG_DEBUG, "pass"));
    assert_int_equal(td_log_configure("warn,pass=debug,data=trace"), TD_OK);
    assert_true(td_log_wants(TD_LOG_WARN, "rt"));
    assert_false(td_log_wants(TD_LOG_INFO, "rt"));
    assert_false(td_log_wants(TD_LOG_INFO, NULL));
    assert_true(td_log_wants(TD_LOG_DEBUG, "pass"));
    assert_false(td_log_wants(TD_LOG_TRACE, "pass"));
    assert_true(td_log_wants(TD_LOG_TRACE, "data"));
    assert_int_equal(td_log_configure("data=error"), TD_OK); /* the others: info */
    assert_true(td_log_wants(TD_LOG_INFO, "rt"));
    assert_false(td_log_wants(TD_LOG_WARN, "data"));
    assert_int_equal(td_log_configure("error"), TD_OK);
    assert_false(td_log_wants(TD_LOG_WARN, "data"));
}

static void bad_levels_change_nothing(void **state)
{
    (void)state;
    assert_int_equal(td_log_configure("debug"), TD_OK);
    static const char *const bad[] = { "",          "loud",  "info,",     "pass=",
                                       "pass=loud", "=info", "info,,warn" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(td_log_configure(bad[i]), TD_EUSAGE);
        assert_true(td_log_wants(TD_LOG_DEBUG, "pass"));
    }
    assert_int_equal(td_log_configure("loud"), TD_EUSAGE);
    assert_string_equal(td_error_message(),
                        "log level 'loud' is not one of error, warn, info, debug, trace");
    assert_int_equal(td_log_configure("a-module-with-a-name-that-is-too-long=info"), TD_EUSAGE);
    char many[500] = "info";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",m%d=info", i);
    assert_int_equal(td_log_configure(many), TD_EUSAGE);
    td_alloc_fail_at(1);
    assert_int_equal(td_log_configure("info"), TD_ENOMEM);
    td_alloc_fail_at(0);
    assert_true(td_log_wants(TD_LOG_DEBUG, "pass"));
}

/* --- sinks ----------------------------------------------------------------------------------- */

static void a_sink_gets_the_lines(void **state)
{
    (void)state;
    record r = { .n = 0 };
    td_log_set_sink(keep, &r);
    td_log(TD_LOG_INFO, "pass", "fuse: %d norm+relu", 33);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.level, TD_LOG_INFO);
    assert_string_equal(r.module, "pass");
    assert_string_equal(r.text, "fuse: 33 norm+relu");
    td_log(TD_LOG_DEBUG, "pass", "not wanted");
    assert_int_equal(r.n, 1);
    td_log(TD_LOG_WARN, NULL, "%s", "a\033[31mb\r\x7f\tc\nd");
    assert_string_equal(r.module, "(none)");
    assert_string_equal(r.text, "a\\x1b[31mb\\x0d\\x7f\tc\\nd");
    td_log(TD_LOG_WARN, NULL, "two\nlines, %s", "and a\033 name"); /* of the format: meant so */
    assert_string_equal(r.text, "two\nlines, and a\\x1b name");
}

static void long_texts_come_whole(void **state)
{
    (void)state;
    static record r;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    td_log_set_sink(keep, &r);
    td_log(TD_LOG_INFO, "pass", "%s", text);
    assert_string_equal(r.text, text);
    td_alloc_fail_at(1);
    td_log(TD_LOG_INFO, "pass", "%s", text);
    td_alloc_fail_at(0);
    assert_int_equal(strlen(r.text), 1023); /* cut, not lost */
    errno = 5;
    td_log(TD_LOG_INFO, "pass", "%s", text);
    assert_int_equal(errno, 5);
}

/* --- stderr ---------------------------------------------------------------------------------- */

/* what `act` writes to stderr when that is `fd`; read from `from`, which may take its time */
static void capture(void (*act)(void), int fd, int from, char *out, size_t room)
{
    static const char mark[] = "<end>";
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    act();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    assert_int_equal(write(fd, mark, sizeof mark - 1), sizeof mark - 1);
    size_t len = 0;
    for (*out = '\0'; !strstr(out, mark); out[len] = '\0') {
        assert_true(len < room - 1);
        ssize_t n = read(from, out + len, room - 1 - len);
        assert_true(n > 0);
        len += (size_t)n;
    }
    *strstr(out, mark) = '\0';
}

static void say_things(void)
{
    td_log(TD_LOG_INFO, "pass", "fuse");
    td_log(TD_LOG_INFO, NULL, "plain");
    td_log(TD_LOG_WARN, "data", "odd '%s'", "x.jpg");
    td_log(TD_LOG_ERROR, NULL, "cannot go on");
    td_log_progress("50 %");
    td_log(TD_LOG_DEBUG, "pass", "unheard");
    td_log_progress(NULL);
}

static void stderr_gets_plain_lines(void **state)
{
    (void)state;
    int ends[2];
    char text[4096];
    assert_int_equal(pipe(ends), 0);
    capture(say_things, ends[1], ends[0], text, sizeof text);
    assert_string_equal(text, "pass: fuse\nplain\ntandem: warning: data: odd 'x.jpg'\n"
                              "tandem: error: cannot go on\n");
    close(ends[0]);
    close(ends[1]);
}

static char long_text[6000];

static void say_long(void)
{
    td_log(TD_LOG_INFO, "pass", "%s", long_text);
}

static void long_lines_are_written_whole(void **state)
{
    (void)state;
    int ends[2];
    char text[8192];
    memset(long_text, 'y', sizeof long_text - 1);
    assert_int_equal(pipe(ends), 0);
    capture(say_long, ends[1], ends[0], text, sizeof text);
    assert_int_equal(strlen(text), 6 + sizeof long_text - 1 + 1);
    assert_int_equal(text[strlen(text) - 1], '\n');
    close(ends[0]);
    close(ends[1]);
}

static void draw_progress(void)
{
    td_log_progress("epoch 1");
    td_log(TD_LOG_INFO, "pass", "fuse");
    td_log(TD_LOG_WARN, "data", "odd");
    td_log_progress("\xc3\xbc-1234567890123456789\x1b[31m");
    td_log_progress(NULL);
    td_log(TD_LOG_ERROR, NULL, "end");
}

static void a_terminal_keeps_its_last_line(void **state)
{
    (void)state;
    int master, slave;
    char text[4096];
    struct winsize size = { .ws_row = 24, .ws_col = 11 };
    if (openpty(&master, &slave, NULL, NULL, &size) != 0) {
        print_message("no pseudo-terminal can be had here: skipped\n");
        skip();
    }
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    capture(draw_progress, slave, master, text, sizeof text);
    assert_string_equal(text, "\r\033[Kepoch 1"
                              "\r\033[Kpass: fuse\r\nepoch 1"
                              "\r\033[K\033[1;33mtandem: warning: \033[0mdata: odd\r\nepoch 1"
                              "\r\033[K\xc3\xbc-12345678"
                              "\r\033[K"
                              "\033[1;31mtandem: error: \033[0mend\r\n");
    setenv("NO_COLOR", "1", 1);
    capture(draw_progress, slave, master, text, sizeof text);
    assert_non_null(strstr(text, "\r\033[Ktandem: warning: data: odd\r\n"));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    capture(say_things, slave, master, text, sizeof text);
    assert_null(strchr(text, '\033'));
    close(master);
    close(slave);
}

/* --- threads --------------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_LINES = 500 };

static void count_lines(void *ctx, td_log_level level, const char *module, const char *text)
{
    int *n = ctx; /* the log's lock guards it */
    (void)level;
    (void)module;
    *n += strcmp(text, "a line of a thread") == 0;
}

static void talk(void *ctx)
{
    (void)ctx;
    for (int i = 0; i < N_LINES; i++) {
        td_log(TD_LOG_INFO, "pass", "a line of a %s", "thread");
        if (i % 100 == 0 && td_log_configure("info,pass=debug") != TD_OK)
            return;
        td_log_progress("x");
    }
}

static void threads_may_talk_at_once(void **state)
{
    (void)state;
    td_thread threads[N_THREADS];
    int n = 0;
    td_log_set_sink(count_lines, &n);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(td_thread_start(&threads[i], "talker", talk, NULL), TD_OK);
    for (int i = 0; i < N_THREADS; i++)
        td_thread_join(&threads[i]);
    assert_int_equal(n, N_THREADS * N_LINES);
}

#define TEST(f) cmocka_unit_test_teardown(f, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(levels_are_per_module),          TEST(bad_levels_change_nothing),
        TEST(a_sink_gets_the_lines),          TEST(long_texts_come_whole),
        TEST(stderr_gets_plain_lines),        TEST(long_lines_are_written_whole),
        TEST(a_terminal_keeps_its_last_line), TEST(threads_may_talk_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
