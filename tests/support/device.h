/*
 * device.h -- the device of a test
 */
#ifndef TD_TEST_DEVICE_H
#define TD_TEST_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "runtime/device.h"

/* td_device_open; TANDEM_TEST_DEVICE names a device that takes the place of "cpu" */
static inline td_status td_test_device_open(const char *name, td_device **out)
{
    const char *other = getenv("TANDEM_TEST_DEVICE");
    return td_device_open(other && strcmp(name, "cpu") == 0 ? other : name, out);
}

#endif
