/*
 * backend/native/inverted_residual/native_gated.h -- 1x1 convolutions of images times gates: the
 * inner loops
 *
 *     x [N, H, W, C]   gate [N, C]   w [K / 8, C, 8]   residual, y [N, H, W, K]
 *
 * These are float32 or bfloat16; then w [K / 8, C / 2, 8, 2] has pairs of channels.
 *
 * A job computes a range of the N H W pixels.  It writes TD_GATED_DEPTH channels of x gate at a
 * time to a core's cache, and multiplies them by w; in bfloat16 all channels.
 */
#ifndef TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_GATED_H
#define TD_BACKEND_NATIVE_INVERTED_RESIDUAL_NATIVE_GATED_H

#include "ir/graph.h"
#include "ir/target.h"

enum { TD_GATED_LANES = 8, TD_GATED_DEPTH = 192 };

typedef struct {
    int64_t pixels, area; /* N H W, H W */
    int64_t C, K;
} td_gated;

typedef struct {
    const void *x, *gate, *w;
    const float *bias;
    const void *residual; /* may be NULL */
} td_gated_in;

/* pixels from..to; scratch has TD_GATED_DEPTH floats, or C elements, for each of them */
typedef void td_gated_loops(const td_gated *v, const td_gated_in *in, int64_t from, int64_t to,
                            void *y, void *scratch);

/** Number i of the loops that this machine can run, the widest first; NULL past the end. */
td_gated_loops *td_gated_loops_at(int i);

/** The loops in bfloat16, or NULL, as those of native_inverted.h. */
td_gated_loops *td_gated_loops_bf16(void);

/** The preferred layouts of conv2d_gated; false for other ops, and if this machine has no
    loops for it. */
bool td_native_gated_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
