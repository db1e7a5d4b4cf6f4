/*
 * train/synthetic_step.h -- made-up pictures and targets, for steps that are only to be timed
 *
 *     td_synthetic s;
 *     TD_TRY(td_synthetic_make(&model, batch, &s));
 *     st = td_synthetic_bind(&s, step);            images, labels, and a detector's targets
 *     td_synthetic_release(&s);
 */
#ifndef TD_TRAIN_SYNTHETIC_STEP_H
#define TD_TRAIN_SYNTHETIC_STEP_H

#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    float *images;   /* [batch, 3, size, size], uniform with the variance of normalised pictures */
    int64_t *labels; /* [batch], or of a detector [batch, A] */
    float *targets;  /* of a detector [batch, A, 4], else NULL */
} td_synthetic;

/** `model` is complete (td_model_resolve); a detector's pictures show seven things. */
td_status td_synthetic_make(const td_model_opts *model, int batch, td_synthetic *out) TD_CHECKED;

/** To a step with all inputs of these names; they are borrowed. */
td_status td_synthetic_bind(const td_synthetic *s, td_program *step) TD_CHECKED;

/** Bytes that the inputs of a step take. */
int64_t td_synthetic_bytes(const td_model_opts *model, int batch);

void td_synthetic_release(td_synthetic *s);

#endif
