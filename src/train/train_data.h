/*
 * train/train_data.h -- helpers for the data sets and loaders of both tasks
 */
#ifndef TD_TRAIN_TRAIN_DATA_H
#define TD_TRAIN_TRAIN_DATA_H

#include "train/train_job.h"

/** Number of images of a synthetic data set: as many as the run reads. */
int64_t td_train_synthetic_images(const td_train_job *j);

/** Fill j->data.class_names with the classes of j->data.train_set.  TD_ENOMEM. */
td_status td_train_list_classes(td_train_job *j) TD_CHECKED;

/**
 * Add to the message that validation data are absent (TD_ENOTFOUND) how to train without;
 * --val-split requires classes.
 */
td_status td_train_validation_absent(td_status st, bool has_classes) TD_CHECKED;

/** Log when the images are smaller than the default image size of the network, so are enlarged. */
void td_train_note_enlarged(const td_train_job *j);

/**
 * Set the training loader's options that td_loader_opts_of does not set: order, seed, position, and
 * whether it gives pixels.  Errors of td_input_as_bytes.
 */
td_status td_train_loader_opts(const td_train_job *j, td_loader_opts *lo) TD_CHECKED;

/** Bind the batch's images, or its pixels, to the program's input. */
td_status td_train_bind_images(td_train_job *j, const td_batch *b) TD_CHECKED;

#endif
