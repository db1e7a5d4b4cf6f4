/*
 * checkpoint/onnx_network.h -- an ONNX file as a weight file: its network and its tensors
 */
#ifndef TD_CHECKPOINT_ONNX_NETWORK_H
#define TD_CHECKPOINT_ONNX_NETWORK_H

#include "io/safetensors.h"
#include "tandem/model.h"

/**
 * Read an ONNX model as weights: one tensor for each parameter of its graph, under the name that it
 * has in the file, and the graph's text as "tandem.graph".  The output and, where the file leaves
 * it open, the image size are those of `model`; NULL: defaults.  Errors of td_onnx_read and
 * td_graph_of_onnx.
 */
td_status td_onnx_weights_read(const char *path, const td_model_opts *model,
                               td_tensors **out) TD_CHECKED;

#endif
