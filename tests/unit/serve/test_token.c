/*
 * test_token.c -- the bearer token: its file, and headers that bring it or not
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "serve/token.h"
#include "support/expect.h"

static char path[512];

static void write_file(const char *text)
{
    expect_ok(td_file_write(path, text, strlen(text)));
}

static void a_file_holds_one_token(void **state)
{
    static const char *const bad[] = { "", "\n", " \t\r\n", "two words", "umlaut\303\244", "a\nb" };
    char *token;
    (void)state;
    write_file(" s3cret-token \r\n");
    expect_ok(td_token_read(path, &token));
    assert_string_equal(token, "s3cret-token");
    td_free(token);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i]);
        expect_error(td_token_read(path, &token), TD_EFORMAT, "contains no token, wanted");
        assert_null(token);
    }
    expect_ok(td_file_write(path, "a\0b", 3));
    expect_error(td_token_read(path, &token), TD_EFORMAT, "contains no token, wanted");
    expect_error(td_token_read("/nonexistent/token", &token), TD_ENOTFOUND, "token");
    assert_int_equal(td_alloc_live(), 0);
}

static void headers_bring_it_or_not(void **state)
{
    (void)state;
    assert_true(td_token_matches("abc", "Bearer abc"));
    assert_true(td_token_matches("abc", "bearer  abc"));
    assert_false(td_token_matches("abc", NULL));
    assert_false(td_token_matches("abc", ""));
    assert_false(td_token_matches("abc", "Bearer "));
    assert_false(td_token_matches("abc", "Bearer ab"));
    assert_false(td_token_matches("abc", "Bearer abd"));
    assert_false(td_token_matches("abc", "Bearer abcabc")); /* repeats it */
    assert_false(td_token_matches("abc", "Bearer abc "));
    assert_false(td_token_matches("abc", "Basic abc"));
    assert_false(td_token_matches("abc", "abc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_holds_one_token),
        cmocka_unit_test(headers_bring_it_or_not),
    };
    const char *folder = getenv("WORK");
    snprintf(path, sizeof path, "%s/token", folder ? folder : ".");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
