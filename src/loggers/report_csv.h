/*
 * loggers/report_csv.h -- a run's metrics as a table of comma-separated values
 *
 * One table has a row for every epoch, the other one for every record inside an epoch.  The columns
 * are always the same: the position, then every metric, empty if it was not measured.
 */
#ifndef TD_LOGGERS_REPORT_CSV_H
#define TD_LOGGERS_REPORT_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct td_report_csv td_report_csv;

typedef struct {
    const char *path;
    int n_step; /* 1: epoch; 2: epoch, iteration */
    int topk;
    bool has_l2_loss, detects; /* as in td_run_logger_opts */
    /* for a resumed run, its position: rows from there on are dropped, since the run writes them
       again; NULL: the file is overwritten */
    const int64_t *continued_at; /* [2] epoch, finished iterations of it */
    bool has_grad_norm;          /* likewise, as the next */
    bool is_multi_label;
} td_report_csv_opts;

/** Open a table.  TD_EIO; TD_EFORMAT: the existing file has other columns. */
td_status td_report_csv_open(const td_report_csv_opts *o, td_report_csv **out) TD_CHECKED;

/** Set a value of the next row; ignores names without a column. */
void td_report_csv_set(td_report_csv *c, const char *metric, double value);

/** Write the row of a step; TD_EIO names the file. */
td_status td_report_csv_row(td_report_csv *c, const int64_t *step) TD_CHECKED;

/** NULL is fine. */
td_status td_report_csv_close(td_report_csv *c) TD_CHECKED;

#endif
