/*
 * transforms/color_changes.h -- torchvision's ColorJitter and RandomErasing
 *
 * Color jitter changes brightness, contrast, saturation and hue in random order, each by a random
 * amount.  Random erasing sets a random box of a normalized row to 0, the mean.
 */
#ifndef TD_TRANSFORMS_COLOR_CHANGES_H
#define TD_TRANSFORMS_COLOR_CHANGES_H

#include "base/rng.h"
#include "image/image.h"

enum { TD_JITTERS = 4 }; /* brightness, contrast, saturation, hue */

typedef struct {
    int order[TD_JITTERS];
    double amount[TD_JITTERS]; /* factors around 1; hue: of a full turn */
} td_color_changes;

/** Draw the order and the amounts: within 1 - strength (at least 0) and 1 + strength; hue +-. */
td_color_changes td_color_changes_draw(const double strength[TD_JITTERS], td_rng *r);

/** Apply those whose strength is not 0; pixels equal torchvision's on a PIL image.  TD_ENOMEM. */
TD_CHECKED td_status td_color_changes_apply(const td_color_changes *c,
                                            const double strength[TD_JITTERS], td_image *img,
                                            td_image *scratch);

/**
 * Draw a box to be erased from an image of size x size, with probability `p`: 2 to 33 % of its
 * area, height : width 0.3 to 3.3; all zero if none was drawn in ten attempts.
 */
td_box td_random_erase_draw(double p, int size, td_rng *r);

/** Set the box to 0 in row f32[channels, size, size]. */
void td_random_erase_apply(td_box box, int size, int channels, float *row);

#endif
