/* test_clock.c -- monotonic and wall clock */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/leaks.h"

static void clocks_run(void **state)
{
    (void)state;
    int64_t start = td_now_ns();
    double wall = td_wall_s();
    nanosleep(&(struct timespec){ .tv_nsec = 30 * 1000000L }, NULL);
    assert_true(td_now_ns() - start >= 30 * 1000000);
    assert_true(td_wall_s() > wall);
    assert_true(td_wall_s() > 1.7e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(clocks_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
