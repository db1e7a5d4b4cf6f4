/*
 * optim/training_graph.h -- the training graph and the inference graph of a model
 *
 *     training:  images, labels, lr -> loss, logits; updates every weight and statistic in place
 *                with loss scaling: also loss_scale, inverse_scale -> finite; updates only
 *                if finite is 1
 *     inference: images -> logits [N, K], probabilities [N, K]
 *     evaluation: images, labels -> losses [N], logits [N, K]
 *
 * With a td_norm, images are bytes u8[N,S,S,C], which a node `normalize` makes f32[N,C,S,S].
 *
 * For detectors: images, labels, targets, lr -> loss; inference as td_model_graph.
 */
#ifndef TD_OPTIM_TRAINING_GRAPH_H
#define TD_OPTIM_TRAINING_GRAPH_H

#include "boxes/anchors.h"
#include "ir/build.h"
#include "optim/optimizer.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

/**
 * The training graph of a classifier; for a detector, calls td_detector_training_graph.
 *
 * Inputs images f32[N,C,S,S] or, with opts->norm, u8[N,S,S,C], labels i64[N], lr f32[]; outputs
 * loss, logits.  Caller frees *out.
 *
 * With opts->is_scaled also inputs loss_scale and inverse_scale f32[] and an output finite f32[]: 1
 * if the loss (itself never scaled) and all gradients of loss_scale * loss are finite; otherwise 0,
 * and that run of the program wrote no weight, no momentum buffer and no running statistic.
 */
td_status td_training_graph(const td_model_opts *model, int batch, const td_step_opts *opts,
                            td_graph **out) TD_CHECKED;

/**
 * The same for a detector (td_model_detector).  Inputs images, lr as above, labels i64[N, A]: the
 * class of each anchor's object, 0 for none, and targets f32[N, A, 4]: the anchor's box deltas
 * (boxes/targets.h).  Outputs loss, without weight decay, and its parts loss_class and loss_box.
 * opts->decay applies to filters only, but to all weights of torchvision's detectors;
 * opts->smoothing and opts->mixes are ignored.
 */
td_status td_detector_training_graph(const td_model_opts *model, int batch,
                                     const td_step_opts *opts, td_graph **out) TD_CHECKED;

/** Emit the loss of a detector, and its parts as outputs loss_class and loss_box. */
td_value *td_detector_loss(td_builder *b, td_detector detector, td_value *deltas, td_value *scores,
                           td_value *targets, td_value *labels);

/**
 * Input images; outputs logits [N, K] and probabilities [N, K], for a detector codes [N, A, 4] and
 * scores [N, A, K + 1].  norm: images are bytes; NULL: floats.  Caller frees *out.
 */
td_status td_inference_graph(const td_model_opts *model, int batch, const td_norm *norm,
                             td_graph **out) TD_CHECKED;

/** The same of a classifier for float images of another size, which need not be square. */
td_status td_inference_graph_sized(const td_model_opts *model, int batch, int height, int width,
                                   td_graph **out) TD_CHECKED;

/**
 * The same to evaluate: of a classifier, inputs images and labels, outputs losses [N] and logits;
 * for a detector there is no difference.
 */
td_status td_evaluation_graph(const td_model_opts *model, int batch, double smoothing,
                              const td_norm *norm, td_graph **out) TD_CHECKED;

/** Set image_size and channels, where they are 0, as td_model_resolve does, and nothing else. */
td_status td_model_resolve_images(td_model_opts *opts) TD_CHECKED;

#endif
