/*
 * backend/native/native_inverted.h -- inverted residual blocks, computed by rows: the inner loops
 *
 *     x [N, H, W, C]   y [N, P, Q, K], or [N, P, Q, M] without a projection      acdb, float32
 *     w1 [M / 8, C, 8]   w2 [M / 8, side, side, 8]   w3 [K / 8, M, 8]             Abcd8a
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
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_INVERTED_H
#define TD_BACKEND_NATIVE_NATIVE_INVERTED_H

#include "ir/graph.h"

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
    const float *x, *w1, *b1, *w2, *b2, *w3, *b3;
} td_inverted_in;

typedef struct {
    int64_t n;            /* image */
    int64_t p_from, p_to; /* rows of y */
    int64_t m_from, m_to; /* multiples of TD_INVERTED_BLOCK, but for M */
    bool adds_rest;       /* b3 and the residual */
    float *y;             /* the first of these rows */
    float *sums;          /* without a projection: [rows, M], the sums of the rows */
    float *scratch;       /* td_inverted_scratch of the number of rows */
} td_inverted_job;

/** Floats of a job's scratch. */
int64_t td_inverted_scratch(const td_inverted *v, int64_t rows);

typedef void td_inverted_loops(const td_inverted *v, const td_inverted_in *in,
                               const td_inverted_job *j);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_inverted_loops *td_inverted_loops_at(int i);

#endif
