/*
 * train/run_page.h -- a page about one or several runs: HTML in one file, nothing loaded, no script
 */
#ifndef TD_TRAIN_RUN_PAGE_H
#define TD_TRAIN_RUN_PAGE_H

#include "base/text.h"
#include "train/run_log.h"

enum { TD_RUN_PAGE_MAX = 16 }; /* runs: more lines cannot be told apart */

/** Append the page. */
td_status td_run_page(const td_run_log *runs, int n, const char *title, td_text *out) TD_CHECKED;

#endif
