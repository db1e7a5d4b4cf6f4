/*
 * runtime/kernel_timing.h -- runs the kernels of a node on made-up data and times them
 *
 * A node's problem is its computation: op, attributes, types with their layouts, no names.
 */
#ifndef TD_RUNTIME_KERNEL_TIMING_H
#define TD_RUNTIME_KERNEL_TIMING_H

#include "runtime/kernel.h"
#include "tandem/program.h"

enum { TD_TIMING_KERNELS_MAX = 16 };

/** "conv2d bf16[..]@aBcd16b bf16[..] {pad=1} -> bf16[..]" */
void td_problem_print(const td_node *n, td_text *out);

bool td_node_has_macs(const td_node *n);

/** Can it be run on arbitrary numbers, and does its layout matter? */
bool td_node_is_timed(const td_node *n);

/**
 * The kernels of `dev` that accept `n`, the device's own choice first; those of `ref` are left out.
 * Returns their number.
 */
int td_timing_kernels(const td_device *dev, const td_node *n,
                      const td_kernel *out[TD_TIMING_KERNELS_MAX]);

/** Buffers for one node: operands, results, scratch; place it zeroed. */
typedef struct {
    const td_device_memory *memory;
    void *args[TD_IN_MAX + TD_OUT_MAX + 1];
    size_t bytes[TD_IN_MAX + TD_OUT_MAX + 1];
    int n;
} td_timing_buffers;

/** Allocate them, filled with small numbers; after a failure, TD_ENOMEM, they are released too. */
td_status td_timing_buffers_init(const td_node *n, const td_device_memory *memory,
                                 size_t scratch_bytes, td_timing_buffers *out) TD_CHECKED;
void td_timing_buffers_release(td_timing_buffers *b);

/** The shortest of several runs.  TD_ENOKERNEL: it cannot be prepared; TD_ENOMEM, TD_EDEVICE. */
td_status td_time_kernel(const td_device *dev, const td_kernel *k, const td_node *n,
                         double *seconds) TD_CHECKED;

#endif
