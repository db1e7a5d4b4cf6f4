/*
 * runtime/device.h -- a device: backends in order of preference; the passes use it as a target
 */
#ifndef TD_RUNTIME_DEVICE_H
#define TD_RUNTIME_DEVICE_H

#include "comm/comm.h"
#include "device/device_memory.h"
#include "runtime/autotune.h"
#include "runtime/backends.h"
#include "tandem/program.h"

struct td_device {
    const char *name;
    const td_backend *backends[TD_BACKENDS_MAX]; /* best first */
    int n_backends;
    const td_device_memory *memory;
    bool captures;    /* launches are captured and replayed (program_capture.c) */
    bool fuses_relu6; /* convolutions may compute it */
    bool is_absent;   /* kernels are chosen and planned, nothing runs */
    bool emulates;    /* half types by float32 kernels (emulate_half.h), before `ref` */
    td_target target;
    td_tuner *tuner;      /* NULL: no measurements are used */
    td_comm *comm;        /* borrowed; NULL: one rank */
    bool needs_group;     /* td_device_join fails if GPUs cannot add over the ranks */
    bool adds_over_ranks; /* it is in a group of GPUs (device/gpu_ranks.h) */
};

/**
 * Device cuda without a GPU: programs can be compiled and inspected, not run; nodes that no kernel
 * accepts stay without one.  `json`: properties of the GPU for which convolutions are planned, or
 * NULL.  Errors of td_gpu_describe.
 */
TD_CHECKED td_status td_device_describe(const char *json, td_device **out);

/**
 * Programs compiled on `dev` from now on sum over the ranks of `c`, which must outlive them.  NULL:
 * one rank.  Every rank calls it.  TD_EARG: with another kind of device; TD_ENOTFOUND, TD_EDEVICE.
 */
TD_CHECKED td_status td_device_join(td_device *dev, td_comm *c);

/**
 * Before the comm is closed: its programs run no more.  Unless `st` is TD_OK other ranks are not
 * waited for.  NULL is fine.
 */
void td_device_leave(td_device *dev, td_status st);

/** Does the device add over ranks in an order of its own (--allreduce fast)? */
bool td_device_adds_fast(const td_device *dev);

#endif
