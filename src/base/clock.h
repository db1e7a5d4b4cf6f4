/*
 * base/clock.h -- monotonic and wall clock
 */
#ifndef TD_BASE_CLOCK_H
#define TD_BASE_CLOCK_H

#include <stdint.h>

/** Monotonic clock. */
int64_t td_now_ns(void);

/** Wall clock, seconds since 1970. */
double td_wall_s(void);

#endif
