/*
 * clock.c -- monotonic and wall clock
 */
#include "base/clock.h"

#include <time.h>

#include "base/status.h"

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    TD_CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t td_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double td_wall_s(void)
{
    return (double)read_clock(CLOCK_REALTIME) * 1e-9;
}
