/*
 * options/env_switch.h -- environment variables that are 0 or 1
 */
#ifndef TD_OPTIONS_ENV_SWITCH_H
#define TD_OPTIONS_ENV_SWITCH_H

#include <stdbool.h>

#include "base/status.h"

/**
 * Is the variable `name` 1?  `otherwise` if it is not set, or empty.  TD_EUSAGE: it is neither 0
 * nor 1.
 */
TD_CHECKED td_status td_env_switch(const char *name, bool otherwise, bool *out);

#endif
