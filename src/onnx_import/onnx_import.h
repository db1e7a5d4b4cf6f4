/*
 * onnx_import/onnx_import.h -- makes a graph from an ONNX model
 *
 *     td_onnx *m;  TD_TRY(td_onnx_read("net.onnx", &m));
 *     td_onnx_graph g;
 *     TD_OUT(td_graph_of_onnx(m, "net.onnx", &(td_onnx_import_opts){ .batch = 1 }, &g));
 *
 * It reads only the ONNX model and follows ONNX's definition of the operators, opsets 11 to 21.
 */
#ifndef TD_ONNX_IMPORT_ONNX_IMPORT_H
#define TD_ONNX_IMPORT_ONNX_IMPORT_H

#include "onnx_file/onnx.h"
#include "onnx_import/preparation.h"
#include "tandem/graph.h"

typedef struct {
    int batch;               /* images, if the model does not fix that number */
    const char *const *also; /* values that become outputs, too; ends with NULL; NULL: none */

    /* A network for --model: input `images`, output `logits`, its tensors are trained parameters.
       A batch or a side that the file fixes is taken from it. */
    bool is_model;
    const char *output; /* of a model: the value that becomes `logits`; NULL: the output of this
                           name, or the only one */
    int height, width; /* of images whose size is not fixed; a model's are square, and 0 is the size
                          in its metadata, or 224 */

    /* can a node be left to the caller?  From the first such node on all must be; NULL: none can */
    bool (*is_after)(const td_onnx_node *n);
} td_onnx_import_opts;

/** A model that was read back. */
typedef struct {
    td_graph *graph; /* input `images` f32, parameters named like the tensors; owned */
    const td_onnx *model;
    const char *images;              /* the ONNX value that is the graph's input */
    td_type input;                   /* the model's input, with its dimensions */
    size_t n_prepared;               /* number of preparation nodes before it; not of a model */
    td_onnx_preparation preparation; /* of a model */
    size_t first_post;               /* the first node after the network; n_nodes: none */
    int batch;

    /* of a model: the softmax or sigmoid after `logits`, or NULL; a sigmoid: several labels */
    const td_onnx_node *last_activation;
    bool multi_label;

    td_tensor
        *params; /* of a model: the tensor of each parameter of the graph; owned, data borrowed */
    size_t n_params, cap_params;
} td_onnx_graph;

/**
 * Make a graph.  The inferred type of every value is compared with the declared one.  `m` is
 * borrowed, `what` names it in messages.
 *
 *   TD_EFORMAT       a declared type differs; a node's operands or attributes are invalid
 *   TD_EUNSUPPORTED  an operator, or an attribute of one, that the exporter does not write
 *   TD_ENOMEM
 */
td_status td_graph_of_onnx(const td_onnx *m, const char *what, const td_onnx_import_opts *opts,
                           td_onnx_graph *out) TD_CHECKED;
void td_onnx_graph_release(td_onnx_graph *g);

#endif
