/*
 * boxes/anchors.h -- anchor boxes: the reference box of each prediction
 *
 *     td_anchors *a;
 *     TD_TRY(td_anchors_new(TD_DETECTOR_SSD320, 320, &a));      a->n == 12804
 *     td_anchors_free(a);
 *
 *   SSD320   five maps, strides 8 .. 128; six boxes for each cell (three ratios, two scales),
 *            cells row by row, the boxes of a cell together; boxes may leave the image
 *   SSD300   six maps, 38 .. 1 wide; per map one box size after the other, each over all cells row
 *            by row; centre and size are clamped to [0, 1]
 *   SSDLite  six maps, 1/16 of the image wide and each half of the one before, rounded up; six
 *            boxes for each cell (two squares; ratios 2 and 3 and their inverses), cells row by
 *            row, the boxes of a cell together; sizes are clamped to the image
 *
 *   RetinaNet five maps, 1/8 of the image wide and each half of the one before, rounded up; nine
 *            boxes for each cell (three ratios, three scales), with whole pixels as corners, cells
 *            row by row, the boxes of a cell together; boxes may leave the image
 *
 * SSDLite's and RetinaNet's are in pixels, since torchvision compares overlaps in pixels, where
 * ties are common.
 *
 * A td_anchors is immutable: any number of threads may read it.
 * Source: Liu et al. 2016 (SSD), section 2.2; Lin et al. 2017 (focal loss), section 4; Howard et
 * al. 2019 (MobileNetV3), section 6.3.
 */
#ifndef TD_BOXES_ANCHORS_H
#define TD_BOXES_ANCHORS_H

#include "base/status.h"
#include "boxes/box.h"
#include "tandem/types.h"

#define TD_LEVELS_MAX 5

typedef struct {
    td_detector kind;
    int image_size;               /* side of the square image, px */
    int n;                        /* anchors */
    int n_levels;                 /* RetinaNet: maps; 0: not needed */
    int level_end[TD_LEVELS_MAX]; /* the first anchor of the next map */
    td_rect *corner;              /* in fractions of the image, or in pixels: td_anchors_unit */
    td_centre *centre;            /* deltas are relative to these */

    /* the corners as separate arrays, and the areas: for matching */
    float *ymin, *xmin, *ymax, *xmax, *area;
} td_anchors;

/** The number of anchors, without allocating them; 0 if the detector does not support this size. */
int td_anchors_count(td_detector kind, int image_size);

/** The image's side in the anchors' coordinates: 1, or image_size if they are in pixels. */
float td_anchors_unit(const td_anchors *a);

/**
 * SSD320 supports multiples of 32 from 32 to 4096, SSDLite and RetinaNet from 64 to 4096, SSD300
 * only 300; TD_EARG for other sizes.  TD_ENOMEM.
 */
TD_CHECKED td_status td_anchors_new(td_detector kind, int image_size, td_anchors **out);
void td_anchors_free(td_anchors *a);

#endif
