/*
 * report/run_page.h -- an HTML page about one or several runs: a single file without scripts that
 * loads nothing
 */
#ifndef TD_REPORT_RUN_PAGE_H
#define TD_REPORT_RUN_PAGE_H

#include "base/text.h"
#include "report/run_log.h"

enum { TD_RUN_PAGE_MAX = 16 }; /* runs: more lines could not be distinguished */

/** Append the page.  `images`: the folder of the data, for thumbnails of mistakes; NULL: none. */
td_status td_run_page(const td_run_log *runs, int n, const char *title, const char *images,
                      td_text *out) TD_CHECKED;

#endif
