/*
 * report/run_confusion.h -- a classifier's confusion matrix, read from its report
 * (evaluation/outcomes.h)
 */
#ifndef TD_REPORT_RUN_CONFUSION_H
#define TD_REPORT_RUN_CONFUSION_H

#include "base/arena.h"
#include "base/json.h"
#include "evaluation/outcomes.h"

typedef struct {
    const char *actual, *predicted;
    int64_t count;
} td_run_pair;

typedef struct {
    const char *path; /* as in the report, relative to the data set; "": the image has no path */
    int64_t sample;   /* index in the data set */
    const char *actual, *predicted;
    double probability; /* of `predicted`, 0 .. 1 */
} td_run_mistake;

typedef struct td_run_confusion {
    int64_t epoch; /* from 0; -1: an evaluation */
    int64_t n_images, n_wrong;
    int n_classes; /* size of the matrix; 0: there are pairs instead */
    const char *classes[TD_CONFUSION_CLASSES];
    int64_t *counts; /* [n_classes, n_classes], row: actual */
    int n_pairs, n_mistakes;
    td_run_pair pairs[TD_CONFUSION_PAIRS];
    td_run_mistake mistakes[TD_CONFUSION_MISTAKES];
    td_arena arena; /* memory of all texts and counts */
} td_run_confusion;

/**
 * Read a record's step and data; `where` names it in messages.  TD_EFORMAT: a member is missing, of
 * another kind, larger than the limits of evaluation/outcomes.h or negative; TD_ENOMEM.
 */
TD_CHECKED td_status td_run_confusion_read(const td_json *step, const td_json *data,
                                           const char *where, td_run_confusion **out);

/** NULL is fine. */
void td_run_confusion_free(td_run_confusion *c);

#endif
