/*
 * train/train_save.h -- weights and checkpoints of a training job to files
 *
 * All return TD_ENUMERIC, with the step, for parameters that are not finite.
 */
#ifndef TD_TRAIN_TRAIN_SAVE_H
#define TD_TRAIN_TRAIN_SAVE_H

#include "train/train_job.h"

/** The checkpoint and bad.list, on the rank that writes; others do nothing. */
td_status td_train_save(td_train_job *j) TD_CHECKED;

/** After `epoch`: the copies that --gather-checkpoints asks for. */
td_status td_train_save_epoch(td_train_job *j, int64_t epoch) TD_CHECKED;

/** The weights of the best epoch so far, on the rank that writes. */
td_status td_train_save_best(td_train_job *j) TD_CHECKED;

/** --final-weights; a run that saves nothing only checks that its parameters are finite. */
td_status td_train_save_final(td_train_job *j) TD_CHECKED;

#endif
