/*
 * train/train_open.h -- open and release a training job
 */
#ifndef TD_TRAIN_TRAIN_OPEN_H
#define TD_TRAIN_TRAIN_OPEN_H

#include "train/train_job.h"

/** Read, check and open everything a run needs; j->o and j->out are set, the rest is zero. */
td_status td_train_open(td_train_job *j) TD_CHECKED;

/** Let go of what td_train_open took, however far it came; the report has been closed. */
void td_train_release(td_train_job *j);

#endif
