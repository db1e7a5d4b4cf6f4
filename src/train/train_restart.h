/*
 * train/train_restart.h -- a run that `tandem launch --restarts` starts again
 *
 * It keeps the folder, the images per optimizer step and the length of its first start, also on
 * fewer ranks.  The checkpoint to resume was set by td_train_resolve, with the other options.
 */
#ifndef TD_TRAIN_TRAIN_RESTART_H
#define TD_TRAIN_TRAIN_RESTART_H

#include "train/train_job.h"

/**
 * Read the environment into j->restart, and set the images per step.  The ranks must have been
 * joined.  TD_EUSAGE: these images cannot be divided among the ranks.
 */
td_status td_train_restart_open(td_train_job *j) TD_CHECKED;

/** Shorten --run-iters and --run-epochs by what earlier starts have done; the data are open. */
void td_train_restart_shorten(td_train_job *j);

/**
 * Record the position for the launcher, on rank 0; `is_saved`: the checkpoint was just written.
 * Logs a failure: the run goes on, and only its restart is lost.
 */
void td_train_restart_record(const td_train_job *j, bool is_saved);

/** After a signal, on rank 0, when all is saved: tell the launcher, whose mpirun may not. */
void td_train_restart_note_stop(const td_train_job *j);

#endif
