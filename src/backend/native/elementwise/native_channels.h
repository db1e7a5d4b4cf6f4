/*
 * backend/native/elementwise/native_channels.h -- sums of groups of rows
 */
#ifndef TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_CHANNELS_H
#define TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_CHANNELS_H

#include <stdint.h>

/** y[k] = the sum over the groups of parts[group][k] in float64, in order; parts `step` apart. */
void td_native_add_groups(int64_t groups, int64_t step, int64_t width, const float *parts,
                          float *y);

#endif
