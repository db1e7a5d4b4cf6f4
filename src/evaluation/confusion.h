/*
 * evaluation/confusion.h -- what `evaluate --per-class` counts: a confusion matrix, or the scores
 * of each class of a multi-label network
 */
#ifndef TD_EVALUATION_CONFUSION_H
#define TD_EVALUATION_CONFUSION_H

#include "checkpoint/class_names.h"
#include "tandem/dataset.h"
#include "tandem/evaluate.h"

/**
 * Give the result a zeroed table of n classes with the class names of `ds`, or, if these are
 * numbers, those in `names`.  td_evaluate_release frees it.
 */
td_status td_confusion_new(td_evaluate_result *r, int n, const td_dataset *ds,
                           const td_class_names *names) TD_CHECKED;

/** The same with scores of each class in place of the table. */
td_status td_label_scores_new(td_evaluate_result *r, int n, const td_dataset *ds,
                              const td_class_names *names) TD_CHECKED;

enum { TD_CLASS_NUMBER = 24 };

/** The name of output i, or "class i" written to `room`; `names` may be NULL. */
const char *td_confusion_class_name(const td_dataset *ds, const td_class_names *names, int i,
                                    char room[TD_CLASS_NUMBER]);

/**
 * Write the table as CSV: a header of class names, then for every class its name and the number of
 * its images predicted as each class.  The file is written completely or not at all.
 */
td_status td_confusion_write(const td_evaluate_result *r, const char *path) TD_CHECKED;

#endif
