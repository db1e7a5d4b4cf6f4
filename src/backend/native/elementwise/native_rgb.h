/*
 * backend/native/elementwise/native_rgb.h -- images of three channels with channels last: the inner
 * loop
 */
#ifndef TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_RGB_H
#define TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_RGB_H

#include <stdint.h>

/* n pixels of three planes, rounded to bfloat16, to [n, 3] */
typedef void td_rgb_loop(int64_t n, const float *const plane[3], uint16_t *to);

/** NULL if this machine lacks the instructions. */
td_rgb_loop *td_rgb_loop_here(void);

#endif
