/*
 * allocations.h -- a run in which each allocation in turn fails
 */
#ifndef TD_TEST_ALLOCATIONS_H
#define TD_TEST_ALLOCATIONS_H

#include "base/status.h"

/**
 * Run with the first allocation failing, then with the second, until all succeed: every run ends
 * with TD_OK or TD_ENOMEM and leaves no block behind.  How many runs it took; more than `most`, or
 * anything else, fails the running test.
 */
int td_test_allocations(td_status (*run)(void), int most);

#endif
