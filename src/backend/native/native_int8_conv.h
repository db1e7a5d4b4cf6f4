/*
 * backend/native/native_int8_conv.h -- what the convolutions of 8-bit integers share
 *
 * Both native_pointwise_int8.c and native_taps_int8.c compute 64 channels of a few pixels at a
 * time; the filter is [K / 64, ..., C / 4, 64, 4].
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_INT8_CONV_H
#define TD_BACKEND_NATIVE_NATIVE_INT8_CONV_H

#include "ir/graph.h"
#include "ops/ops.h"
#include "runtime/kernel.h"

enum { TD_INT8_CHANNELS = 64 };

typedef enum {
    TD_INT8_NO_RESIDUAL,
    TD_INT8_UNSIGNED,
    TD_INT8_SIGNED,
    TD_INT8_FLOAT
} td_int8_residual;

/** TD_ENOKERNEL unless types, channels and the processor are as the kernels want them; shape and
    padding are not looked at. */
td_status td_native_int8_check(const td_node *n, bool has_loops) TD_CHECKED;

/* thread (i, j) of a x b: tiles i/a of all, blocks of 64 channels j/b of all */
typedef struct {
    int64_t tiles, blocks;
    int pixel_parts, channel_parts;
} td_int8_division;

/** Of all divisions the one with the least work of a thread, then with the least traffic. */
td_int8_division td_native_int8_divide(const td_node *n, int64_t tiles, int threads);

/** `each`: work for one tile of one block. */
td_work_share td_native_int8_share(const td_int8_division *d, double each, int threads);

/* what thread t computes: tiles [from, to), blocks [k_from, k_to) */
typedef struct {
    int64_t from, to, k_from, k_to;
} td_int8_part;

td_int8_part td_native_int8_part(const td_int8_division *d, int t);

/** Scratch for the scales and the bias of all threads. */
size_t td_native_int8_scratch(const td_node *n, const td_int8_division *d);

/* the scales and the bias of a part's channels, in steps of y, which are 1 if it is float32;
   is_bounded: no result is as large as
   2^30 steps before it is clipped */
typedef struct {
    const float *scale, *bias; /* [K] */
    bool is_bounded;
} td_int8_scales;

/** Computes those of a part in the scratch of thread t. */
td_int8_scales td_native_int8_scale(const td_node *n, void *const *args, const td_int8_part *p,
                                    int t);

#endif
