/*
 * test_env_switch.c -- 0, 1, not set and empty; everything else is a usage error with one message
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options/env_switch.h"

static const char name[] = "TANDEM_TEST_SWITCH";

static void values_are_read(void **state)
{
    (void)state;
    bool on;
    for (int otherwise = 0; otherwise < 2; otherwise++) {
        assert_int_equal(unsetenv(name), 0);
        assert_int_equal(td_env_switch(name, otherwise, &on), TD_OK);
        assert_int_equal(on, otherwise);
        assert_int_equal(setenv(name, "", 1), 0);
        assert_int_equal(td_env_switch(name, otherwise, &on), TD_OK);
        assert_int_equal(on, otherwise);
        assert_int_equal(setenv(name, "1", 1), 0);
        assert_int_equal(td_env_switch(name, otherwise, &on), TD_OK);
        assert_true(on);
        assert_int_equal(setenv(name, "0", 1), 0);
        assert_int_equal(td_env_switch(name, otherwise, &on), TD_OK);
        assert_false(on);
    }
}

static void other_values_are_named(void **state)
{
    (void)state;
    static const char *const values[] = { "2", "01", "yes", "true", "on", " 1", "1 ", "-1" };
    bool on;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(setenv(name, values[i], 1), 0);
        assert_int_equal(td_env_switch(name, true, &on), TD_EUSAGE);
        assert_non_null(strstr(td_error_message(), name));
        assert_non_null(strstr(td_error_message(), values[i]));
        assert_false(on);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(other_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
