/*
 * model/own_graph.h -- what jobs ask of a network that may be a graph of the user's own
 */
#ifndef TD_MODEL_OWN_GRAPH_H
#define TD_MODEL_OWN_GRAPH_H

#include "base/status.h"
#include "tandem/model.h"

/**
 * The graph as text, with num_classes rows in its head (td_text_free); NULL: the file or text of
 * `opts` says it as it is.  Errors of td_model_resolve.
 */
td_status td_model_graph_text(const td_model_opts *opts, char **out) TD_CHECKED;

/**
 * Names of the last layer's parameters, "fc.weight" and "fc.bias"; "" where there is none, or where
 * a graph has no head that can be resized (model/head.h).
 */
td_status td_model_head(const td_model_opts *opts, char weight[256], char bias[256]) TD_CHECKED;

#endif
