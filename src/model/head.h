/*
 * model/head.h -- the last layer of a graph of the user's own, which decides the number of classes
 *
 *     td_head h;
 *     TD_TRY(td_head_find(g, &h));                 %fc.weight [10, 32], %fc.bias [10]
 *     TD_TRY(td_head_resize(g, 5, &other));        the same network with [5, 32] and [5]
 */
#ifndef TD_MODEL_HEAD_H
#define TD_MODEL_HEAD_H

#include "ir/graph.h"

/** Parameters that nothing else uses; bias NULL: there is none. */
typedef struct {
    const td_value *weight, *bias;
} td_head;

/**
 * What makes the output `logits` [N, K]: linear, or conv2d and a mean over its map.
 * TD_ESHAPE: something else does.
 */
td_status td_head_find(const td_graph *g, td_head *out) TD_CHECKED;

/**
 * The same graph with `classes` rows in its head; names stay.  The caller frees *out.
 * TD_ESHAPE as td_head_find, or what comes after the logits does not take another number.
 */
td_status td_head_resize(const td_graph *g, int classes, td_graph **out) TD_CHECKED;

#endif
