/*
 * boxes/decode.h -- encodes boxes as deltas relative to an anchor, and decodes them
 *
 *                 deltas                           of anchor (ya, xa, ha, wa) and box (y, x, h, w)
 *   SSD320   ty, tx, th, tw   10 (y - ya) / ha, ..., 5 ln(h / ha), ...     1e-8 added to all sizes
 *   SSD300   tx, ty, tw, th   (x - xa) / wa / 0.1, ..., ln(w / wa) / 0.2, ...
 *   SSDLite  tx, ty, tw, th   10 (x - xa) / wa, ..., 5 ln(w / wa), ...; decoded boxes are at most
 *                             62.5 times as wide and high as the anchor
 *   RetinaNet                 the same with factors of 1
 *
 * The order of the four deltas follows each reference, so that its weights fit.
 * Decoded boxes are not clipped.  NaN or huge deltas only give NaN or infinite corners.
 */
#ifndef TD_BOXES_DECODE_H
#define TD_BOXES_DECODE_H

#include "boxes/anchors.h"

#define TD_TORCH_LARGEST 4.135166556742356F /* torchvision's: ln(1000 / 16) */

/** Compute the deltas of `box`, in fractions of the image, relative to anchor `i`. */
void td_box_encode(const td_anchors *a, int i, td_rect box, float deltas[4]);

/** The box that `deltas` encode relative to anchor `i`, in the anchors' coordinates
    (td_anchors_unit). */
td_rect td_box_decode(const td_anchors *a, int i, const float deltas[4]);

/** Decode all: deltas [n, 4] -> boxes [n], in fractions of the image. */
void td_boxes_decode(const td_anchors *a, const float *deltas, td_rect *boxes);

#endif
