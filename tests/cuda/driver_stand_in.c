/*
 * driver_stand_in.c -- a libcuda.so.1 with which cuDNN plans without a driver
 *
 * cuDNN compiles the kernels of some engines while it plans and loads them by the calls below,
 * which therefore succeed.  Every other function of the driver, from the list that CMake makes from
 * the toolkit's stub library, returns 34, CUDA_ERROR_STUB_LIBRARY.  Nothing can be executed.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { DRIVER_VERSION = 13000, SUCCESS = 0, STUB_LIBRARY = 34 };

/* not the prototypes of cuda.h: on x86-64 and Arm, arguments that are not declared do no harm */
#define REFUSE(name)                                                                               \
    EXPORT int name(void);                                                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return STUB_LIBRARY;                                                                       \
    }
#include "driver_stand_in.inc"

#define ACCEPT(name)                                                                               \
    EXPORT int name(void);                                                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return SUCCESS;                                                                            \
    }
ACCEPT(cuInit)
ACCEPT(cuLibraryUnload)
ACCEPT(cuKernelSetAttribute)
ACCEPT(cuFuncSetAttribute)

/* what a handle points at; nobody looks */
static char object;

#define MAKE(name)                                                                                 \
    EXPORT int name(void **out);                                                                   \
    int name(void **out)                                                                           \
    {                                                                                              \
        *out = &object;                                                                            \
        return SUCCESS;                                                                            \
    }
MAKE(cuLibraryLoadData)
MAKE(cuLibraryGetKernel)
MAKE(cuLibraryGetModule)
MAKE(cuKernelGetFunction)
MAKE(cuModuleGetFunction)

EXPORT int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return SUCCESS;
}

/* 0 of everything: registers, shared and local bytes */
EXPORT int cuKernelGetAttribute(int *value);
int cuKernelGetAttribute(int *value)
{
    *value = 0;
    return SUCCESS;
}
