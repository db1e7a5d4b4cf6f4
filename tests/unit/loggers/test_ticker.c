/* test_ticker.c -- the line about the work of a silent job: when, what, and from which thread */
#include "loggers/ticker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "support/expect.h"

#define S INT64_C(1000000000)

static void the_first_line_comes_earlier(void **state)
{
    (void)state;
    td_ticker_times t = { .line_ns = 100 * S, .first_ns = 10 * S, .every_ns = 30 * S };
    assert_int_equal(td_ticker_due(&t), 110 * S);
    t.line_ns = 104 * S; /* a line of the job */
    t.has_line = true;
    assert_int_equal(td_ticker_due(&t), 134 * S);
}

static void expect_text(const td_work *w, double seconds, const char *wanted)
{
    char text[200];
    td_ticker_text(w, seconds, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void lines_say_what_is_known(void **state)
{
    (void)state;
    td_work w = { .kind = TD_WORK_STEP, .at = 1, .n = 4 };
    expect_text(&w, 20.2, "epoch 0: iteration 1 of 4 has run for 20 s");
    w = (td_work){ TD_WORK_STEP, .epoch = 2, .at = 3, .n = 4, .n_images = 512, .seconds = 64 };
    expect_text(&w, 31, "epoch 2: iteration 3 of 4 has run for 31 s, 8.0 images/s so far");
    w.kind = TD_WORK_DATA;
    expect_text(&w, 12,
                "epoch 2: waiting for the images of iteration 3 of 4 for 12 s, 8.0 images/s so "
                "far");
    w = (td_work){ TD_WORK_VALIDATION, .epoch = 1, .at = 2, .n = 9 };
    expect_text(&w, 40, "epoch 1: the validation has run for 40 s, 2 of 9 batches");
    w.kind = TD_WORK_OPEN;
    expect_text(&w, 11, "opening the data and compiling the network has taken 11 s so far");
    w.kind = TD_WORK_NONE;
    expect_text(&w, 11, "");
}

static atomic_int n_lines;
static char last[200];

static void hear(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    assert_int_equal(level, TD_LOG_INFO);
    assert_string_equal(module, "train");
    snprintf(last, sizeof last, "%s", text);
    atomic_fetch_add(&n_lines, 1);
}

static void wait_for_lines(int n)
{
    while (atomic_load(&n_lines) < n) /* ctest's time limit ends it */
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void a_silent_job_is_logged(void **state)
{
    td_ticker *t;
    (void)state;
    assert_int_equal(setenv("TANDEM_PROGRESS_SECONDS", "0.001", 1), 0);
    td_log_set_sink(hear, NULL);
    expect_ok(td_ticker_start("train", &t));
    td_ticker_set(t, &(td_work){ .kind = TD_WORK_VALIDATION, .n = 7 });
    td_ticker_count(t, 5);
    wait_for_lines(3);
    td_ticker_set(t, &(td_work){ .kind = TD_WORK_STEP, .at = 3, .n = 7 });
    td_ticker_count(t, 6);
    wait_for_lines(atomic_load(&n_lines) + 3);
    td_ticker_stop(t);
    const int n = atomic_load(&n_lines);
    td_log_set_sink(NULL, NULL);
    assert_true(n >= 6);
    assert_non_null(strstr(last, "iteration 3 of 7"));
}

static void nothing_is_logged_without_work_or_time(void **state)
{
    td_ticker *t;
    (void)state;
    atomic_store(&n_lines, 0);
    td_log_set_sink(hear, NULL);
    expect_ok(td_ticker_start("train", &t)); /* with the times of the test before */
    td_ticker_note_line(t);
    td_ticker_restart(t);
    td_ticker_stop(t);
    assert_int_equal(setenv("TANDEM_PROGRESS_SECONDS", "0", 1), 0);
    expect_ok(td_ticker_start("train", &t));
    assert_null(t);
    td_ticker_set(t, &(td_work){ .kind = TD_WORK_STEP });
    td_ticker_count(t, 1);
    td_ticker_note_line(t);
    td_ticker_restart(t);
    td_ticker_stop(t);
    static const char *const wrong[] = { "", "x", "-1", "nan", "1e99", "3 s" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv("TANDEM_PROGRESS_SECONDS", wrong[i], 1), 0);
        expect_error(td_ticker_start("train", &t), TD_EUSAGE, "TANDEM_PROGRESS_SECONDS");
        assert_null(t);
    }
    td_log_set_sink(NULL, NULL);
    assert_int_equal(atomic_load(&n_lines), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_first_line_comes_earlier),
                                        cmocka_unit_test(lines_say_what_is_known),
                                        cmocka_unit_test(a_silent_job_is_logged),
                                        cmocka_unit_test(nothing_is_logged_without_work_or_time) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
