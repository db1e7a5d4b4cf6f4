/*
 * onnx/onnx_export.h -- converts an inference graph to an ONNX model, and an ONNX model to a graph
 *
 *     graph, program ---- td_onnx_of_graph ---->  td_onnx  ----> file
 *     graph, program <--- td_graph_of_onnx -----  td_onnx  <---- file
 *
 * The import exists to verify the export: it reads only the ONNX model and follows ONNX's
 * definition of the operators.  It accepts what the export writes, and little more.
 */
#ifndef TD_ONNX_ONNX_EXPORT_H
#define TD_ONNX_ONNX_EXPORT_H

#include "image/image.h"
#include "onnx/onnx.h"
#include "onnx/onnx_eval.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/onnx.h"
#include "tandem/program.h"

/** The normalisation of images for this network. */
const td_norm *td_onnx_norm(const td_model_opts *model);

/**
 * Fill `m` from the inference graph `g`: input `images`, output `logits`, and `probabilities` if
 * the graph has it and opts->probabilities asks for it; of a graph without `logits` the outputs
 * `deltas` and, as `logits`, `scores`: the inputs of td_onnx_add_detections.  Weights come from
 * `p`, a program of that graph, and are copied into m's arena.  With `other`, the same graph for
 * one image more, the batch is left open: what differs between the two is "N".
 *
 *   TD_EUNSUPPORTED  an op without a counterpart in ONNX; the message names it
 *   TD_ENOMEM
 */
td_status td_onnx_of_graph(const td_graph *g, const td_graph *other, td_program *p,
                           const td_onnx_opts *opts, td_onnx *m) TD_CHECKED;

/** A model read back. */
typedef struct {
    td_graph *graph; /* input images f32, params under the tensors' names; owned */
    const td_onnx *model;
    const char *images; /* the graph's input value, after preparation */
    size_t n_prepared;  /* number of preparing nodes before it */
    size_t behind;      /* the first node after the graph; n_nodes: none */
    int batch;
} td_onnx_graph;

/**
 * For `batch` images where the model leaves that open.  The type that every value is declared to
 * have is compared with what comes out.  `m` is kept, `what` names it in messages.  From the first
 * node on that no graph can have, the rest is left to td_onnx_finish.  The values that `also`
 * names, NULL at its end, are outputs of the graph besides the model's own; NULL: none.
 *
 *   TD_EFORMAT       a declared type is another; a node's operands or attributes make no sense
 *   TD_EUNSUPPORTED  an operator, or an attribute of one, that the exporter does not write
 *   TD_ENOMEM
 */
td_status td_graph_of_onnx(const td_onnx *m, const char *what, int batch, const char *const *also,
                           td_onnx_graph *out) TD_CHECKED;
void td_onnx_graph_release(td_onnx_graph *g);

/** Give a program of that graph the model's tensors. */
td_status td_onnx_set_weights(const td_onnx_graph *g, td_program *p) TD_CHECKED;

/**
 * Run the model's preparation of images: `in` of its input type (u8 or f32), `out`
 * f32 [batch, 3, H, W].
 */
td_status td_onnx_prepare(const td_onnx_graph *g, const void *in, float *out) TD_CHECKED;

/**
 * What the model does behind the network, from a run of its program on: every value that comes out
 * there, and those outputs of the graph that are read there.
 */
td_status td_onnx_finish(const td_onnx_graph *g, const char *what, const td_program *p,
                         td_onnx_eval **out) TD_CHECKED;

#endif
