/*
 * backend/native/conv/native_conv_grad_w.h -- filter gradients in bf16: geometry and the inner
 * loops
 *
 *     dy [N, K/16, P, Q, 16]   x [N, C/16, H, W, 16]   aBcd16b
 *     dw [K/16, C/16, R, S, 16 (c), 16 (k)]            ABcd16b16a, float32
 *
 * The instruction multiplies pairs of halves and adds both products to a float32 lane.  A sum is
 * over pixels, so a pair is the same pixel of two images, which suits every tap and stride.
 * Rows of some pairs of images, a chunk, are interleaved into a store that stays in a core's cache:
 *
 *     dy' [blocks][pairs][rows][Q][16][2]      x' [blocks][pairs][x_rows][columns][16][2]
 *
 * Of a 1 x 1 filter x' has only the pixels that it reads.  Padding is left out: a tap is multiplied
 * with those outputs whose inputs exist.
 */
#ifndef TD_BACKEND_NATIVE_CONV_NATIVE_CONV_GRAD_W_H
#define TD_BACKEND_NATIVE_CONV_NATIVE_CONV_GRAD_W_H

#include "ir/graph.h"

#define TD_GRAD_W_LANES 16
#define TD_GRAD_W_TILE  8 /* channels of x that are multiplied together */

/* The pairs of pixels of a chunk that one tap multiplies, of the first blocks; strides in bytes. */
typedef struct {
    int64_t images, rows, n; /* n: in a row */
    const char *dy, *x;      /* in the store, the first pair */
    int64_t dy_block, dy_row, dy_image;
    int64_t x_block, x_pixel, x_row, x_image;
    int64_t sum_block; /* elements */
} td_grad_w_product;

/* One or two blocks of dy, and 8 channels of x. */
typedef struct {
    const char *dy, *x;
    float *sums;   /* [8 channels of x][16 of dy] of each block */
    bool is_first; /* the sums begin at zero */

    /* two images that are fetched into the cache meanwhile, a pixel for each pair; or NULL */
    const char *ahead[2];
    int64_t ahead_pixel, ahead_row, ahead_image;
} td_grad_w_operands;

typedef struct {
    const char *isa;

    /* n pixels of images a and b, `step` elements apart, to pairs; b NULL: zeros */
    void (*interleave)(const uint16_t *a, const uint16_t *b, int64_t n, int64_t step, char *to);

    void (*multiply)(const td_grad_w_product *p, const td_grad_w_operands *o, int blocks);
} td_grad_w_loops;

/** NULL if this machine lacks the instructions, or has faster ones that oneDNN uses. */
const td_grad_w_loops *td_grad_w_loops_get(void);

#endif
