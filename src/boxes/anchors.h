/*
 * boxes/anchors.h -- the boxes a detector starts from, one per prediction
 *
 *     td_anchors *a;
 *     TD_TRY(td_anchors_new(TD_DETECTOR_SSD320, 320, &a));      a->n == 12804
 *     td_anchors_free(a);
 *
 *   SSD320   five maps, strides 8 .. 128; at every place six boxes (three ratios, two scales),
 *            places row by row, a place's boxes together; boxes may leave the image
 *   SSD300   six maps, 38 .. 1 wide; per map one box size after the other, each over all places row
 *            by row; centre and size are clamped to [0, 1]
 *
 * A td_anchors is never changed once made: any number of threads may read it.
 * Source: Liu et al. 2016 (SSD), section 2.2; Lin et al. 2017 (focal loss), section 4.
 */
#ifndef TD_BOXES_ANCHORS_H
#define TD_BOXES_ANCHORS_H

#include "base/status.h"
#include "boxes/box.h"

typedef enum { TD_DETECTOR_NONE, TD_DETECTOR_SSD320, TD_DETECTOR_SSD300 } td_detector;

typedef struct {
    td_detector kind;
    int image_size; /* side of the square image, px */
    int n;          /* anchors */
    td_rect *corner;
    td_centre *centre; /* what deltas are relative to */

    /* the corners once more, one coordinate after the other, and the areas: for matching */
    float *ymin, *xmin, *ymax, *xmax, *area;
} td_anchors;

/** How many there are, without making them; 0 when this detector does not take this size. */
int td_anchors_count(td_detector kind, int image_size);

/**
 * SSD320 takes any multiple of 32 from 32 to 4096, SSD300 takes 300.  TD_EARG says what was wanted,
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_anchors_new(td_detector kind, int image_size, td_anchors **out);
void td_anchors_free(td_anchors *a);

#endif
