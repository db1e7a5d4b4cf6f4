/*
 * optim/synthetic_step.h -- a training step for timing only: its graph, images and targets
 *
 *     TD_TRY(td_step_graph(&model, batch, &amp, 1, NULL, &g));     ...compile it...
 *     TD_TRY(td_step_bind_scalars(step, &amp));
 *     td_synthetic s;
 *     TD_TRY(td_synthetic_make(&model, batch, false, &s));
 *     st = td_synthetic_bind(&s, step);            images, labels, and a detector's targets
 *     td_synthetic_release(&s);
 */
#ifndef TD_OPTIM_SYNTHETIC_STEP_H
#define TD_OPTIM_SYNTHETIC_STEP_H

#include "tandem/amp.h"
#include "tandem/model.h"
#include "tandem/program.h"

#define TD_STEP_LR 1e-3 /* the learning rate of synthetic steps */

/**
 * The step: SGD with momentum, weight decay and label smoothing; loss scaling for fp16, as in
 * `tandem train`; gradients summed over `ranks` ranks.  norm: images are bytes; NULL: floats.
 * Caller frees *out.  Errors of td_training_graph.
 */
td_status td_step_graph(const td_model_opts *model, int batch, const td_amp_opts *amp, int ranks,
                        const td_norm *norm, td_graph **out) TD_CHECKED;

/** The loss scale: 128 in fp16, otherwise 1. */
float td_step_scale(const td_amp_opts *amp);

/** Bind the inputs that are not data: the learning rate, the loss scale, dropout's numbers. */
td_status td_step_bind_scalars(td_program *step, const td_amp_opts *amp) TD_CHECKED;

typedef struct {
    float *images;   /* [batch, C, size, size], uniform with the variance of normalized images, */
    uint8_t *pixels; /* or [batch, size, size, C], uniform; the other is NULL */
    int64_t *labels; /* [batch], or for a detector [batch, A] */
    float *targets;  /* for a detector [batch, A, 4], otherwise NULL */
} td_synthetic;

/** `model` must be resolved (td_model_resolve); a detector's images contain seven objects. */
td_status td_synthetic_make(const td_model_opts *model, int batch, bool as_bytes,
                            td_synthetic *out) TD_CHECKED;

/** Its images or pixels. */
const void *td_synthetic_images(const td_synthetic *s);

/** Bind the arrays to the inputs of a step; they are borrowed. */
td_status td_synthetic_bind(const td_synthetic *s, td_program *step) TD_CHECKED;

/** Bytes of a step's inputs, with images of floats. */
int64_t td_synthetic_bytes(const td_model_opts *model, int batch);

void td_synthetic_release(td_synthetic *s);

#endif
