/* test_restart.c -- the record of a run that can be started again: written, read, damaged */
#include "support/expect.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/restart.h"

static td_restart_record read_back; /* two paths: large */

static const char *in_scratch(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("WORK"), name);
    return path;
}

static void fill(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void a_record_is_read_back(void **state)
{
    (void)state;
    static td_restart_record r = { .batch = 8,
                                   .images = 48,
                                   .steps = 12,
                                   .first_steps = 4,
                                   .first_epochs = 1,
                                   .is_fresh = true,
                                   .folder = "runs/a longer name",
                                   .checkpoint = "runs/a longer name/c\n.safetensors" };
    const char *path = in_scratch("record");
    bool has;
    td_restart_clear();
    expect_ok(td_restart_write(&r)); /* no launcher: nothing is written */
    assert_int_not_equal(access(path, F_OK), 0);
    fill(path, "", 0);
    assert_int_equal(setenv(TD_ENV_RESTART_RECORD, path, 1), 0);
    assert_true(td_restart_is_possible());
    expect_ok(td_restart_read(path, &read_back, &has));
    assert_false(has);
    for (int i = 0; i < 2; i++) { /* the second is shorter, over the first */
        expect_ok(td_restart_write(&r));
        expect_ok(td_restart_read(path, &read_back, &has));
        assert_true(has);
        assert_int_equal(read_back.batch, 8);
        assert_int_equal(read_back.images, 48);
        assert_int_equal(read_back.steps, r.steps);
        assert_int_equal(read_back.first_steps, 4);
        assert_int_equal(read_back.first_epochs, 1);
        assert_true(read_back.is_fresh);
        assert_string_equal(read_back.folder, r.folder);
        assert_string_equal(read_back.checkpoint, r.checkpoint);
        r.steps = 3;
        strcpy(r.folder, "b");
        strcpy(r.checkpoint, "");
    }
    expect_error(td_restart_read("/nowhere/record", &read_back, &has), TD_EIO, "/nowhere/record");
    td_restart_clear();
    assert_false(td_restart_is_possible());
}

static void a_damaged_record_is_refused(void **state)
{
    (void)state;
    static char zeros[3 * PATH_MAX];
    const char *path = in_scratch("damaged");
    bool has;
    const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
#define ROW(text) { text, sizeof text - 1 }
        ROW("8 16 2 0 0 1"),           /* no end */
        ROW("8 16 2 0 0 1\0a\0b"),     /* likewise */
        ROW("8 16 2 0 0 1\0a\0"),      /* no checkpoint */
        ROW("8 16 2 0 0\0a\0b\0"),     /* five numbers */
        ROW("8 16 2 0 0 1 7\0a\0b\0"), /* seven */
        ROW("8 16 2 0 0 x\0a\0b\0"),   /* a word */
        ROW("0 16 2 0 0 1\0a\0b\0"),   /* an empty batch */
        ROW("8 0 2 0 0 1\0a\0b\0"),    /* a step without images */
        ROW("8 16 -2 0 0 1\0a\0b\0"),  /* negative */
        ROW("8 16 9999999999999999999999999999999999999999 0 0 1\0a\0b\0"),
        ROW("8 16 9000000000000000000 0 0 1\0a\0b\0"),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill(path, rows[i].bytes, rows[i].n);
        expect_error(td_restart_read(path, &read_back, &has), TD_EFORMAT, "damaged");
    }
    memset(zeros, 'a', sizeof zeros); /* a path that is too long */
    memcpy(zeros, "8 16 2 0 0 1", 13);
    fill(path, zeros, sizeof zeros);
    expect_error(td_restart_read(path, &read_back, &has), TD_EFORMAT, "damaged");
}

static void the_environment_carries_the_position(void **state)
{
    (void)state;
    td_restart here;
    static td_restart_record r = { .first_steps = 4, .first_epochs = 1, .folder = "f" };
    td_restart_clear();
    expect_ok(td_restart_here(&here));
    assert_int_equal(here.ranks, 0);
    assert_null(here.checkpoint);
    expect_ok(td_restart_export(&r, 3));
    expect_ok(td_restart_here(&here));
    assert_int_equal(here.ranks, 3);
    assert_int_equal(here.first_steps, 4);
    assert_int_equal(here.first_epochs, 1);
    assert_string_equal(here.folder, "f");
    assert_null(here.checkpoint); /* none was written */
    strcpy(r.checkpoint, "f/c");
    expect_ok(td_restart_export(&r, 3));
    expect_ok(td_restart_here(&here));
    assert_string_equal(here.checkpoint, "f/c");
    expect_ok(td_restart_export(NULL, 2));
    expect_ok(td_restart_here(&here));
    assert_int_equal(here.ranks, 2);
    assert_int_equal(here.first_steps, -1);
    assert_null(here.folder);
    for (int i = 0; i < 5; i++) {
        static const char *const bad[] = { "2", "0 0 0 0", "2 x 0 0", "5000 0 0 0", "2 -7 0 0" };
        assert_int_equal(setenv("TANDEM_RESTART", bad[i], 1), 0);
        expect_error(td_restart_here(&here), TD_EUSAGE, "TANDEM_RESTART");
    }
    td_restart_clear();
}

static void an_event_belongs_to_one_start(void **state)
{
    (void)state;
    static const td_restart_record r = { .batch = 8, .images = 16, .folder = "f" };
    const char *path = in_scratch("lossy");
    bool has;
    td_restart_clear();
    td_restart_report(TD_RESTART_LOSS); /* no launcher: does nothing */
    assert_false(td_restart_has(TD_RESTART_LOSS));
    fill(path, "", 0);
    assert_int_equal(setenv(TD_ENV_RESTART_RECORD, path, 1), 0);
    assert_int_equal(setenv(TD_ENV_RESTART_NUMBER, "1", 1), 0);
    assert_false(td_restart_has(TD_RESTART_LOSS));
    td_restart_report(TD_RESTART_LOSS);
    assert_true(td_restart_has(TD_RESTART_LOSS));
    assert_false(td_restart_has(TD_RESTART_STOP));
    td_restart_report(TD_RESTART_STOP);
    assert_true(td_restart_has(TD_RESTART_STOP));
    expect_ok(td_restart_read(path, &read_back, &has)); /* before anything was recorded */
    assert_false(has);
    expect_ok(td_restart_write(&r));
    assert_true(td_restart_has(TD_RESTART_LOSS));
    assert_int_equal(setenv(TD_ENV_RESTART_NUMBER, "2", 1), 0);
    assert_false(td_restart_has(TD_RESTART_LOSS));
    assert_false(td_restart_has(TD_RESTART_STOP));
    td_restart_report(TD_RESTART_LOSS);
    expect_ok(td_restart_read(path, &read_back, &has));
    assert_true(has);
    assert_string_equal(read_back.folder, "f");
    assert_int_equal(setenv(TD_ENV_RESTART_NUMBER, "-1", 1), 0);
    td_restart_report(TD_RESTART_LOSS);
    assert_false(td_restart_has(TD_RESTART_LOSS));
    td_restart_clear();
    assert_null(getenv(TD_ENV_RESTART_NUMBER));
}

static void a_run_that_is_only_watched_reports_events(void **state)
{
    (void)state;
    static const td_restart_record r = { .batch = 8, .images = 16, .folder = "f" };
    const char *path = in_scratch("watched");
    bool has;
    fill(path, "", 0);
    expect_ok(td_restart_export(&r, 3)); /* left by an outer launcher */
    expect_ok(td_restart_export_watch(path));
    td_restart here;
    expect_ok(td_restart_here(&here));
    assert_int_equal(here.ranks, 0);
    assert_false(td_restart_is_possible());
    expect_ok(td_restart_write(&r)); /* nothing is written */
    assert_false(td_restart_has(TD_RESTART_LOSS));
    expect_ok(td_restart_read(path, &read_back, &has));
    assert_false(has);
    td_restart_report(TD_RESTART_LOSS);
    assert_true(td_restart_has(TD_RESTART_LOSS));
    assert_false(td_restart_has(TD_RESTART_STOP));
    td_restart_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_read_back),
        cmocka_unit_test(a_damaged_record_is_refused),
        cmocka_unit_test(the_environment_carries_the_position),
        cmocka_unit_test(an_event_belongs_to_one_start),
        cmocka_unit_test(a_run_that_is_only_watched_reports_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
