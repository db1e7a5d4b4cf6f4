/*
 * model/ssd.h -- the detectors' builders, called by td_detector_forward
 *
 * images [N, 3, S, S] -> *deltas [N, A, 4], *scores [N, A, opts->num_classes + 1]; `arch` is the
 * backbone's row.
 */
#ifndef TD_MODEL_SSD_H
#define TD_MODEL_SSD_H

#include "model/layers.h"

void td_ssd320(td_builder *b, const td_arch *arch, const td_model_opts *opts, td_value *images,
               bool is_training, td_value **deltas, td_value **scores);

void td_ssd300(td_builder *b, const td_arch *arch, const td_model_opts *opts, td_value *images,
               bool is_training, td_value **deltas, td_value **scores);

#endif
