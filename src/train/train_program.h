/*
 * train/train_program.h -- the compiled step of a training job
 */
#ifndef TD_TRAIN_TRAIN_PROGRAM_H
#define TD_TRAIN_TRAIN_PROGRAM_H

#include "train/train_job.h"

/** Compile the program for the image size of epoch j->s.epoch and bind its scalar inputs. */
td_status td_train_program_open(td_train_job *j) TD_CHECKED;

/**
 * If epoch j->s.epoch has images of another size, compile another program and copy every parameter
 * of the old one into it.  After a failure j->program may be NULL.
 */
td_status td_train_program_resize(td_train_job *j) TD_CHECKED;

/** The bytes that the process needs at least: the program's, and the batches of the loaders. */
int64_t td_train_planned_bytes(const td_train_job *j);

#endif
