/*
 * train/train_report.h -- a training job's log lines and report records
 */
#ifndef TD_TRAIN_TRAIN_REPORT_H
#define TD_TRAIN_TRAIN_REPORT_H

#include "train/train_job.h"

/** Open the report and write the settings; everything else of the job is open. */
td_status td_train_report_open(td_train_job *j) TD_CHECKED;

enum { TD_TRAIN_WHAT = 64 };

/**
 * The progress of a validation; `prefix` as in td_task.evaluate.  `what` receives the label and
 * must outlive the progress.
 */
td_progress td_train_progress_validation(const td_train_job *j, const char *prefix,
                                         char what[TD_TRAIN_WHAT]);

/** Start the ticker, on rank 0 and not with --log-format dll. */
td_status td_train_ticker_start(td_train_job *j) TD_CHECKED;

/** Set the work that the ticker logs after a long silence: the iteration that follows. */
void td_train_note_work(const td_train_job *j, td_work_kind kind);

/** The same for a validation, which begins. */
void td_train_note_validation(const td_train_job *j);

/** Begin the progress line of epoch j->s.epoch; end it with td_progress_end. */
void td_train_progress_begin(td_train_job *j);

/** Report a step; data_s, compute_s: seconds waited for data and seconds of computation. */
td_status td_train_report_step(td_train_job *j, double loss, double data_s,
                               double compute_s) TD_CHECKED;

/**
 * Report an epoch; v: its validation, or NULL; ema: the validation of the averaged weights, or NULL
 * (metrics val_ema.top1 and so on); n_skipped: its skipped steps.
 */
td_status td_train_report_epoch(td_train_job *j, const td_eval_result *v, const td_eval_result *ema,
                                int64_t n_skipped) TD_CHECKED;

/** Report the end of the run. */
td_status td_train_report_run(td_train_job *j) TD_CHECKED;

/** Log that a checkpoint is being saved to `path`, with --log-format dll only. */
void td_train_report_saving(td_train_job *j, const char *path);

#endif
