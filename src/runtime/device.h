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
    bool is_absent; /* kernels are chosen and planned, nothing runs */
    bool emulates;  /* half types by float32 kernels (emulate_half.h), before `ref` */
    td_target target;
    td_tuner *tuner; /* NULL: no measurements are used */
    td_comm *comm;   /* borrowed; NULL: one rank */
};

/**
 * Device cuda without a GPU: programs can be compiled and inspected, not run; nodes that no kernel
 * accepts stay without one.  `json`: properties of the GPU for which convolutions are planned, or
 * NULL.  Errors of td_gpu_describe.
 */
TD_CHECKED td_status td_device_describe(const char *json, td_device **out);

/** Programs compiled on `dev` from now on sum over the ranks of `c`, which must outlive them.
    NULL: one rank. */
void td_device_join(td_device *dev, td_comm *c);

#endif
