/*
 * optim/training_graph.h -- the two graphs of a job: one that trains, one that infers
 *
 *     training:  images, labels, lr -> loss, logits; every weight and statistic updated in place
 *                with loss scaling: also loss_scale, inverse_scale -> finite; updated if it is 1
 *     inference: images, labels -> losses [N], logits [N, K]
 *
 * Of detectors: images, labels, targets, lr -> loss; td_model_graph is the one that infers.
 */
#ifndef TD_OPTIM_TRAINING_GRAPH_H
#define TD_OPTIM_TRAINING_GRAPH_H

#include "optim/optimizer.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

/**
 * The training graph of a classifier; for a detector, calls td_detector_training_graph.
 *
 * Inputs images f32[N,3,S,S], labels i64[N], lr f32[]; outputs loss, logits.  Caller frees *out.
 *
 * With sgd->is_scaled also inputs loss_scale and inverse_scale f32[] and an output finite f32[]: 1
 * where the loss (itself never scaled) and all gradients of loss_scale * loss are finite; otherwise
 * 0, and that run wrote no weight, no momentum buffer and no running statistic.
 */
td_status td_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                            td_graph **out) TD_CHECKED;

/**
 * The same of a detector (td_model_detector).  Inputs images, lr as above, labels i64[N, A]: the
 * class of each anchor's object, 0 where it has none, and targets f32[N, A, 4]: the deltas wanted
 * there (boxes/targets.h).  Outputs loss, without weight decay, and its parts loss_class and
 * loss_box.  sgd->decay is that of filters only, sgd->smoothing and sgd->mixes do not matter.
 */
td_status td_detector_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                                     td_graph **out) TD_CHECKED;

/**
 * Inputs images, labels; outputs losses [N], logits [N, K].  Without labels: logits, probabilities;
 * of a detector, with labels or without, deltas and scores.
 */
td_status td_inference_graph(const td_model_opts *model, int batch, double smoothing,
                             bool has_labels, td_graph **out) TD_CHECKED;

/** opts->image_size, or the architecture's own. */
td_status td_model_image_size(const td_model_opts *opts, int *out) TD_CHECKED;

#endif
