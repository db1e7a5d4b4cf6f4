/*
 * train/run_table.h -- what runs came to, side by side
 *
 * The rows are those of the reference's tables of results: network, precision, batch; accuracy and
 * loss; images/s and batch latency of training and of inference.
 */
#ifndef TD_TRAIN_RUN_TABLE_H
#define TD_TRAIN_RUN_TABLE_H

#include "base/text.h"
#include "train/run_log.h"

/** Rows of the table. */
int td_run_table_rows(void);
const char *td_run_table_title(int row); /* "images/s, training" */
const char *td_run_table_name(int row);  /* "train_images_per_s" */

/** A cell as text, "" where the run has no such thing. */
void td_run_table_cell(const td_run_log *run, int row, td_text *out);

/** The run that is best in this row, -1: none is, or it is no contest. */
int td_run_table_best(const td_run_log *runs, int n, int row);

typedef enum { TD_RUN_TEXT, TD_RUN_MARKDOWN, TD_RUN_CSV } td_run_table_form;

/** All of it; CSV has a line for every run, the others a column. */
td_status td_run_table(const td_run_log *runs, int n, td_run_table_form form,
                       td_text *out) TD_CHECKED;

#endif
