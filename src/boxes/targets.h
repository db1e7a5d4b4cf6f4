/*
 * boxes/targets.h -- which anchor answers for which ground truth, and what it should say
 *
 *     void *scratch = td_alloc(1, td_targets_scratch_bytes(anchors));       once per thread
 *     td_targets_assign(anchors, ground truths, n, scratch, labels, deltas);        per image
 *
 * Every anchor takes the ground truth it overlaps most if that is enough; then every ground truth
 * is sure of the anchor that overlaps it most.
 *
 *                         SSD320                           SSD300
 *   enough                IoU >= 0.5                       IoU > 0.5
 *   an anchor's ground truth     the lowest on ties               the same
 *   a ground truth's anchor      the lowest on ties               the same
 *   two want one anchor   the lower ground truth                  the later ground truth
 *   ground truths taken          the first 100                    all
 *
 * A ground truth that touches no anchor claims anchor 0, as in the references.  Left out are ground
 * truths with a coordinate that is no finite number, and, for SSD300, those without height or width
 * (there they would make the loss infinite).
 */
#ifndef TD_BOXES_TARGETS_H
#define TD_BOXES_TARGETS_H

#include <stddef.h>

#include "boxes/anchors.h"

#define TD_GROUND_TRUTHS_MAX 100 /* of one image, SSD320 */

size_t td_targets_scratch_bytes(const td_anchors *a);

/** match [a->n]: the ground truth of each anchor, 0 .. n - 1, or -1. */
void td_targets_match(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int32_t *match);

/**
 * labels [a->n]: class of the anchor's ground truth, 0 for none; deltas [a->n, 4]: the box relative
 * to the anchor, zeros for none.  Boxes are normalised.  Returns how many anchors have a ground
 * truth.
 */
int td_targets_assign(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int64_t *labels, float *deltas);

/**
 * The rule of SSD320 on a matrix of overlaps [n, n_anchors], none negative or NaN: each column's
 * best row if that is 0.5 or more, and each row's best column for that row where `valid[row]`
 * (NULL: all are).  `scratch` as for that many anchors.
 */
void td_targets_argmax(const float *iou, const bool *valid, int n, int n_anchors, void *scratch,
                       int32_t *match);

#endif
