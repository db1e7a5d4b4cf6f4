/*
 * report/run_mistakes.h -- the mistakes of classifiers: a matrix and a grid of images of a page
 */
#ifndef TD_REPORT_RUN_MISTAKES_H
#define TD_REPORT_RUN_MISTAKES_H

#include "base/text.h"
#include "report/run_log.h"

/**
 * Of every run that recorded it the confusion matrix, or of many classes a table of pairs, and the
 * surest mistakes, with thumbnails of those images that are found in the folder `images` (NULL:
 * text alone).  Nothing where no run recorded any.
 */
td_status td_run_mistakes_html(const td_run_log *runs, int n, const char *images,
                               td_text *out) TD_CHECKED;

#endif
