/*
 * model/mobilenet_v3.h -- the blocks of MobileNetV3, for networks that are built on them
 */
#ifndef TD_MODEL_MOBILENET_V3_H
#define TD_MODEL_MOBILENET_V3_H

#include "model/layers.h"

#define TD_MOBILENET_V3_STEM 16 /* channels */

typedef struct {
    int side, hidden, width, stride; /* of the depthwise convolution; channels; result's channels */
    bool has_se, is_hard;            /* hardswish, not relu */
} td_mobilenet_v3_block;

/** Block i of mobilenet_v3_large; NULL past the end. */
const td_mobilenet_v3_block *td_mobilenet_v3_large(int i);

/** The whole block, its modules named "block.0", "block.1", .. */
td_value *td_mobilenet_v3_emit(td_net *m, td_value *x, const td_mobilenet_v3_block *s);

/**
 * What follows the block's first 1x1 convolution, without the sum: depthwise convolution,
 * squeeze-and-excitation, 1x1 convolution, named `name` and a number from `first` on.
 */
td_value *td_mobilenet_v3_emit_end(td_net *m, td_value *x, const td_mobilenet_v3_block *s,
                                   const char *name, int first);

#endif
