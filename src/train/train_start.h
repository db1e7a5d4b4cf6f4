/*
 * train/train_start.h -- checkpoint or weights that a training job starts from
 */
#ifndef TD_TRAIN_TRAIN_START_H
#define TD_TRAIN_TRAIN_START_H

#include "train/train_job.h"

/**
 * Open and check the file of --resume or --pretrained-weights: j->start, the network and the state
 * of the run.  Without such a file there are only defaults.
 */
td_status td_train_start_open(td_train_job *j) TD_CHECKED;

/** Fill the parameters of j->program from j->start.tensors, closed then, or with initial values. */
td_status td_train_start_load(td_train_job *j) TD_CHECKED;

#endif
