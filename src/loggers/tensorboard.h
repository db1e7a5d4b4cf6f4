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
 * Every opening begins a new file in the folder; TensorBoard shows all of a folder's files as one
 * run.  A file is a sequence of records that are flushed whole, so a run that was killed leaves at
 * most half a record at the end, which readers leave out.
 */
#ifndef TD_LOGGERS_TENSORBOARD_H
#define TD_LOGGERS_TENSORBOARD_H

#include <stdint.h>

#include "base/status.h"

typedef struct td_tensorboard td_tensorboard;

/** Makes the folder if it does not exist.  TD_EIO. */
td_status td_tensorboard_open(const char *folder, td_tensorboard **out) TD_CHECKED;

/** The run resumes at `step`: later points of earlier files are not shown. */
td_status td_tensorboard_restart(td_tensorboard *t, int64_t step) TD_CHECKED;

/** A point of a curve.  Values are stored as float32. */
td_status td_tensorboard_scalar(td_tensorboard *t, const char *tag, int64_t step,
                                double value) TD_CHECKED;

/** A text, Markdown, shown on a page of its own. */
td_status td_tensorboard_text(td_tensorboard *t, const char *tag, const char *text) TD_CHECKED;

/** TD_EIO names the file. */
td_status td_tensorboard_flush(td_tensorboard *t) TD_CHECKED;

/** NULL is fine.  Also reports a failure of earlier writes that only closing shows. */
td_status td_tensorboard_close(td_tensorboard *t) TD_CHECKED;

#endif
