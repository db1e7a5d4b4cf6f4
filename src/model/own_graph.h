/*
 * model/own_graph.h -- queries on a network that may be a user's graph
 */
#ifndef TD_MODEL_OWN_GRAPH_H
#define TD_MODEL_OWN_GRAPH_H

#include "base/status.h"
#include "tandem/model.h"

/**
 * The graph as text, with num_classes rows in its head (release with td_text_free); NULL if the
 * file or text of `opts` has so many already.  Errors of td_model_resolve.
 */
td_status td_model_graph_text(const td_model_opts *opts, char **out) TD_CHECKED;

/** The text of the graph file or ONNX file opts->model; release with td_text_free. */
td_status td_model_file_text(const td_model_opts *opts, char **out) TD_CHECKED;

/**
 * An ONNX file given as the network has its weights, too: unless *weights names a file, it becomes
 * *weights, which names the network as well, and model->model NULL.
 */
void td_model_onnx_weights(td_model_opts *model, const char **weights);

/**
 * Names of the last layer's parameters, for a residual network "fc.weight" and "fc.bias"; "" if
 * there is none, or if the head of a graph cannot be resized (model/head.h).
 */
td_status td_model_head(const td_model_opts *opts, char weight[256], char bias[256]) TD_CHECKED;

/**
 * The name of the filter [K, C, R, S] that reads the images, "conv1.weight" of a residual network;
 * "" if no convolution with a parameter reads them.  Errors of td_model_graph.
 */
td_status td_model_stem(const td_model_opts *opts, char weight[256]) TD_CHECKED;

#endif
