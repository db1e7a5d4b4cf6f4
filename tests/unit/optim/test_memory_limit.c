/* test_memory_limit.c -- a training that may not fit into the machine is announced */
#include "optim/memory_limit.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/machine.h"
#include "support/expect.h"

#define GB INT64_C(1000000000)

static char warning[400];

static void hear(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    assert_int_equal(level, TD_LOG_WARN);
    assert_string_equal(module, "memory");
    snprintf(warning, sizeof warning, "%s", text);
}

static const char *warned(int64_t planned, int n, int64_t available)
{
    *warning = '\0';
    td_log_set_sink(hear, NULL);
    td_memory_warn(planned, n, available);
    td_log_set_sink(NULL, NULL);
    return warning;
}

static void near_or_above_the_memory_is_a_warning(void **state)
{
    (void)state;
    assert_string_equal(warned(8 * GB, 1, 16 * GB), "");
    assert_string_equal(warned(14 * GB, 1, 16 * GB), "");
    assert_non_null(strstr(warned(15 * GB, 1, 16 * GB), "15.0 GB"));
    assert_non_null(strstr(warned(30 * GB, 1, 16 * GB), "16.0 GB"));
    assert_non_null(strstr(warning, "--memory-limit"));
    assert_non_null(strstr(warning, "-b"));
}

static void ranks_of_a_machine_share_its_memory(void **state)
{
    (void)state;
    assert_string_equal(warned(4 * GB, 2, 16 * GB), "");
    assert_non_null(strstr(warned(4 * GB, 4, 16 * GB), "16.0 GB, 4 processes with 4.0 GB"));
}

static void the_machine_has_no_more_than_all(void **state)
{
    (void)state;
    assert_true(td_memory_available_bytes() > 0);
    assert_true(td_memory_available_bytes() <= td_memory_total_bytes());
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(near_or_above_the_memory_is_a_warning),
                                        cmocka_unit_test(ranks_of_a_machine_share_its_memory),
                                        cmocka_unit_test(the_machine_has_no_more_than_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
