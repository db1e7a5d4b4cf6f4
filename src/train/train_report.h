/*
 * train/train_report.h -- a training job's log lines and report records
 */
#ifndef TD_TRAIN_TRAIN_REPORT_H
#define TD_TRAIN_TRAIN_REPORT_H

#include "train/train_job.h"

/** Open the report, with the settings: everything else of the job is there. */
td_status td_train_report_open(td_train_job *j) TD_CHECKED;

enum { TD_TRAIN_WHAT = 64 };

/**
 * The progress of a validation, of weights as td_task.evaluate has them; `what` holds its label and
 * must outlive it.
 */
td_progress td_train_progress_validation(const td_train_job *j, const char *prefix,
                                         char what[TD_TRAIN_WHAT]);

/** Epoch j->s.epoch of training begins, on the terminal; td_progress_end when it has ended. */
void td_train_progress_begin(td_train_job *j);

/** After a step; data_s, compute_s: seconds it waited for data and seconds it computed. */
td_status td_train_report_step(td_train_job *j, double loss, double data_s,
                               double compute_s) TD_CHECKED;

/**
 * After an epoch; v: its validation, or NULL; ema: that of the averaged weights, or NULL (its
 * metrics are val_ema.top1 and so on); n_skipped: its skipped steps.
 */
td_status td_train_report_epoch(td_train_job *j, const td_eval_result *v, const td_eval_result *ema,
                                int64_t n_skipped) TD_CHECKED;

/** After the run. */
td_status td_train_report_run(td_train_job *j) TD_CHECKED;

/** A checkpoint goes to `path`: a line for --log-format dll. */
void td_train_report_saving(td_train_job *j, const char *path);

#endif
