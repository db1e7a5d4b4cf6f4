/*
 * data/hold_out.h -- divides a training set into training and validation images
 */
#ifndef TD_DATA_HOLD_OUT_H
#define TD_DATA_HOLD_OUT_H

#include "data/dataset.h"

/**
 * Keep the validation images, a fraction of each class rounded to whole images, or the others.  The
 * choice depends on the seed and on the images' names below the data set's root only, so both parts
 * together are all images.  A class keeps at least one training image.  TD_EARG: a fraction outside
 * 0 .. 1, ready rows or boxes; TD_EFORMAT: no image is left for validation.
 */
TD_CHECKED td_status td_dataset_hold_out(td_dataset *ds, double fraction, uint64_t seed,
                                         bool keeps_validation);

#endif
