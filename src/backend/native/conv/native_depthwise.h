/*
 * backend/native/conv/native_depthwise.h -- depthwise convolutions on blocks of 8 channels: inner
 * loops
 *
 *     x [N, CB, H, W, 8]   y [N, CB, P, Q, 8]   aBcd8b; as many output as input channels
 *     w [CB, R S, 8]                            one filter per channel
 *
 * x, w and y are float32 or bf16, dw is float32.  Sums are float32 with fused multiply-adds, in an
 * order that depends on shapes only.
 */
#ifndef TD_BACKEND_NATIVE_CONV_NATIVE_DEPTHWISE_H
#define TD_BACKEND_NATIVE_CONV_NATIVE_DEPTHWISE_H

#include "ir/graph.h"
#include "ir/target.h"

#define TD_DEPTHWISE_LANES    8
#define TD_DEPTHWISE_SIDE_MAX 7
#define TD_DEPTHWISE_TAPS_MAX (TD_DEPTHWISE_SIDE_MAX * TD_DEPTHWISE_SIDE_MAX)

typedef struct {
    td_dtype dtype;           /* of x, w and y: f32 or bf16 */
    int side, stride, pad;    /* of the filter: 3, 5 or 7; 1 or 2; zeros above and to the left */
    int64_t N, CB;            /* CB: blocks */
    int64_t H, W;             /* of x */
    int64_t P, Q;             /* of y */
    int64_t x_plane, y_plane; /* elements of one block of one image */
} td_depthwise;

/* What is applied to a sum before it is stored. */
typedef struct {
    const float *bias; /* [C] or NULL */
    float cap;         /* upper bound; 0: no relu, INFINITY: relu */
} td_depthwise_end;

/* Rows of one block of one image. */
typedef struct {
    int64_t n, cb;
    int64_t from, to;
} td_depthwise_rows;

typedef struct {
    /* computes rows of y */
    void (*forward)(const td_depthwise *v, const td_depthwise_rows *r, const void *x, const void *w,
                    const td_depthwise_end *end, void *y);

    /* computes rows of dx; NULL in float32 */
    void (*grad_x)(const td_depthwise *v, const td_depthwise_rows *r, const void *dy, const void *w,
                   void *dx);

    /* adds the gradients of images [from, to) to dw [R S, 8] of one block */
    void (*grad_w)(const td_depthwise *v, int64_t from, int64_t to, int64_t cb, const void *dy,
                   const void *x, float *dw);
} td_depthwise_loops;

/** The loops for `dtype`, or NULL if this machine lacks the instructions or has AVX-512. */
const td_depthwise_loops *td_depthwise_loops_for(td_dtype dtype);

/** The preferred layouts of the convolutions of native_depthwise.c and native_depthwise_tiles.c;
    false for other ops, and if this machine has no loops for them. */
bool td_native_depthwise_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_depthwise_tiles_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
