/*
 * version.c -- the library's version; the build says it
 */
#include "tandem/status.h"

#ifndef TD_VERSION
#define TD_VERSION "0.1.0"
#endif

const char *td_version(void)
{
    return TD_VERSION;
}
