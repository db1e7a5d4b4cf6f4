/*
 * train/train_settings.h -- check and log the settings of a training job
 */
#ifndef TD_TRAIN_TRAIN_SETTINGS_H
#define TD_TRAIN_TRAIN_SETTINGS_H

#include "train/train_job.h"

/**
 * Check the options with td_train_check_training; warn if the warm-up is longer than the training.
 */
td_status td_train_settings_check(const td_train_opts *o) TD_CHECKED;

/** Log the settings at the start of a run. */
void td_train_settings_log(const td_train_job *j);

#endif
