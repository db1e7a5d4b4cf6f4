/*
 * report/run_mistakes.h -- the mistakes of classifiers: a matrix and a grid of images of a page
 */
#ifndef TD_REPORT_RUN_MISTAKES_H
#define TD_REPORT_RUN_MISTAKES_H

#include "base/text.h"
#include "report/run_log.h"

/**
 * Append, for every run that recorded them, the confusion matrix (with many classes a table of
 * pairs) and the mistakes with the highest probabilities, with thumbnails of images that exist in
 * the folder `images` (NULL: text only).
 */
td_status td_run_mistakes_html(const td_run_log *runs, int n, const char *images,
                               td_text *out) TD_CHECKED;

#endif
