/*
 * train/train_rate.h -- length of the training, epochs to validate, learning rate of a step
 */
#ifndef TD_TRAIN_TRAIN_RATE_H
#define TD_TRAIN_TRAIN_RATE_H

#include "train/train_job.h"

/** The planned length in epochs and steps, and what follows for the learning rate. */
td_status td_train_plan(td_train_job *j) TD_CHECKED;

/** Is the training's last planned step behind it? */
bool td_train_is_through(const td_train_job *j);

/** After epoch j->s.epoch, is it time to validate? */
bool td_train_is_due(const td_train_job *j);

/** Images in a batch of validation. */
int td_train_eval_batch(const td_train_opts *o);

/** j->inputs.lr, j->plan.lr_exact: the learning rate of the next step. */
void td_train_set_rate(td_train_job *j);

#endif
