/*
 * recipes/train_options.h -- values and rules that depend on several options of a training
 */
#ifndef TD_RECIPES_TRAIN_OPTIONS_H
#define TD_RECIPES_TRAIN_OPTIONS_H

#include "tandem/train.h"

/**
 * td_train_check, and the rules for a job that trains: it needs data, at most one source of
 * weights, a warm-up no longer than the training (except with a preset), and a validation if
 * `require` is set.  TD_EUSAGE.
 */
td_status td_train_check_training(const td_train_opts *opts) TD_CHECKED;

/** Does the momentum follow the cycle of the learning rate? */
bool td_train_cycles_momentum(const td_train_opts *opts);

/** Images of an optimizer step on all ranks, by the options and the environment. */
double td_train_step_images(const td_train_opts *opts);

#endif
