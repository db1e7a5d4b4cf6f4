/*
 * boxes/targets.h -- assigns ground truths to anchors and makes the training targets
 *
 *     void *scratch = td_alloc(1, td_targets_scratch_bytes(anchors));           once per thread
 *     td_targets_assign(anchors, ground_truths, n, scratch, labels, deltas);    per image
 *
 * Every anchor takes the ground truth with the largest overlap if that is sufficient; then every
 * ground truth claims the anchor with the largest overlap.
 *
 *                               SSD320                    SSD300                    SSDLite
 *   sufficient overlap          IoU >= 0.5                IoU > 0.5                 IoU >= 0.5
 *   ties, for an anchor         lowest ground truth       the same                  the same
 *   ties, for a ground truth    lowest anchor             the same                  the same
 *   two claim one anchor        the lower ground truth    the later ground truth    the later
 *   ground truths used          the first 100             all                       all
 *
 * RetinaNet: IoU >= 0.5 is sufficient; every ground truth claims all anchors that share its largest
 * overlap, and these get the ground truth that they overlap most, whichever claimed them; an anchor
 * without one whose largest overlap is 0.4 or more is neither object nor background.
 *
 * A ground truth that overlaps no anchor claims anchor 0, as in the references; RetinaNet's none.
 * Ground truths with a non-finite coordinate are skipped, and, except for SSD320, those without
 * height or width (they would make the loss infinite).
 */
#ifndef TD_BOXES_TARGETS_H
#define TD_BOXES_TARGETS_H

#include <stddef.h>

#include "boxes/anchors.h"
#include "boxes/detector_rules.h"

size_t td_targets_scratch_bytes(const td_anchors *a);

/** match [a->n]: the ground truth of each anchor, 0 .. n - 1, or -1: background, -2: neither. */
void td_targets_match(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int32_t *match);

/**
 * labels [a->n]: class of the anchor's ground truth, or 0, or -1: neither; deltas [a->n, 4]: the
 * box relative to the anchor, or zeros.  Boxes are normalised.  Returns the number of anchors that
 * have a ground truth.
 */
int td_targets_assign(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int64_t *labels, float *deltas);

/**
 * The rule of SSD320 on a matrix of overlaps [n, n_anchors], none negative or NaN: each column gets
 * its best row if that is 0.5 or more, and each row with `valid[row]` (NULL: all) claims its best
 * column.  `scratch` has the size for that many anchors.
 */
void td_targets_argmax(const float *iou, const bool *valid, int n, int n_anchors, void *scratch,
                       int32_t *match);

#endif
