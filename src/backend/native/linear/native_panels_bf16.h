/*
 * backend/native/linear/native_panels_bf16.h -- native_panels.h in bfloat16
 *
 *     y [N, K] = x [N, C] wT + bias      w [K / 32][C / 2][32][2]
 *
 * then gelu(y), then y + rest, where y may be in the place of the rest.
 *
 * A tile of up to TD_HALF_ROWS rows and two panels has its sums in registers (native_half_tile.h),
 * in float32.  Each sum is one chain over pairs of channels, wherever tiles begin; it is rounded
 * once, at the end.
 */
#ifndef TD_BACKEND_NATIVE_LINEAR_NATIVE_PANELS_BF16_H
#define TD_BACKEND_NATIVE_LINEAR_NATIVE_PANELS_BF16_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/target.h"

enum { TD_HALF_ROWS = 6 };

/* some rows and panels of a product; distances in elements */
typedef struct {
    int64_t rows, panels, depth; /* depth: channels, a multiple of 32 */
    int64_t x_row, y_row;
    const uint16_t *x, *w;
    const float *bias;    /* NULL: none */
    const uint16_t *rest; /* NULL: none; rows as y's */
    uint16_t *y;
    bool gelu;
} td_half_panels;

typedef void td_half_panels_loops(const td_half_panels *v);

/** NULL if this machine lacks the instructions. */
td_half_panels_loops *td_half_panels_loops_here(void);

/** The preferred layouts of linear_fused of many rows in bfloat16; false for other nodes. */
bool td_native_panels_bf16_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
