/*
 * data/sizes.h -- progressive resizing: the image size of each epoch
 *
 *     "0:128,30:160,60:224"     128 in epochs 0 .. 29, 160 in 30 .. 59, 224 from 60 on
 *
 * Source: Howard et al., DAWNBench 2018 ("progressive image resizing"): small images in early
 * epochs give the same accuracy in less time.
 */
#ifndef TD_DATA_SIZES_H
#define TD_DATA_SIZES_H

#include <stdint.h>

#include "base/status.h"

enum { TD_SIZE_STEPS_MAX = 32, TD_SIZE_PIXELS_MAX = 8192 };

typedef struct {
    int n; /* steps; 0: there is no schedule */
    int64_t epoch[TD_SIZE_STEPS_MAX];
    int size[TD_SIZE_STEPS_MAX];
} td_sizes;

/**
 * Parse a schedule; NULL is none.  TD_EUSAGE: not EPOCH:SIZE pairs, epochs that do not begin at 0
 * or do not increase, a size outside 1 .. 8192, more than 32 pairs.
 */
TD_CHECKED td_status td_sizes_parse(const char *text, td_sizes *out);

/** The size of an epoch, 0 or later; `otherwise` without a schedule. */
int td_sizes_at(const td_sizes *s, int64_t epoch, int otherwise);

/** The largest size; `otherwise` without a schedule. */
int td_sizes_largest(const td_sizes *s, int otherwise);

#endif
