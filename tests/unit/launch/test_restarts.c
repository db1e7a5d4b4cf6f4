/* test_restarts.c -- when ranks are started again, on how many, and when not */
#include "support/expect.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "launch/restarts.h"
#include "transport/restart.h"

static td_text lines;

static void keep_line(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)level;
    (void)module;
    td_text_add(&lines, "%s\n", text);
}

/* A sequence of attempts, and what each was. */
typedef struct {
    const td_attempt *ends; /* [n]; n_left 0: the ranks of the attempt */
    int n, n_run;
    int ranks[8];         /* of each attempt */
    int64_t images;       /* of a step, as rank 0 records it; 0: it records nothing */
    const char *position; /* checkpoint in the environment of the last attempt */
    bool is_interrupted;  /* a signal comes in the last attempt */
} script;

static td_status play(void *ctx, int ranks, td_attempt *out)
{
    script *s = ctx;
    td_restart here;
    static td_restart_record r;
    assert_true(s->n_run < s->n);
    const int n_left = out->n_left;
    assert_int_equal(n_left, ranks);
    *out = s->ends[s->n_run];
    out->n_left = out->n_left ? out->n_left : n_left;
    s->ranks[s->n_run++] = ranks;
    expect_ok(td_restart_here(&here));
    s->position = here.checkpoint;
    r = (td_restart_record){
        .batch = 8, .images = s->images, .steps = s->n_run, .folder = "f", .checkpoint = "f/c"
    };
    if (s->images)
        expect_ok(td_restart_write(&r));
    if (s->is_interrupted && s->n_run == s->n)
        raise(SIGTERM);
    return TD_OK;
}

static const char *run(script *s, int ranks, int restarts, int min_ranks, int *code)
{
    const td_restart_plan plan = {
        .ranks = ranks, .restarts = restarts, .min_ranks = min_ranks, .is_here = true
    };
    td_text_release(&lines);
    td_log_set_sink(keep_line, NULL);
    expect_ok(td_restarts_run(&plan, play, s, code));
    td_log_set_sink(NULL, NULL);
    assert_false(td_restart_is_possible()); /* the record is closed */
    return td_text_get(&lines);
}

#define LOST                                                                                       \
    {                                                                                              \
        .code = 137, .is_lost = true, .n_suspect = 1, .cause = "rank 1 was killed"                 \
    }

static void lost_ranks_are_started_again(void **state)
{
    (void)state;
    int code;
    const td_attempt ends[] = { LOST, { .code = 0 } };
    script s = { .ends = ends, .n = 2, .images = 32 };
    const char *log = run(&s, 4, 1, 0, &code);
    assert_int_equal(code, 0);
    assert_int_equal(s.n_run, 2);
    assert_int_equal(s.ranks[1], 4);
    assert_string_equal(log, "restart 1 of 1: rank 1 was killed; 4 ranks continue at step 1, from "
                             "'f/c'\n");
    s = (script){ .ends = ends, .n = 2, .images = 32 }; /* 3 do not divide 4 batches, 2 do */
    log = run(&s, 4, 1, 2, &code);
    assert_int_equal(s.ranks[1], 2);
    assert_non_null(strstr(log, "2 ranks continue"));
    s = (script){ .ends = ends, .n = 2 }; /* nothing recorded: one less, from the beginning */
    log = run(&s, 4, 1, 2, &code);
    assert_int_equal(s.ranks[1], 3);
    assert_null(s.position);
    assert_non_null(strstr(log, "from the beginning"));
}

static void what_the_run_does_itself_is_final(void **state)
{
    (void)state;
    int code;
    const td_attempt failed[] = { { .code = 1, .cause = "rank 0 exited with code 1" } };
    script s = { .ends = failed, .n = 1 };
    const char *log = run(&s, 2, 3, 0, &code);
    assert_int_equal(code, 1);
    assert_string_equal(log, "rank 0 exited with code 1\n");
    const td_attempt stopped[] = { { .code = 3 } };
    s = (script){ .ends = stopped, .n = 1 };
    assert_string_equal(run(&s, 2, 3, 0, &code), "");
    assert_int_equal(code, 3);
    const td_attempt lost[] = { LOST, LOST };
    s = (script){ .ends = lost, .n = 1 };
    assert_string_equal(run(&s, 2, 0, 0, &code), "rank 1 was killed\n");
    assert_int_equal(code, 137);
    s = (script){ .ends = lost, .n = 2, .images = 16 };
    assert_non_null(strstr(run(&s, 2, 1, 0, &code), "rank 1 was killed, after 1 restarts\n"));
    assert_int_equal(code, 137);
}

static void too_few_ranks_are_refused(void **state)
{
    (void)state;
    int code;
    const td_attempt away[] = {
        { .code = 1, .is_lost = true, .n_left = 2, .cause = "machine 'b' cannot be reached" }
    };
    script s = { .ends = away, .n = 1, .images = 32 };
    const char *log = run(&s, 4, 1, 3, &code);
    assert_non_null(strstr(log, "2 ranks remain, --min-ranks is 3"));
    assert_int_equal(code, 1);
    s = (script){ .ends = away, .n = 1, .images = 24 };
    log = run(&s, 3, 1, 2, &code);
    assert_non_null(strstr(log, "24 images"));
    assert_int_equal(td_restart_ranks(7, 1, 64, 8), 4);
    assert_int_equal(td_restart_ranks(7, 5, 64, 8), 0);
    assert_int_equal(td_restart_ranks(7, 5, 0, 0), 7);
    const td_restart_plan more = { .ranks = 2, .restarts = 1, .min_ranks = 3 };
    expect_error(td_restarts_run(&more, play, &s, &code), TD_EUSAGE, "--min-ranks: 3");
    const td_restart_plan alone = { .ranks = 2, .min_ranks = 1 };
    expect_error(td_restarts_run(&alone, play, &s, &code), TD_EUSAGE, "--restarts");
}

/* the last test: a signal stays caught */
static void a_signal_ends_everything(void **state)
{
    (void)state;
    int code;
    const td_attempt ends[] = { LOST, LOST };
    script s = { .ends = ends, .n = 2, .images = 32, .is_interrupted = true };
    const char *log = run(&s, 4, 5, 0, &code);
    assert_int_equal(s.n_run, 2);
    assert_int_equal(code, 137);
    assert_null(strstr(log, "restart 2"));
    td_text_release(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_ranks_are_started_again),
        cmocka_unit_test(what_the_run_does_itself_is_final),
        cmocka_unit_test(too_few_ranks_are_refused),
        cmocka_unit_test(a_signal_ends_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
