/*
 * train/train_save.h -- write weights and checkpoints of a training job
 *
 * All return TD_ENUMERIC if a parameter is not finite; the message names the step.
 */
#ifndef TD_TRAIN_TRAIN_SAVE_H
#define TD_TRAIN_TRAIN_SAVE_H

#include "train/train_job.h"

/** Write the checkpoint and bad.list; ranks that do not write return at once. */
td_status td_train_save(td_train_job *j) TD_CHECKED;

/** Write the copy of the checkpoint for --gather-checkpoints after `epoch`. */
td_status td_train_save_epoch(td_train_job *j, int64_t epoch) TD_CHECKED;

/** Write the weights as the best so far; ranks that do not write return at once. */
td_status td_train_save_best(td_train_job *j) TD_CHECKED;

/** Write --final-weights; a run that saves nothing only checks that its parameters are finite. */
td_status td_train_save_final(td_train_job *j) TD_CHECKED;

#endif
