/*
 * transforms/anchor_rows.h -- training targets of a detector's anchors for the rows of a batch
 *
 *   labels  [rows, A]      class 1 .. K of the anchor's ground truth, 0: none
 *   deltas   [rows, A, 4]   the box as deltas relative to the anchor, zeros: none
 *
 * A zero-initialised object is valid and has no anchors.
 */
#ifndef TD_TRANSFORMS_ANCHOR_ROWS_H
#define TD_TRANSFORMS_ANCHOR_ROWS_H

#include "base/status.h"
#include "boxes/targets.h"
#include "transforms/augment.h"

typedef struct {
    int64_t *labels;
    float *deltas;
    int n_anchors;
} td_anchor_rows;

/** Allocate `n` rows.  TD_ENOMEM. */
TD_CHECKED td_status td_anchor_rows_init(td_anchor_rows *rows, const td_anchors *a, int n);
void td_anchor_rows_release(td_anchor_rows *rows);

/**
 * Fill row `i` from the ground truths of its image, with w's buffer.  TD_ENOMEM.  One thread per
 * row; different rows may be filled at the same time.
 */
TD_CHECKED td_status td_anchor_rows_fill(td_anchor_rows *rows, int i, const td_anchors *a,
                                         td_transformer *w, const td_ground_truth *ground_truths,
                                         int n);

/** Copy row `from` to row `to`. */
void td_anchor_rows_move(td_anchor_rows *rows, int to, int from);

#endif
