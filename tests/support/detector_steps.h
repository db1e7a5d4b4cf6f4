/*
 * detector_steps.h -- training steps of the detectors against their golden data
 *
 * The step is the job's own graph.  Gradients are read as the momentum buffers after the first
 * update.
 */
#ifndef TD_TEST_DETECTOR_STEPS_H
#define TD_TEST_DETECTOR_STEPS_H

#include "support/detector.h"

typedef struct {
    td_detector_case *c;
    td_device *dev;
    td_program *p;
    int n_anchors;
    float *images, *targets, lr;
    int64_t *labels;
    double besides; /* weight decay that golden gradients lack: momentum buffers have it */
} td_detector_steps;

/** The step with momentum 0.9 and this decay, filled. */
void td_detector_steps_open(td_detector_steps *s, td_detector_case *c, double decay);
void td_detector_steps_close(td_detector_steps *s);

/**
 * Run step k with the golden images and ground truths of batch k; returns how many are positive.
 */
int td_detector_step(td_detector_steps *s, int k, double lr);

/** A scalar output of the step. */
double td_detector_scalar(const td_detector_steps *s, const char *name);

/** decay / 2 times the sum of squares of all filters. */
double td_detector_regularization(const td_detector_steps *s, double decay);

/**
 * Velocities after the first step, without decay where the rows are, against rows of gradients.
 * Those of which the reference has nothing but rounding are to be as small.  norm_limit is that of
 * norms, sample_limit of td_detector_error (0: none).
 */
void td_detector_check_gradients(const td_detector_steps *s, const td_json *rows, double norm_limit,
                                 double sample_limit);

/**
 * Changes of all variables since the fill against rows that have "change_l2", where that is more
 * than 1e-4 of l2; sample_limit is of
 * "change_samples", where there are any.
 */
void td_detector_check_changes(const td_detector_steps *s, const td_json *rows, double norm_limit,
                               double sample_limit);

/** Fails the test when |a - b| > limit max(|b|, 1e-30); says all three. */
void td_detector_check_close(const char *what, double a, double b, double limit);

#endif
