/*
 * train/train_open.h -- open and release a training job
 */
#ifndef TD_TRAIN_TRAIN_OPEN_H
#define TD_TRAIN_TRAIN_OPEN_H

#include "train/train_job.h"

/**
 * Read, check and open everything a run needs.  The caller has set j->o and j->out; the rest is
 * zero.
 */
td_status td_train_open(td_train_job *j) TD_CHECKED;

/** Release everything td_train_open opened, also after it failed.  Close the report before. */
void td_train_release(td_train_job *j);

#endif
