/*
 * train/network.h -- the two graphs of a job: one that trains, one that judges
 *
 *     training:  images, labels, lr -> loss, logits; every weight and statistic updated in place
 *     judging:   images, labels -> losses [N], logits [N, K]
 */
#ifndef TD_TRAIN_NETWORK_H
#define TD_TRAIN_NETWORK_H

#include "tandem/program.h"
#include "tandem/train.h"

typedef struct {
    double momentum, decay, smoothing;
    bool nesterov, decays_norms;
} td_sgd_opts;

/** Names of the optimiser's velocities: "momentum." and the weight's name. */
#define TD_MOMENTUM_PREFIX "momentum."

/**
 * Is this parameter left out of weight decay?  The reference's rule: its name contains "bn"; so the
 * shortcut's norm ("downsample.1") and all biases of linear layers are decayed.
 */
bool td_is_undecayed(const char *name);

/**
 * Inputs images f32[N,3,S,S], labels i64[N], lr f32[]; outputs loss, logits.  Caller frees *out.
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
