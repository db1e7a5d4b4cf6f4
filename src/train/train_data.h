/*
 * train/train_data.h -- what the data sets and loaders of both tasks have in common
 */
#ifndef TD_TRAIN_TRAIN_DATA_H
#define TD_TRAIN_TRAIN_DATA_H

#include "train/train_job.h"

/** Images of a synthetic data set: as many as the run reads. */
int64_t td_train_synthetic_images(const td_train_job *j);

/** j->data.class_names: those of j->data.train_set.  TD_ENOMEM. */
td_status td_train_list_classes(td_train_job *j) TD_CHECKED;

/** Options of the training data's loader that td_loader_opts_of leaves out: order, seed, place. */
void td_train_loader_opts(const td_train_job *j, td_loader_opts *lo);

#endif
