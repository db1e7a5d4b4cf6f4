/*
 * train/report.h -- the JSON-lines report of a run
 *
 *     DLLL {"timestamp": "1577836800.123456", "datetime": "...", "elapsedtime": "1.25",
 *           "type": "LOG", "step": [0, 10], "data": {"train.loss": 2.3, ...}}
 *
 * Names, units and record shapes are those of the reference programs' logger.  The file is
 * begun anew unless a run goes on; every record is flushed.  A NULL report swallows everything.
 */
#ifndef TD_TRAIN_REPORT_H
#define TD_TRAIN_REPORT_H

#include "base/text.h"

typedef struct td_report td_report;

/**
 * Open; the metadata of all metrics is written at once.  goes_on: behind the whole records that
 * `path` has, half of one is cut off.  `path` NULL: *out is NULL, and that is fine.
 */
td_status td_report_open(const char *path, bool goes_on, td_report **out) TD_CHECKED;

/** The settings of the run: one JSON object of fields. */
td_status td_report_parameters(td_report *r, const char *json) TD_CHECKED;

/** Begin a record at a step: n numbers, [epoch, iteration, validation iteration]. */
void td_report_begin(td_report *r, int n, const int64_t *step);
void td_report_add(td_report *r, const char *metric, double value);

/** Write it.  TD_EIO names the file. */
td_status td_report_end(td_report *r) TD_CHECKED;

/** Also reports a failure of earlier writes that only closing shows. */
td_status td_report_close(td_report *r) TD_CHECKED;

#endif
