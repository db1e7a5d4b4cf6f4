/*
 * transforms/anchor_rows.h -- what a detector's anchors should say, for the rows of a batch
 *
 *   labels  [rows, A]      class 1 .. K of the anchor's ground truth, 0: none
 *   deltas   [rows, A, 4]   its box as deltas from the anchor, zeros: none
 *
 * All zero is a valid empty one, of no anchors.
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

/** Room for `n` rows.  TD_ENOMEM. */
TD_CHECKED td_status td_anchor_rows_init(td_anchor_rows *rows, const td_anchors *a, int n);
void td_anchor_rows_release(td_anchor_rows *rows);

/**
 * Fill row `i` from the ground truths of its image.  The buffer it needs is w's.  TD_ENOMEM.  One
 * thread a row; different rows at a time are fine.
 */
TD_CHECKED td_status td_anchor_rows_fill(td_anchor_rows *rows, int i, const td_anchors *a,
                                         td_transformer *w, const td_ground_truth *ground_truths,
                                         int n);

/** Copy row `from` to row `to`. */
void td_anchor_rows_move(td_anchor_rows *rows, int to, int from);

#endif
