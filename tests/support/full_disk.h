/*
 * full_disk.h -- writes that fail as on a full disk
 *
 *     td_atomic_set_calls(&td_test_full_disk);
 *     expect_error(...);
 *     td_atomic_set_calls(NULL);
 */
#ifndef TD_TEST_FULL_DISK_H
#define TD_TEST_FULL_DISK_H

#include "io/atomic.h"

/** The system's calls, but every write gives ENOSPC. */
extern const td_atomic_calls td_test_full_disk;

#endif
