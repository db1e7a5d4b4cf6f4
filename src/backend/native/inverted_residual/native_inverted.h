/*
 * backend/native/inverted_residual/native_inverted.h -- inverted residual blocks, computed by rows:
 * the inner loops
 *
 *     x [N, H, W, C]   y [N, P, Q, K], or [N, P, Q, M] without a projection      acdb
 *     w1 [M / 8, C, 8]   w2 [M / 8, side, side, 8]   w3 [K / 8, M, 8]             Abcd8a
 *
 * These are float32 or bfloat16; then w1 [M / 8, C / 2, 8, 2] and w3 [K / 8, M / 2, 8, 2], which is
 * ABcd8a2b, have pairs of channels.  Biases are float32.
 *
 * A job computes a band of rows of one image from a range of the M channels between the first and
 * the last convolution; without an expansion these are the channels of x.  It takes
 * TD_INVERTED_BLOCK of them at a time, and keeps only theirs: the expansion's results e, with zeros
 * around them for the padding, and those of the depthwise convolution d, until there are
 * TD_INVERTED_DEPTH of them to be multiplied by w3:
 *
 *     e [rows, columns, 16]   d [pixels, 48]     in a core's cache
 *
 * A sum over M is in order of M within a job.  Without a projection the result is d, and a job also
 * adds each of its rows, from left to right.
 *
 * In bfloat16 a job ends with d, which is rounded for the projection, and is not more bytes than
 * the image; e stays float32.  td_project_bf16 multiplies all channels of some pixels of d.
 */
#ifndef TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_INVERTED_H
#define TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_INVERTED_H

#include <stdint.h>

#include "ir/graph.h"
#include "ir/target.h"

enum {
    TD_INVERTED_LANES = 8,
    TD_INVERTED_BLOCK = 16,
    TD_INVERTED_DEPTH = 48, /* a multiple of it */
};

typedef struct {
    int64_t N, C, H, W, M, K, P, Q;
    int64_t columns; /* width of e: W plus the padding */
    int side, stride, pad;
    int act; /* td_block_act */
    bool has_expansion, has_projection, has_residual;
} td_inverted;

typedef struct {
    const void *x, *w1;
    const float *b1;
    const void *w2;
    const float *b2;
    const void *w3;
    const float *b3;
} td_inverted_in;

typedef struct {
    int64_t n;            /* image */
    int64_t p_from, p_to; /* rows of y */
    int64_t m_from, m_to; /* multiples of TD_INVERTED_BLOCK, but for M */
    bool adds_rest;       /* b3 and the residual */
    void *y;              /* the first of these rows; in bfloat16 of d */
    float *sums;          /* without a projection: [rows, M], the sums of the rows */
    float *scratch;       /* td_inverted_scratch of the number of rows */
} td_inverted_job;

/** Floats of a job's scratch; in bfloat16 more than a job needs. */
int64_t td_inverted_scratch(const td_inverted *v, int64_t rows);

/** Bands of rows of each image: at least `least`, of the next few numbers that with the least work
    for the busiest thread. */
int64_t td_inverted_bands(const td_inverted *v, int64_t least, int threads);

/** Everything of a node but its dtypes and layouts. */
td_status td_inverted_shape_of(const td_node *n, td_inverted *out) TD_CHECKED;

/** The operands of a node with this shape. */
td_inverted_in td_inverted_inputs(const td_inverted *v, void *const *args);

/** means [N, M], float32 or bfloat16, from the sums [N, P, M] of rows. */
void td_inverted_means(const td_inverted *v, const float *sums, td_dtype dtype, void *means);

typedef void td_inverted_loops(const td_inverted *v, const td_inverted_in *in,
                               const td_inverted_job *j);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_inverted_loops *td_inverted_loops_at(int i);

/* y [n, K] = d [n, M] w + b (+ rest [n, K]) */
typedef struct {
    int64_t n, M, K; /* pixels; channels of d and y */
    const uint16_t *d, *w, *rest;
    const float *b;
    uint16_t *y;
} td_projection_bf16;

enum { TD_PROJECT_VECTORS = 2, TD_PROJECT_CHANNELS = 32 };

/* at most TD_PROJECT_CHANNELS channels, from vector kv of 16 on */
typedef void td_project_bf16(const td_projection_bf16 *s, int64_t kv);

/** The loops in bfloat16; NULL unless this machine has instructions for its products, and no
    faster ones of matrices. */
td_inverted_loops *td_inverted_loops_bf16(void);
td_project_bf16 *td_project_loops_bf16(void);

/** The preferred layouts of inverted_residual and expand_depthwise, in float32 and in bfloat16;
    false for other ops, and if this machine has no loops for them. */
bool td_native_inverted_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_inverted_bf16_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
