/*
 * evaluation/multi_label.h -- scores of networks whose classes do not exclude each other
 */
#ifndef TD_EVALUATION_MULTI_LABEL_H
#define TD_EVALUATION_MULTI_LABEL_H

#include <stdint.h>

#include "base/status.h"
#include "tandem/evaluate.h"

/** Fractions, 0 .. 1. */
typedef struct {
    double map;                /* mean over the classes of the average precision */
    double micro_f1, macro_f1; /* of all predictions together; mean over the classes */
    int64_t n_absent;          /* classes that no image has: their precision and F1 are 0 */
} td_multi_scores;

/**
 * Scores of logits [n, k] and targets [n, k], 1 for the classes of an image and 0 for others; a
 * class is predicted where the sigmoid of its logit is at least `threshold`.  As scikit-learn's
 * average_precision_score(average="macro") of the logits, and f1_score(zero_division=0).  `classes`
 * [k] receives those of each class; it may be NULL.  TD_ENOMEM.
 */
TD_CHECKED td_status td_multi_scores_compute(const float *logits, const uint8_t *targets, int64_t n,
                                             int k, double threshold, td_label_scores *classes,
                                             td_multi_scores *out);

#endif
