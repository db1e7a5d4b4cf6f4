/* test_sizes.c -- image sizes by epoch */
#include <stdio.h>
#include <string.h>

#include "support/expect.h"

#include "data/sizes.h"

static void steps_are_read(void **state)
{
    (void)state;
    td_sizes s;
    expect_ok(td_sizes_parse("0:128,30:160,60:224", &s));
    static const int at[][2] = { { 0, 128 },  { 29, 128 }, { 30, 160 },
                                 { 59, 160 }, { 60, 224 }, { 1000000, 224 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        assert_int_equal(td_sizes_at(&s, at[i][0], 99), at[i][1]);
    assert_int_equal(td_sizes_largest(&s, 99), 224);
    expect_ok(td_sizes_parse("0:64", &s));
    assert_int_equal(td_sizes_largest(&s, 99), 64);
    expect_ok(td_sizes_parse(NULL, &s));
    assert_int_equal(td_sizes_at(&s, 5, 99), 99);
    assert_int_equal(td_sizes_largest(&s, 99), 99);
}

static void others_are_refused(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        { "", "wanted EPOCH:SIZE pairs" },
        { "128", "at character 4" },
        { "0:", "at character 3" },
        { "0:128,", "at character 7" },
        { "0:128;1:3", "at character 6" },
        { " 0:128", "at character 1" },
        { "0:-1", "at character 3" },
        { "1:128", "first step begins at epoch 1" },
        { "0:128,5:64,5:32", "epoch 5 comes after epoch 5" },
        { "0:128,5:64,4:32", "epoch 4 comes after epoch 5" },
        { "0:0", "size 0, wanted 1 .. 8192" },
        { "0:9000", "size 9000" },
        { "0:99999999999999999999", "wanted EPOCH:SIZE pairs" },
    };
    td_sizes s;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        expect_error(td_sizes_parse(lines[i][0], &s), TD_EUSAGE, lines[i][1]);
        assert_int_equal(s.n, 0);
    }
    char many[600] = "0:8";
    for (int i = 1; i <= TD_SIZE_STEPS_MAX; i++)
        snprintf(many + strlen(many), 16, ",%d:8", i);
    expect_error(td_sizes_parse(many, &s), TD_EUSAGE, "more than 32 steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_read),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
