/*
 * backend/native/inverted_residual/native_stem.h -- the inner loops of a first convolution, 3 x 3
 * with stride 2
 *
 *     x [N, C, H, W]   plain      w [K / 8, C, 3, 3, 8]   Abcd8a
 *     y [N, P, Q, K]   acdb
 *
 * These are float32 or bfloat16; then the loops read filters that are packed in pairs of rows.
 *
 * Images are read as they are; no other layout of them is written.
 */
#ifndef TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_STEM_H
#define TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_STEM_H

#include <stdint.h>

#include "ir/graph.h"
#include "ir/target.h"

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

/* the same in bfloat16; w is [K / 16, pairs, 3, 16, 2], pairs of the 3 C rows of a window, with
   zeros where there is no row or channel */
typedef void td_stem_loops_bf16(const td_stem *v, int64_t n, int64_t p, const uint16_t *x,
                                const uint16_t *w, const float *bias, uint16_t *y);

/** NULL unless this machine has instructions for products of pairs. */
td_stem_loops_bf16 *td_stem_loops_for_bf16(void);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_stem_loops *td_stem_loops_at(int i);

/** The preferred layouts of the convolutions of native_stem.c; false for other nodes. */
bool td_native_stem_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
