/*
 * support/leaks.h -- a test that ends with more blocks than it began with has failed
 *
 *     const struct CMUnitTest tests[] = { leak_checked_test(what_it_shows), ... };
 */
#ifndef TD_TEST_LEAKS_H
#define TD_TEST_LEAKS_H

#define leak_checked_test(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, td_test_leaks_begin, td_test_leaks_end)

/** cmocka fixtures; allocations succeed again afterwards.  Not for tests that run at once. */
int td_test_leaks_begin(void **state);
int td_test_leaks_end(void **state);

#endif
