/*
 * transforms/crop.h -- chooses the crop of an image for training and evaluation
 *
 * Three sets of rules, taken from the programs that results are compared with.  All draw an area
 * and a ratio; they differ in the fallback if these do not fit, and in the box's position.
 *
 *                  torchvision                DALI                        TensorFlow 1
 *   area           8 .. 100 %                 8 .. 100 %                  10 .. 100 %
 *   ratio          3/4 .. 4/3, logarithmic    the same, rounded box too   0.75 .. 1.33, linear
 *   tries          10                         100                         100
 *   fallback       the centre                 whole or clamped ratio      whole image
 *   eval: sides    truncated, short exact     rounded, short exact        both truncated, float32
 *   eval: offset   round to even              round half up               truncated
 */
#ifndef TD_TRANSFORMS_CROP_H
#define TD_TRANSFORMS_CROP_H

#include "base/rng.h"
#include "image/image.h"
#include "tandem/loader.h"

/** A training crop of a width x height image by these rules. */
td_box td_random_crop(td_crop_rules rules, td_rng *r, int width, int height);

/** Parameters of TensorFlow's window sampler: fractions of the area, and width over height. */
typedef struct {
    double min_area, max_area, min_ratio, max_ratio;
    double min_covered; /* fraction of the image that the window must cover */
} td_distortion;

/** Draw a window in up to 100 tries; false: none found, *out is the whole image. */
bool td_crop_distorted(td_rng *r, int width, int height, const td_distortion *d, td_box *out);

/** The size with short side `to`; TensorFlow's may be one less, but not below `min`. */
void td_short_side(td_crop_rules rules, int width, int height, int to, int min, int *out_width,
                   int *out_height);

/** The central box of size x size; width and height are at least size. */
td_box td_centre_crop(td_crop_rules rules, int width, int height, int size);

#endif
