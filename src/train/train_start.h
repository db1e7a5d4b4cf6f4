/*
 * train/train_start.h -- the checkpoint or weights from which a training job starts
 */
#ifndef TD_TRAIN_TRAIN_START_H
#define TD_TRAIN_TRAIN_START_H

#include "train/train_job.h"

/**
 * Open and check the file of --resume or --pretrained-weights; sets j->start, the network and the
 * state of the run.  Without such a file, set the defaults.
 */
td_status td_train_start_open(td_train_job *j) TD_CHECKED;

/**
 * Fill the parameters of j->program from j->start.tensors, which is then closed, or with initial
 * values.
 */
td_status td_train_start_load(td_train_job *j) TD_CHECKED;

#endif
