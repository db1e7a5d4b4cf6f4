/*
 * report/run_classes.h -- the AP of each class: a chart and a table of a page
 */
#ifndef TD_REPORT_RUN_CLASSES_H
#define TD_REPORT_RUN_CLASSES_H

#include "base/text.h"
#include "report/run_log.h"

/**
 * Append a table with each class's AP, the last and the best; with one run and at most eight
 * classes, also curves.  Nothing if no run has classes with AP.
 */
td_status td_run_classes_html(const td_run_log *runs, int n, td_text *out) TD_CHECKED;

#endif
