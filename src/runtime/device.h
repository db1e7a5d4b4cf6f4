/*
 * runtime/device.h -- a device: backends in order of preference; the passes use it as a target
 */
#ifndef TD_RUNTIME_DEVICE_H
#define TD_RUNTIME_DEVICE_H

#include "comm/comm.h"
#include "runtime/autotune.h"
#include "runtime/backends.h"
#include "runtime/device_memory.h"
#include "tandem/program.h"

struct td_device {
    const char *name;
    const td_backend *backends[TD_BACKENDS_MAX]; /* best first */
    int n_backends;
    const td_device_memory *memory;
    bool emulates; /* half types by float32 kernels (emulate_half.h), before `ref` */
    td_target target;
    td_tuner *tuner; /* NULL: no measurements are used */
    td_comm *comm;   /* borrowed; NULL: one rank */
};

/** Programs compiled on `dev` from now on sum over the ranks of `c`, which must outlive them.
    NULL: one rank. */
void td_device_join(td_device *dev, td_comm *c);

#endif
