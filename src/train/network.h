/*
 * train/network.h -- the two graphs of a job: one that trains, one that judges
 *
 *     training:  images, labels, lr -> loss, logits; every weight and statistic updated in place
 *                with loss scaling: also loss_scale, inverse_scale -> finite; updated if it is 1
 *     judging:   images, labels -> losses [N], logits [N, K]
 */
#ifndef TD_TRAIN_NETWORK_H
#define TD_TRAIN_NETWORK_H

#include "tandem/program.h"
#include "tandem/train.h"

typedef struct {
    double momentum, decay, smoothing;
    bool nesterov, decays_norms;
    bool is_scaled; /* gradients of loss_scale * loss, and no update unless all are finite */
} td_sgd_opts;

/** What a step with loss scaling has in addition: two inputs f32[], an output f32[], 1 or 0. */
#define TD_INPUT_SCALE   "loss_scale"
#define TD_INPUT_INVERSE "inverse_scale"
#define TD_OUTPUT_FINITE "finite"

/** Names of the optimiser's velocities: "momentum." and the weight's name. */
#define TD_MOMENTUM_PREFIX "momentum."

/**
 * Is this parameter left out of weight decay?  The reference's rule: its name contains "bn"; so the
 * shortcut's norm ("downsample.1") and all biases of linear layers are decayed.
 */
bool td_is_undecayed(const char *name);

/**
 * Inputs images f32[N,3,S,S], labels i64[N], lr f32[]; outputs loss, logits.  Caller frees *out.
 *
 * With sgd->is_scaled also inputs loss_scale and inverse_scale f32[] and an output finite f32[]: 1
 * where the loss (itself never scaled) and all gradients of loss_scale * loss are finite; else 0,
 * and that run wrote no weight, no velocity and no running statistic.
 */
td_status td_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                            td_graph **out) TD_CHECKED;

/**
 * Inputs images, labels; outputs losses [N], logits [N, K].  Without labels: logits, probabilities.
 */
td_status td_judging_graph(const td_model_opts *model, int batch, double smoothing, bool has_labels,
                           td_graph **out) TD_CHECKED;

/** opts->image_size, or the architecture's own. */
td_status td_model_image_size(const td_model_opts *opts, int *out) TD_CHECKED;

#endif
