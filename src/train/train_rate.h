/*
 * train/train_rate.h -- length of the training, epochs to validate, learning rate of a step,
 *                       updates of averages
 */
#ifndef TD_TRAIN_TRAIN_RATE_H
#define TD_TRAIN_TRAIN_RATE_H

#include "optim/weight_average.h"
#include "train/train_job.h"

/** Plan the length in epochs and steps and the learning rate that depends on it. */
td_status td_train_plan(td_train_job *j) TD_CHECKED;

/** Has the training finished its last planned step? */
bool td_train_is_finished(const td_train_job *j);

/** Is a validation due after epoch j->s.epoch? */
bool td_train_is_validation_due(const td_train_job *j);

/** An estimate of the batches that this run still trains, on this rank; at least 0. */
int64_t td_train_batches_left(const td_train_job *j);

/** Likewise of the batches that it still validates. */
int64_t td_train_eval_batches_left(const td_train_job *j);

/** Batch size of validation. */
int td_train_eval_batch(const td_train_opts *o);

/** Set j->inputs.lr and j->plan.lr_exact to the learning rate and the momentum of the next step. */
void td_train_set_rate(td_train_job *j);

/** The momentum of the next step; of Adam, AdamW and LAMB beta1. */
double td_train_momentum(const td_train_job *j);

/** How the averages of weights are updated. */
td_weight_average td_train_weight_average(const td_train_job *j);

#endif
