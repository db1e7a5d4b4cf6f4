/*
 * onnx/onnx_export.h -- converts an inference graph to an ONNX model, and an ONNX model to a graph
 *
 *     graph, program ---- td_onnx_of_graph ---->  td_onnx  ----> file
 *     graph, program <--- td_graph_of_onnx -----  td_onnx  <---- file
 *
 * The import (onnx_import/onnx_import.h) verifies the export.
 */
#ifndef TD_ONNX_ONNX_EXPORT_H
#define TD_ONNX_ONNX_EXPORT_H

#include "image/image.h"
#include "onnx/onnx_eval.h"
#include "onnx_import/onnx_import.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/onnx.h"
#include "tandem/program.h"

#define TD_ONNX_WHY 300

/** The normalisation of this network's images. */
const td_norm *td_onnx_norm(const td_model_opts *model);

/**
 * Fill `m` from the inference graph `g`: input `images`, output `logits`, and `probabilities` if
 * the graph has it and opts->probabilities is set; for a detector, the outputs `codes` (the deltas)
 * and, named `logits`, `scores`: the inputs of td_onnx_add_detections.  Weights come from `p`, a
 * program of that graph, and are copied into m's arena.  With `other`, the same graph for one more
 * image, the batch size is not fixed: dimensions that differ between the two are "N".  With
 * `larger`, the same graph for larger images that are not square (td_onnx_any_size), neither is the
 * size of the images: "height" and "width".  `integers`
 * has the parameters that are stored as integers (td_onnx_qdq.integers); NULL: none.
 *
 *   TD_EUNSUPPORTED  an op without a counterpart in ONNX; the message names it
 *   TD_ENOMEM
 */
td_status td_onnx_of_graph(const td_graph *g, const td_graph *other, const td_graph *larger,
                           td_program *p, const td_map *integers, const td_onnx_opts *opts,
                           td_onnx *m) TD_CHECKED;

/** Have the graphs the same nodes, with results of the same ranks? */
bool td_onnx_same_nodes(const td_graph *a, const td_graph *b);

/**
 * Do the parameters and attributes of `g` fit images of any size?  `larger`: the same for images of
 * another size.  If not, `why` names the first that does not.
 */
bool td_onnx_any_size(const td_graph *g, const td_graph *larger, char why[TD_ONNX_WHY]);

/**
 * The elements of a tensor of the model: halves as f32, as well as integers that a DequantizeLinear
 * reads with a scale for each row; others as they are.  Release with td_free; NULL: no memory.
 */
void *td_onnx_numbers(const td_onnx *m, const td_tensor *t);

/** The f32 scales [t->dim[0]] with which a DequantizeLinear reads integers, or NULL. */
const td_tensor *td_onnx_scales(const td_onnx *m, const td_tensor *t);

/** Set the parameters of a program of that graph from the model's tensors. */
td_status td_onnx_set_weights(const td_onnx_graph *g, td_program *p) TD_CHECKED;

/**
 * Run the model's preparation of images: `in` has its input type (u8 or f32), `out` is f32 [batch,
 * C, H, W].
 */
td_status td_onnx_prepare(const td_onnx_graph *g, const void *in, float *out) TD_CHECKED;

/**
 * Evaluate the nodes after the network, with the outputs of the last run of `p`.  *out has every
 * result of these nodes, and those outputs of the graph that they read.
 */
td_status td_onnx_finish(const td_onnx_graph *g, const char *what, const td_program *p,
                         td_onnx_eval **out) TD_CHECKED;

#endif
