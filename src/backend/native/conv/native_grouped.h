/*
 * backend/native/conv/native_grouped.h -- grouped 3 x 3 convolutions on channel blocks: the inner
 * loops
 *
 *     x [N, CB, H, W, L]   y [N, CB, P, Q, L]   aBcdLb; pad 1, as many output as input channels
 *     w [CB, 9, J, L, 2]   half: pairs of a group's channels      J = width / 2
 *       [CB, 9, J, L]      float32                                J = width
 *
 *       [CB, J / 8, 9, 8, 8]  float32 with L = 8, if J is 8 or more
 *
 * L is the lanes of a block: 16 with AVX-512, 8 with AVX2.  A group has `width` channels: 4, 8, 16
 * or 32.  L / width groups fill a block, or a group takes width / L; a unit is the one or more
 * blocks of a group.  The filter's outer index is the block of outputs, its lanes the outputs in
 * it.
 *
 * Sums are float32 with fused multiply-adds, and halves are multiplied in pairs.  The order of a
 * sum depends on shapes only.
 */
#ifndef TD_BACKEND_NATIVE_CONV_NATIVE_GROUPED_H
#define TD_BACKEND_NATIVE_CONV_NATIVE_GROUPED_H

#include "ir/graph.h"
#include "ir/target.h"

#define TD_GROUPED_TAPS 9

typedef struct {
    td_dtype dtype;           /* of x, w and y: f32 or bf16 */
    int width, stride;        /* channels per group; 1 or 2 */
    int lanes;                /* of a block */
    int64_t N, CB;            /* CB: blocks */
    int64_t H, W;             /* of x */
    int64_t P, Q;             /* of y */
    int64_t blocks, units;    /* blocks per unit; units per image */
    int64_t x_plane, y_plane; /* elements of one block of one image */
} td_grouped;

/* What is applied to a sum before it is stored. */
typedef struct {
    const float *bias; /* [C] or NULL */
    bool relu;
} td_grouped_end;

typedef struct {
    td_dtype dtype;
    int lanes;
    int images; /* that one step of grad_w takes together */

    /* computes y of one unit of image n */
    void (*forward)(const td_grouped *v, int64_t n, int64_t unit, const void *x, const void *w,
                    const td_grouped_end *end, void *y);

    /* block `cb` of w for grad_x: each group's inputs and outputs exchanged, taps in reverse
       order */
    void (*transpose_filter)(const td_grouped *v, int64_t cb, const void *w, void *transposed);

    /* computes dx of one unit of image n */
    void (*grad_x)(const td_grouped *v, int64_t n, int64_t unit, const void *dy,
                   const void *transposed, void *dx);

    /* adds the gradients of images [from, to) to dw [blocks, 9, width, L] of one unit */
    void (*grad_w)(const td_grouped *v, int64_t from, int64_t to, int64_t unit, const void *dy,
                   const void *x, float *dw);
} td_grouped_loops;

/** The loops for `dtype`, or NULL if this machine lacks the instructions. */
const td_grouped_loops *td_grouped_loops_for(td_dtype dtype);

/** The preferred layouts of the convolutions of native_grouped.c; false for other ops, and if this
    machine has no loops for them. */
bool td_native_grouped_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
