/*
 * backend/native/int8/native_int8_conv.h -- what the convolutions of 8-bit integers share
 *
 * Both native_pointwise_int8.c and native_taps_int8.c compute 64 channels of a few pixels at a
 * time; the filter is [K / 64, ..., C / 4, 64, 4].
 */
#ifndef TD_BACKEND_NATIVE_INT8_NATIVE_INT8_CONV_H
#define TD_BACKEND_NATIVE_INT8_NATIVE_INT8_CONV_H

#include "backend/native/common/native_division.h"
#include "ir/graph.h"
#include "ops/ops.h"
#include "runtime/kernel.h"

enum {
    TD_INT8_CHANNELS = 64,
    TD_INT8_IMAGE_BYTES = 256 * 1024, /* bytes of x that are read for each 64 channels of y, if the
                                         filter is not read whole for each tile */
    TD_INT8_AHEAD_TILES = 4 /* in which the next filter is fetched, 1 of 4 lines in each */
};

typedef enum {
    TD_INT8_NO_RESIDUAL,
    TD_INT8_UNSIGNED,
    TD_INT8_SIGNED,
    TD_INT8_FLOAT
} td_int8_residual;

/** TD_ENOKERNEL unless the image is u8 and no activation other than relu and relu6 follows. */
td_status td_native_int8_check_forms(const td_node *n) TD_CHECKED;

/** TD_ENOKERNEL unless types, channels and the processor are as the kernels want them; shape and
    padding are not looked at. */
td_status td_native_int8_check(const td_node *n, bool has_loops) TD_CHECKED;

/* what a kernel checks other than layouts, td_native_int8_check included */
typedef td_status td_int8_check(const td_node *n);

/** A kernel's `accepts`: its check, channels last, and the filter in blocks of 64 channels. */
td_status td_native_int8_accepts(const td_node *n, td_int8_check *check) TD_CHECKED;

/** These layouts for a node that passes the check; false for others, of any op. */
bool td_native_int8_preferred_layout(const td_node *n, td_int8_check *check, td_node_layouts *out);

/** The division of `tiles` and the blocks of 64 channels; `cycles`: of one tile of one block. */
td_native_grid td_native_int8_divide(const td_node *n, int64_t tiles, double cycles, int threads);

/** Scratch for the scales and the bias of all threads. */
size_t td_native_int8_scratch(const td_node *n, const td_native_grid *d);

/* the scales and the bias of a part's channels, in steps of y, which are 1 if it is float32;
   is_bounded: no result is as large as 2^30 steps before it is clipped */
typedef struct {
    const float *scale, *bias; /* [K] */
    bool is_bounded;
} td_int8_scales;

/** What one step of the result is: its scale, 1 if it is float32. */
double td_native_int8_step(const td_node *n);

/** Of results [from, to), at these places of `scale`, which has room for 2 K numbers. */
td_int8_scales td_native_int8_scales(const td_node *n, void *const *args, int64_t from, int64_t to,
                                     float *scale);

/* computes a part */
typedef void td_int8_run_part(const td_prepared *p, void *const *args, const td_native_cell *part,
                              const td_int8_scales *scales);

/** A kernel's `run`: all parts of a division, each by its thread, with their scales. */
void td_native_int8_run(const td_prepared *p, void *const *args, const td_native_grid *d,
                        td_int8_run_part *run_part);

#endif
