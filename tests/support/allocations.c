/*
 * allocations.c -- fails each allocation of a run in turn
 */
#include "support/allocations.h"

#include "support/expect.h"

int td_test_allocations(td_status (*run)(void), int most)
{
    const int64_t live = td_alloc_live();
    int n = 0;
    for (td_status st = TD_ENOMEM; st != TD_OK;) {
        td_alloc_fail_at(++n);
        st = run();
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_int_equal(td_alloc_live(), live);
        assert_in_range(n, 1, most);
    }
    return n;
}
