/*
 * recipes/train_options.h -- values that follow from several options of a training
 */
#ifndef TD_RECIPES_TRAIN_OPTIONS_H
#define TD_RECIPES_TRAIN_OPTIONS_H

#include "tandem/train.h"

/** Images of an optimizer step on all ranks, by the options and the environment. */
double td_train_step_images(const td_train_opts *opts);

#endif
