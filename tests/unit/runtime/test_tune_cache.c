/*
 * test_tune_cache.c -- the file of measured times: kept, found again, and left out when it is not
 * to be trusted
 */
#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "runtime/tune_cache.h"
#include "support/allocations.h"
#include "support/scratch.h"

static td_tune_cache *opened(const char *path, const char *machine)
{
    td_tune_cache *c;
    expect_ok(td_tune_cache_open(path, machine, &c));
    return c;
}

static void write_sample(const char *path)
{
    td_tune_cache *c = opened(path, "this one");
    expect_ok(td_tune_cache_put(c, "time a conv2d", 0.25));
    expect_ok(td_tune_cache_put(c, "time b conv2d", 1e-7));
    expect_ok(td_tune_cache_put(c, "time a conv2d", 0.125));
    expect_ok(td_tune_cache_save(c));
    td_tune_cache_free(c);
}

static void numbers_are_found_again(void **state)
{
    (void)state;
    double v = 0;
    const char *path = td_scratch_path("new/folder/tune.txt");
    write_sample(path);
    td_tune_cache *c = opened(path, "this one");
    assert_true(td_tune_cache_get(c, "time a conv2d", &v));
    assert_true(v == 0.125);
    assert_true(td_tune_cache_get(c, "time b conv2d", &v));
    assert_true(v == 1e-7);
    assert_false(td_tune_cache_get(c, "time c conv2d", &v));
    td_tune_cache_free(c);
    td_tune_cache_free(NULL);
}

static void nothing_is_written_without_news(void **state)
{
    (void)state;
    const char *path = td_scratch_path("none.txt");
    td_tune_cache *c = opened(path, "this one");
    expect_ok(td_tune_cache_save(c));
    assert_false(td_path_exists(path));
    td_tune_cache_free(c);
    c = opened("", "this one"); /* nowhere to keep it */
    expect_ok(td_tune_cache_put(c, "key", 1));
    expect_ok(td_tune_cache_save(c));
    td_tune_cache_free(c);
}

static void expect_unused(const char *path, const char *machine)
{
    double v;
    td_tune_cache *c = opened(path, machine);
    assert_false(td_tune_cache_get(c, "time a conv2d", &v));
    assert_false(td_tune_cache_get(c, "time b conv2d", &v));
    td_tune_cache_free(c);
}

static void another_machine_is_left_out(void **state)
{
    (void)state;
    write_sample(td_scratch_path("other.txt"));
    expect_unused(td_scratch_path("other.txt"), "another one");
}

/* every byte changed, and every length cut */
static void damage_is_left_out(void **state)
{
    (void)state;
    char *bytes;
    size_t n;
    const char *good = td_scratch_path("good.txt"), *bad = td_scratch_path("bad.txt");
    write_sample(good);
    expect_ok(td_file_read(good, 4096, &bytes, &n));
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        expect_ok(td_file_write(bad, bytes, n));
        expect_unused(bad, "this one");
        bytes[i] ^= 1;
        expect_ok(td_file_write(bad, bytes, i));
        expect_unused(bad, "this one");
    }
    td_free(bytes);
    expect_ok(td_file_write(bad, "tandem-tune 1\n\0", 15));
    expect_unused(bad, "this one");
    expect_unused(td_scratch_folder(), "this one"); /* a folder */
}

static void a_failed_write_is_an_error(void **state)
{
    (void)state;
    const char *file = td_scratch_path("file");
    expect_ok(td_file_write(file, "x", 1));
    td_tune_cache *c = opened(td_scratch_path("file/below/tune.txt"), "this one");
    expect_ok(td_tune_cache_put(c, "key", 1));
    expect_error(td_tune_cache_save(c), TD_EIO, "file");
    td_tune_cache_free(c);
}

static td_status save_and_read(void)
{
    td_tune_cache *c;
    const char *path = td_scratch_path("memory.txt");
    TD_TRY(td_tune_cache_open(path, "this one", &c));
    td_status st = td_tune_cache_put(c, "time a conv2d", 0.25);
    if (st == TD_OK)
        st = td_tune_cache_save(c);
    td_tune_cache_free(c);
    return st;
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    assert_in_range(td_test_allocations(save_and_read, 100), 5, 100);
}

static void the_default_follows_the_environment(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", "/cache", 1);
    char *a = td_tune_cache_default("this one"), *b = td_tune_cache_default("another one");
    assert_true(strncmp(a, "/cache/tandem/tune-", 19) == 0);
    assert_string_not_equal(a, b);
    td_free(a);
    td_free(b);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", "/home/me", 1);
    a = td_tune_cache_default("this one");
    assert_true(strncmp(a, "/home/me/.cache/tandem/tune-", 28) == 0);
    td_free(a);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    a = td_tune_cache_default("this one");
    assert_string_equal(a, "");
    td_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_found_again),
        cmocka_unit_test(nothing_is_written_without_news),
        cmocka_unit_test(another_machine_is_left_out),
        cmocka_unit_test(damage_is_left_out),
        cmocka_unit_test(a_failed_write_is_an_error),
        cmocka_unit_test(memory_may_fail_anywhere),
        cmocka_unit_test(the_default_follows_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
