/*
 * backend/native/native_stem.h -- the inner loops of a first convolution, 3 x 3 with stride 2
 *
 *     x [N, C, H, W]   plain, float32      w [K / 8, C, 3, 3, 8]   Abcd8a
 *     y [N, P, Q, K]   acdb
 *
 * Images are read as they are; no other layout of them is written.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_STEM_H
#define TD_BACKEND_NATIVE_NATIVE_STEM_H

#include "ir/graph.h"

enum { TD_STEM_LANES = 8, TD_STEM_CHANNELS_MAX = 4, TD_STEM_COLUMNS_MAX = 1024 };

typedef struct {
    int64_t N, C, H, W, K, P, Q;
    int64_t columns; /* of a row and its padding: at most TD_STEM_COLUMNS_MAX */
    int pad;
    int act; /* td_block_act */
} td_stem;

/* computes row p of image n */
typedef void td_stem_loops(const td_stem *v, int64_t n, int64_t p, const float *x, const float *w,
                           const float *bias, float *y);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_stem_loops *td_stem_loops_at(int i);

#endif
