/*
 * train/workspace.h -- the folder of a training run and the files in it
 *
 *     --workspace W           W, which must not hold another run: --resume continues the run whose
 *                             checkpoint is in W, --overwrite replaces the one that is there
 *     --resume F alone        the folder of F
 *     --checkpoint-filename   alone: the current folder, as if --workspace named it
 *     --no-checkpoints        the current folder, which gets only a list of bad images
 *     none of these           runs/ARCH-N, created by this run; N is the first free number from 1
 *
 * A report file that the command line names without a workspace is relative to the current folder.
 */
#ifndef TD_TRAIN_WORKSPACE_H
#define TD_TRAIN_WORKSPACE_H

#include "train/train_job.h"

/**
 * Set j->files.folder and j->files.path; creates nothing.  The architecture must be resolved.
 * TD_EUSAGE: two outputs, or an output and an input, have the same path.
 */
td_status td_workspace_name(td_train_job *j) TD_CHECKED;

/**
 * Create the folder; on rank 0 of a run that writes files, lock it too.  A new runs/ARCH-N may get
 * another number than td_workspace_name chose, and with it other paths.
 *
 *   TD_EARG   it holds another run, and --overwrite is not given; nothing was changed
 *   TD_EIO    in use by another process; cannot be created or written
 */
td_status td_workspace_open(td_train_job *j) TD_CHECKED;

/**
 * After a failure: if no batch was trained and this process has created the folder, remove its
 * configuration and report, release the lock, and remove the folder.  With a list of bad images,
 * with files of others in it, and under a launcher that restarts the run, the folder stays.
 */
void td_workspace_discard(td_train_job *j);

/** Write config.yaml.  A file of that name that no run has written is kept, with a warning. */
td_status td_workspace_write_config(const td_train_job *j) TD_CHECKED;

#endif
