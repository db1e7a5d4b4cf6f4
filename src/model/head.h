/*
 * model/head.h -- the last layer of a user's graph, which sets the number of classes
 *
 *     td_head h;
 *     TD_TRY(td_head_find(g, &h));                 %fc.weight [10, 32], %fc.bias [10]
 *     TD_TRY(td_head_resize(g, 5, &other));        the same network with [5, 32] and [5]
 */
#ifndef TD_MODEL_HEAD_H
#define TD_MODEL_HEAD_H

#include "ir/graph.h"

/** The layer's parameters, which nothing else uses; bias NULL: none. */
typedef struct {
    const td_value *weight, *bias;
} td_head;

/**
 * Find the layer that makes the output `logits` [N, K]: linear, or conv2d and a mean over its map.
 * TD_ESHAPE: another op makes it.
 */
td_status td_head_find(const td_graph *g, td_head *out) TD_CHECKED;

/**
 * Copy the graph with `classes` rows in its head; names are kept.  The caller frees *out.
 * TD_ESHAPE as for td_head_find, or nodes after the logits require the old number.
 */
td_status td_head_resize(const td_graph *g, int classes, td_graph **out) TD_CHECKED;

#endif
