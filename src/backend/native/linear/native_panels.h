/*
 * backend/native/linear/native_panels.h -- matrix products with filters in panels of 32: the inner
 * loops
 *
 *     y [N, K] = x [N, C] wT + bias      w [K / 32][C][32]
 *
 * then gelu(y), or relu(y + rest), where y may be in the place of the rest: it is added before the
 * first of several parts of the channels, and otherwise after the products.  native_panels.c and
 * native_panels_grad_w.c use them.
 *
 * A tile of up to TD_PANEL_ROWS rows and one panel has its sums in registers.  Each sum is one
 * chain in the order of the channels, wherever tiles and parts begin.
 */
#ifndef TD_BACKEND_NATIVE_LINEAR_NATIVE_PANELS_H
#define TD_BACKEND_NATIVE_LINEAR_NATIVE_PANELS_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/graph.h"
#include "runtime/kernel.h"

enum {
    TD_PANEL = 32,       /* outputs */
    TD_PANEL_BLOCK = 16, /* channels are a multiple of it */
    TD_PANEL_ROWS = 14,
    TD_PANEL_FAR = 512, /* rows a multiple of so many floats apart share a few sets of the cache */
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
    bool is_tiled;          /* x as `pack_tiles` writes it; not by_rows */
} td_panels;

/* In td_panels.rows there are so many tiles, of equal size but for one row. */
static inline int64_t td_panel_tiles(int64_t rows)
{
    return (rows + TD_PANEL_ROWS - 1) / TD_PANEL_ROWS;
}

/* Floats of a packed tile. */
static inline int64_t td_panel_tile_size(int64_t depth)
{
    return depth * TD_PANEL_ROWS + TD_PANEL_BLOCK;
}

typedef struct {
    void (*multiply)(const td_panels *v);

    /* `rows` rows of n floats, n a multiple of 16 */
    void (*copy)(int64_t rows, int64_t n, const float *from, int64_t from_row, float *to,
                 int64_t to_row);

    /* panels [panels][depth][32] of from [channels, 32 panels]; channels from `channels` to
       `depth` are 0 */
    void (*pack_panels)(int64_t panels, int64_t channels, int64_t depth, const float *from,
                        int64_t from_row, float *to);

    /* the same of from [32 panels, depth] */
    void (*pack_transposed)(int64_t panels, int64_t depth, const float *from, float *to);

    /* tiles [channels][14] of from [channels, rows], whose columns are the product's rows; at most
       TD_PANEL_TILES_MAX; the rest up to `depth` is 0 */
    void (*pack_tiles)(int64_t rows, int64_t channels, int64_t depth, const float *from,
                       int64_t from_row, float *to);
} td_panels_loops;

enum { TD_PANEL_TILES_MAX = 64 };

/** NULL if this machine lacks the instructions. */
const td_panels_loops *td_panels_loops_here(void);

/** TD_ENOKERNEL: an operand is not float32, or the machine has no loops for it. */
td_status td_native_panels_check_types(const td_node *n) TD_CHECKED;
/** The same where a linear layer's factors are rounded to TF32. */
td_status td_native_panels_check_factors(const td_node *n) TD_CHECKED;

/* blocks of rows x groups of panels */
typedef struct {
    int64_t blocks, groups;
} td_panel_jobs;

/** At least `blocks` blocks; panels are divided only where threads would be without a block. */
td_panel_jobs td_native_panels_divide(int64_t blocks, int64_t panels, int threads);
td_work_share td_native_panels_share(const td_panel_jobs *j, int64_t rows, int64_t panels,
                                     int threads);

/* a job: rows [from, to) of `panels` panels from `first` on */
typedef struct {
    int64_t from, to, first, panels;
} td_panel_job;

/** Job i of a product of so many rows and panels. */
td_panel_job td_native_panels_job(const td_panel_jobs *j, int64_t rows, int64_t panels, int64_t i);

/** The preferred layouts of linear_fused of many rows in float32; false for other nodes. */
bool td_native_panels_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
