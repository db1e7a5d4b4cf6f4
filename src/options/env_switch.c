/*
 * env_switch.c -- reads an environment variable that is 0 or 1
 */
#include "options/env_switch.h"

#include <stdlib.h>
#include <string.h>

td_status td_env_switch(const char *name, bool otherwise, bool *out)
{
    const char *v = getenv(name);
    *out = v && *v ? strcmp(v, "1") == 0 : otherwise;
    if (v && *v && !*out && strcmp(v, "0") != 0)
        return td_error(TD_EUSAGE, "%s is '%.40s', wanted 0 or 1", name, v);
    return TD_OK;
}
