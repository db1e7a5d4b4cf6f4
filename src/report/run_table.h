/*
 * report/run_table.h -- the results of runs as a table
 *
 * The rows are those of the reference's tables of results: network, precision, batch; accuracy and
 * loss; images/s and batch latency of training and of inference.
 */
#ifndef TD_REPORT_RUN_TABLE_H
#define TD_REPORT_RUN_TABLE_H

#include "base/text.h"
#include "report/run_log.h"

/** Release a text that was appended to `out`; its failure becomes that of `out`. */
static inline void td_text_release_into(td_text *piece, td_text *out)
{
    if (out->st == TD_OK)
        out->st = piece->st;
    td_text_release(piece);
}

/** Number of rows of the table. */
int td_run_table_rows(void);
const char *td_run_table_name(int row); /* "train_images_per_s" */

/** The title of a row, "images/s, training"; K of top-K is that of the first run that has one. */
void td_run_table_title(const td_run_log *runs, int n, int row, td_text *out);

/** A cell as text; "" if the run has no such value. */
void td_run_table_cell(const td_run_log *run, int row, td_text *out);

/**
 * Is run `i` the best in this row, possibly with others, but not with all?  False for all runs if
 * they are not comparable, as times of batches of different sizes.
 */
bool td_run_table_is_best(const td_run_log *runs, int n, int row, int i);

typedef enum { TD_RUN_TEXT, TD_RUN_MARKDOWN, TD_RUN_CSV, TD_RUN_JSON } td_run_table_form;

/**
 * The whole table.  CSV has a line for every run, text and Markdown have a column, JSON has an
 * object in a list, `[{"run": "runs/a", "arch": "resnet18", "top1": 71.5, ...}, ...]`.
 */
td_status td_run_table(const td_run_log *runs, int n, td_run_table_form form,
                       td_text *out) TD_CHECKED;

#endif
