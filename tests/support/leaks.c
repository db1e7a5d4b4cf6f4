/*
 * support/leaks.c -- compares the number of live blocks before and after a test
 */
#include "support/leaks.h"

#include "support/expect.h"

static int64_t live_before, bytes_before;

int td_test_leaks_begin(void **state)
{
    (void)state;
    live_before = td_alloc_live();
    bytes_before = td_alloc_live_bytes();
    return 0;
}

int td_test_leaks_end(void **state)
{
    (void)state;
    td_alloc_fail_at(0);
    const int64_t blocks = td_alloc_live() - live_before;
    const int64_t bytes = (int64_t)td_alloc_live_bytes() - bytes_before;
    if (blocks != 0 || bytes != 0)
        print_error("%lld blocks, %lld bytes leak\n", (long long)blocks, (long long)bytes);
    return blocks != 0 || bytes != 0;
}
