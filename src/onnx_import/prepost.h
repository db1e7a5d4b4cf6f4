/*
 * onnx_import/prepost.h -- an ONNX model's nodes before and after its network
 *
 * They do not become part of a graph.  The nodes before the network convert bytes to normalised
 * floats (td_onnx_prepare in onnx/onnx_export.h), the nodes after it convert a detector's heads to
 * boxes (td_onnx_finish).
 */
#ifndef TD_ONNX_IMPORT_PREPOST_H
#define TD_ONNX_IMPORT_PREPOST_H

#include "ir/type.h"
#include "onnx_file/onnx.h"

/** Can `n` be a preparation node if its input has type *t?  If so, *t becomes its result's type. */
bool td_onnx_is_preparation(const td_onnx *m, const td_onnx_node *n, td_type *t);

/** Does it move the channels of images from the end to the front? */
bool td_onnx_is_to_planes(const td_onnx_node *n);

/** The f32 [1, C, 1, 1] operand of a Sub or Div, or NULL. */
const td_tensor *td_onnx_channels_of(const td_onnx *m, const td_onnx_node *n, int64_t channels);

/**
 * Call `use` for each value that the nodes from `first` on read but do not produce; i counts them.
 * Stops if `use` fails.
 */
td_status td_onnx_each_post_input(const td_onnx *m, size_t first,
                                  td_status (*use)(void *ctx, int i, const char *name),
                                  void *ctx) TD_CHECKED;

/** The name of value i of these as an output of the graph. */
void td_onnx_post_input_name(int i, char out[24]);

#endif
