/*
 * backend/native/native_pointwise_blocked.h -- 1x1 convolutions on channels in blocks of 16: the
 * inner loops
 *
 *     y [K/16][pixels][16] = x [C/16][pixels][16] w     w [K/16][C/16][16 (c)][16 (k)]
 *
 * and sums over pixels, the gradient of 16 filters' 16 channels:
 *
 *     dw [16 (c)][16 (k)] = sum of x [pixels][16 (c)] dy [pixels][16 (k)]
 *
 * All sums of a tile are in registers; each is one chain of fused multiply-adds, in the order of
 * the channels or of the pixels.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_POINTWISE_BLOCKED_H
#define TD_BACKEND_NATIVE_NATIVE_POINTWISE_BLOCKED_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_POINT_LANES = 16,
    TD_POINT_PANEL = 32,  /* outputs of a tile: two blocks */
    TD_POINT_PIXELS = 14, /* pixels of a tile */
};

/* Adjacent pixels of an image, one panel of outputs and all channels; distances in floats. */
typedef struct {
    int64_t pixels, depth;             /* depth: blocks of channels */
    int64_t x_block, y_block, w_block; /* from one block to the next */
    const float *x, *w;
    float *y;
    bool is_streamed; /* non-temporal stores */

    /* fetched into the cache meanwhile, or NULL: the filters of another panel, and a share of
       pixels, as many as of x: `part` of `parts` */
    const float *next_w, *next_x;
    int64_t next_block; /* x_block of next_x */
    int64_t part, parts;
} td_point_product;

/* Runs of pixels of several images, one block of each tensor; distances in floats. */
typedef struct {
    int64_t images, pixels; /* pixels of each image */
    int64_t x_image, dy_image;
    const float *x, *dy;
    float *dw;
    bool is_first;     /* the sums begin at zero */
    const float *next; /* as many pixels of as many images to fetch meanwhile; NULL: none */
    int64_t next_image;
} td_point_sum;

typedef struct {
    void (*multiply)(const td_point_product *v);
    void (*sum)(const td_point_sum *v);

    /* n pixels, each `stride` pixels after the one before, together */
    void (*gather)(const float *from, int64_t stride, int64_t n, float *to);
} td_point_loops;

/** NULL if this machine lacks the instructions. */
const td_point_loops *td_point_loops_here(void);

#endif
