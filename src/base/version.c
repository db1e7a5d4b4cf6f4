/*
 * version.c -- the library's version, defined by the build
 */
#include "tandem/status.h"

#ifndef TD_VERSION
#error "TD_VERSION is not defined: CMakeLists.txt sets it"
#endif

const char *td_version(void)
{
    return TD_VERSION;
}
