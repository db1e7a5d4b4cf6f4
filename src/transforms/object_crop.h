/*
 * transforms/object_crop.h -- crops and flips images together with their boxes
 *
 *                    SSD320                               SSD300
 *   flip             probability 1/2, first               probability 1/2, after the crop
 *   window           75 .. 100 % of the area, ratio       one of: none, or IoU of at least 0, .1,
 *                    .75 .. 3; 100 tries, then the        .3, .5, .7, .9 with every box; sides
 *                    whole image                        30 .. 100 %, ratio .5 .. 2 of these; one
 *                                                         try each
 *   boxes kept       those that overlap the window        those with their centre inside
 *   kept boxes       relative to the window, clipped      the same
 *
 * SSDLite's window is one of the same seven, in whole pixels, with 40 tries each, and the overlap
 * is required of one box with its centre inside; otherwise as SSD300.
 *
 * Boxes are normalised float32, and so is the arithmetic on them, in the order of the references.
 * Sources: TensorFlow's sample_distorted_bounding_box_op.cc and the object detection API's
 * preprocessor.py; DALI's random bounding box crop; torchvision's RandomIoUCrop; Liu et al. 2016,
 * section 2.2.
 */
#ifndef TD_TRANSFORMS_OBJECT_CROP_H
#define TD_TRANSFORMS_OBJECT_CROP_H

#include "base/rng.h"
#include "boxes/box.h"
#include "image/image.h"

/** Mirror left to right. */
void td_ground_truths_flip(td_ground_truth *ground_truths, int n);

/** A box in pixels of a width x height image, in fractions of the image. */
td_rect td_box_fraction(td_box b, int width, int height);

/** Draw SSD320's window, in pixels of a width x height image. */
td_box td_distorted_crop(td_rng *r, int width, int height, const td_ground_truth *ground_truths,
                         int n);

/** Keep boxes that overlap the window, relative to it; returns the number kept. */
int td_ground_truths_crop(td_ground_truth *ground_truths, int n, td_box window, int width,
                          int height);

/** Draw SSD300's window, in fractions of the image. */
td_rect td_overlap_crop(td_rng *r, const td_ground_truth *ground_truths, int n);

/** Draw SSDLite's window, in pixels of a width x height image. */
td_box td_torch_crop(td_rng *r, int width, int height, const td_ground_truth *ground_truths, int n);

/** Keep boxes centred in the window, relative to it; returns the number kept. */
int td_ground_truths_crop_centres(td_ground_truth *ground_truths, int n, td_rect window);

#endif
