/*
 * backend/native/native_gated.h -- 1x1 convolutions of images times gates: the inner loops
 *
 *     x [N, H, W, C]   gate [N, C]   w [K / 8, C, 8]   residual, y [N, H, W, K]
 *
 * A job computes a range of the N H W pixels.  It writes TD_GATED_DEPTH channels of x gate at a
 * time to a core's cache, and multiplies them by w.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_GATED_H
#define TD_BACKEND_NATIVE_NATIVE_GATED_H

#include "ir/graph.h"

enum { TD_GATED_LANES = 8, TD_GATED_DEPTH = 192 };

typedef struct {
    int64_t pixels, area; /* N H W, H W */
    int64_t C, K;
} td_gated;

typedef struct {
    const float *x, *gate, *w, *bias, *residual; /* residual may be NULL */
} td_gated_in;

/* pixels from..to; scratch has TD_GATED_DEPTH floats for each of them */
typedef void td_gated_loops(const td_gated *v, const td_gated_in *in, int64_t from, int64_t to,
                            float *y, float *scratch);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_gated_loops *td_gated_loops_at(int i);

#endif
