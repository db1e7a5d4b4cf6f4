/*
 * loggers/tensorboard.h -- event files that TensorBoard reads
 *
 *     td_tensorboard *t;
 *     TD_TRY(td_tensorboard_open("curves", &t));
 *     st = td_tensorboard_scalar(t, "epoch/val.top1", 3, 71.5);
 *     if (st == TD_OK)
 *         st = td_tensorboard_flush(t);
 *     closed = td_tensorboard_close(t);
 *
 * td_tensorboard_open always creates a new file in the folder; TensorBoard shows all files of a
 * folder as one run.  A killed run leaves at most one incomplete record at the end of a file, which
 * readers ignore.
 */
#ifndef TD_LOGGERS_TENSORBOARD_H
#define TD_LOGGERS_TENSORBOARD_H

#include <stdint.h>

#include "base/status.h"

typedef struct td_tensorboard td_tensorboard;

/** Open a new file; creates the folder if it does not exist.  TD_EIO. */
td_status td_tensorboard_open(const char *folder, td_tensorboard **out) TD_CHECKED;

/** Note that the run resumes at `step`: TensorBoard hides later points of earlier files. */
td_status td_tensorboard_restart(td_tensorboard *t, int64_t step) TD_CHECKED;

/** Add a point to a curve.  Values are stored as float32. */
td_status td_tensorboard_scalar(td_tensorboard *t, const char *tag, int64_t step,
                                double value) TD_CHECKED;

/** Add a Markdown text, shown on another page. */
td_status td_tensorboard_text(td_tensorboard *t, const char *tag, const char *text) TD_CHECKED;

/** TD_EIO names the file. */
td_status td_tensorboard_flush(td_tensorboard *t) TD_CHECKED;

/** Close; NULL is fine.  Also reports failures of earlier writes that are detected only now. */
td_status td_tensorboard_close(td_tensorboard *t) TD_CHECKED;

#endif
