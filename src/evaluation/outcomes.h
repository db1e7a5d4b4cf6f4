/*
 * evaluation/outcomes.h -- the prediction of each image of a validation, and their record in the
 * report
 *
 *     td_gather outcomes = { 0 };
 *     jo.outcomes = &outcomes;   td_evaluator_run fills it; rank 0 then has the images of all ranks
 *     TD_TRY(td_outcomes_report(&outcomes, &metadata, report));
 *
 * The record has a bounded size: all counts for at most TD_CONFUSION_CLASSES classes, otherwise the
 * most frequently confused pairs; and the mistakes with the highest probabilities.
 */
#ifndef TD_EVALUATION_OUTCOMES_H
#define TD_EVALUATION_OUTCOMES_H

#include "checkpoint/class_names.h"
#include "comm/gather.h"
#include "loggers/run_logger.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"

#define TD_CONFUSION_RECORD "CONFUSION" /* the record's type */

enum {
    TD_CONFUSION_CLASSES = 64, /* with more classes, no matrix is written */
    TD_CONFUSION_PAIRS = 50,   /* pairs written instead */
    TD_CONFUSION_MISTAKES = 24
};

/** Add the images of a batch: logits [b->n, classes] f32.  Images without a label are ignored. */
TD_CHECKED td_status td_outcomes_add(td_gather *s, const td_batch *b, const float *logits,
                                     int classes);

typedef struct {
    const td_dataset *ds;        /* the evaluated data set */
    const char *folder;          /* the data set as the user named it: paths are relative to it */
    const td_class_names *names; /* names of the outputs; NULL: those of `ds` */
    int n_classes;
    int64_t epoch; /* from 0; -1: not in a training */
} td_outcome_metadata;

/**
 * Write the record of all images, on rank 0; nothing if there are no images or `r` is NULL.
 * TD_EDEVICE: another rank sent an invalid outcome; TD_EIO; TD_ENOMEM.
 */
TD_CHECKED td_status td_outcomes_report(const td_gather *s, const td_outcome_metadata *f,
                                        td_report *r);

#endif
