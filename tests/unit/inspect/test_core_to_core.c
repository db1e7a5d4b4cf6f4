/*
 * test_core_to_core.c -- the time between two cores is nanoseconds, or not measured
 */
#include "support/expect.h"

#include "base/clock.h"
#include "base/machine.h"
#include "inspect/core_to_core.h"

static void it_is_nanoseconds(void **state)
{
    (void)state;
    const int64_t start = td_now_ns();
    const double ns = td_core_to_core_ns();
    assert_true(td_now_ns() - start < INT64_C(30000000000)); /* a busy machine */
    assert_true(ns == 0 || (ns > 1 && ns < 1e6));
    assert_true(ns == 0 || td_cpu_count() > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(it_is_nanoseconds) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
