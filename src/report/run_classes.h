/*
 * report/run_classes.h -- the AP of each class: a chart and a table of a page
 */
#ifndef TD_REPORT_RUN_CLASSES_H
#define TD_REPORT_RUN_CLASSES_H

#include "base/text.h"
#include "report/run_log.h"

/**
 * Of every class its AP after the last validation and its best, of one run with at most eight a
 * curve each, too.  Nothing if no run has AP of classes.
 */
td_status td_run_classes_html(const td_run_log *runs, int n, td_text *out) TD_CHECKED;

#endif
