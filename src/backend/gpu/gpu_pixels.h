/*
 * backend/gpu/gpu_pixels.h -- images whose channels are last, as the plug-in's functions need them
 */
#ifndef TD_BACKEND_GPU_PIXELS_H
#define TD_BACKEND_GPU_PIXELS_H

#include "backend/gpu/gpu.h"

/** Have the pixels of `t` [N, C, H, W] consecutive channels? */
bool td_gpu_has_channels_last(const td_type *t);

/** Do the plug-in's functions for pixels take this dtype? */
bool td_gpu_is_pixel_float(td_dtype d);

/** How many elements can be read at once, at most 8: it divides all three. */
int td_gpu_width(int64_t channels, int64_t step, int64_t start);

/** How many parts of each image are summed apart, so that the GPU has enough blocks. */
int64_t td_gpu_pixel_parts(int64_t n, int64_t area, int64_t channels, int width);

/** The size of s->sums. */
size_t td_gpu_pixel_sums_bytes(const td_gpu_pixel_sums *s);

#endif
