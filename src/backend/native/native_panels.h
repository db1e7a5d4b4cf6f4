/*
 * backend/native/native_panels.h -- matrix products with filters in panels of 32: the inner loops
 *
 *     y [N, K] = x [N, C] wT + bias      w [K / 32][C][32]
 *
 * then gelu(y), or relu(y + rest), where y may be in the place of the rest: it is added before the
 * first of several parts of the channels, and otherwise after the products.
 *
 * A tile of up to TD_PANEL_ROWS rows and one panel has its sums in registers.  Each sum is one
 * chain in the order of the channels, wherever tiles and parts begin.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_PANELS_H
#define TD_BACKEND_NATIVE_NATIVE_PANELS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TD_PANEL = 32,       /* outputs */
    TD_PANEL_BLOCK = 16, /* channels are a multiple of it */
    TD_PANEL_ROWS = 14,
};

/* some rows, panels and channels of a product; distances in floats */
typedef struct {
    int64_t rows, panels, depth; /* depth: channels, a multiple of TD_PANEL_BLOCK */
    int64_t x_row, y_row, w_panel;
    const float *x, *w;
    const float *bias; /* NULL: none */
    const float *rest; /* NULL: none; rows as y's */
    float *y;
    bool is_first, is_last; /* the product's first, last part of the channels */
    bool relu, gelu;        /* applied to the last part; gelu: no rest */
    bool by_rows;           /* all panels of a tile's rows, then the next rows: for small filters */
} td_panels;

typedef void td_panels_loops(const td_panels *v);

/** NULL if this machine lacks the instructions. */
td_panels_loops *td_panels_loops_here(void);

#endif
