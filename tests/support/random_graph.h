/*
 * random_graph.h -- small graphs of every op family, a pure function of a seed
 */
#ifndef TD_TEST_RANDOM_GRAPH_H
#define TD_TEST_RANDOM_GRAPH_H

#include "ir/graph.h"

typedef enum {
    TD_RANDOM_INFER, /* outputs y0, y1, ...; batch norm with given statistics, fused convolutions */
    TD_RANDOM_TRAIN, /* outputs loss and y0, ...; every weight updated by sgd, statistics moved */
    TD_RANDOM_GRADIENTS /* outputs loss and "d.<param>" for every weight; no casts */
} td_random_kind;

/**
 * Inputs of the graph: images [N, C, H, W] of `dtype`, labels i64 [N], and lr (a scalar of `dtype`)
 * when training.  Fails the running test when the graph cannot be built.  td_graph_free.
 */
td_graph *td_random_graph(uint64_t seed, td_random_kind kind, td_dtype dtype);

#endif
