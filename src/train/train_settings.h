/*
 * train/train_settings.h -- the settings of a training job: checked and logged
 */
#ifndef TD_TRAIN_TRAIN_SETTINGS_H
#define TD_TRAIN_TRAIN_SETTINGS_H

#include "train/train_job.h"

/** td_train_check_training; a preset with more epochs of warm-up than of training: a warning. */
td_status td_train_settings_check(const td_train_opts *o) TD_CHECKED;

/** The lines at the start of a run. */
void td_train_settings_log(const td_train_job *j);

#endif
