/*
 * train/class_weights.h -- factors of the classes in the training loss
 */
#ifndef TD_TRAIN_CLASS_WEIGHTS_H
#define TD_TRAIN_CLASS_WEIGHTS_H

#include "base/status.h"
#include "tandem/dataset.h"

/**
 * Weights [classes] from the text of --class-weights, freed by td_free.
 *
 *   "balanced"   n / (K n_k), n_k the images of class k and K the classes that have any; classes
 *                without images have 1.  The mean over the images is 1.
 *   "1,0.5,2"    the numbers, one a class
 *
 * TD_EUSAGE: not so many numbers, or one that is no number from 0 to 1e6; TD_ENOMEM.
 */
TD_CHECKED td_status td_class_weights_new(const char *text, const td_dataset *ds, int classes,
                                          float **out);

/**
 * Factors [classes] of positive targets from the text of --pos-weight, freed by td_free.
 *
 *   "balanced"   the images of `ds` without the class divided by those with it; 1 for classes that
 *                no image has, or all
 *   "3"          the same for all classes
 *   "1,0.5,2"    the numbers, one a class
 *
 * The errors of td_class_weights_new.
 */
TD_CHECKED td_status td_positive_weights_new(const char *text, const td_dataset *ds, int classes,
                                             float **out);

#endif
