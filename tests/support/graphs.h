/*
 * graphs.h -- small graphs for tests, from their text form
 */
#ifndef TD_TEST_GRAPHS_H
#define TD_TEST_GRAPHS_H

#include "ir/graph.h"
#include "ir/target.h"

/** Parse `text`; fails the running test when that fails.  td_graph_free. */
td_graph *td_test_graph(const char *text);

/** The text form; fails the running test when that fails.  td_text_free. */
char *td_test_print(const td_graph *g);

/** The value of a name; fails the running test when there is none. */
const td_value *td_test_value(const td_graph *g, const char *name);

/**
 * A device without kernels: it wants aBcd16b for convolutions without groups whose channels are
 * multiples of 16, and takes every layout but one with padding.  Nodes sgd run as one call, and
 * nodes ema.
 */
extern const td_target td_test_target;

/** A convolution, batch norm, relu, pool and linear layer with a loss, gradients and updates. */
extern const char td_test_training[];

/** A convolution, batch norm, add, relu, pool and linear layer for inference. */
extern const char td_test_inference[];

#endif
