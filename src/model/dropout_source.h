/*
 * model/dropout_source.h -- dropout nodes of a network in the making, and their random numbers
 *
 *     td_dropout_source s = { 0 };                           one for a network
 *     x = td_dropout_emit(b, &s, x, 0.2, TD_DROPOUT_ROW, is_training);
 *
 * In training all read one input, TD_INPUT_RANDOM (tandem/model.h), and have the ids 0, 1, ... in
 * the order of the network, so that no two have the same draws and a graph text draws what the
 * built-in network draws.
 */
#ifndef TD_MODEL_DROPOUT_SOURCE_H
#define TD_MODEL_DROPOUT_SOURCE_H

#include "ir/build.h"
#include "ops/ops.h"

typedef struct {
    td_value *random; /* NULL before the first node in training */
    int n;            /* nodes so far */
} td_dropout_source;

/** dropout(x), without random numbers unless is_training; x itself if p is 0. */
td_value *td_dropout_emit(td_builder *b, td_dropout_source *s, td_value *x, double p,
                          td_dropout_mode mode, bool is_training);

#endif
