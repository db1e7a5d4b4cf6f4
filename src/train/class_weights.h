/*
 * train/class_weights.h -- the factor of each class in the training loss
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

#endif
