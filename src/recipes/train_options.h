/*
 * recipes/train_options.h -- what the options of a training say together
 */
#ifndef TD_RECIPES_TRAIN_OPTIONS_H
#define TD_RECIPES_TRAIN_OPTIONS_H

#include "tandem/train.h"

/** Images of an optimizer step on all ranks, as the options and the environment say. */
double td_train_step_images(const td_train_opts *opts);

#endif
