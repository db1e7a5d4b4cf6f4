/*
 * boxes/decode.h -- boxes as four numbers relative to an anchor, and back
 *
 *                 code                             of anchor (ya, xa, ha, wa) and box (y, x, h, w)
 *   SSD320   ty, tx, th, tw   10 (y - ya) / ha, ..., 5 ln(h / ha), ...     1e-8 added to all sizes
 *   SSD300   tx, ty, tw, th   (x - xa) / wa / 0.1, ..., ln(w / wa) / 0.2, ...
 *
 * The order of the four is that of each reference, so that its weights fit.
 * Decoded boxes are not clipped.  A NaN or huge code gives NaN or infinite corners, nothing worse.
 */
#ifndef TD_BOXES_DECODE_H
#define TD_BOXES_DECODE_H

#include "boxes/anchors.h"

/** Anchor `i`'s code of `box`. */
void td_box_encode(const td_anchors *a, int i, td_rect box, float code[4]);

/** The box that `code` means at anchor `i`. */
td_rect td_box_decode(const td_anchors *a, int i, const float code[4]);

/** All of them: codes [n, 4] -> boxes [n]. */
void td_boxes_decode(const td_anchors *a, const float *codes, td_rect *boxes);

#endif
