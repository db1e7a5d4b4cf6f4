/*
 * onnx_file/onnx_read.h -- what the files of the reader share
 */
#ifndef TD_ONNX_FILE_ONNX_READ_H
#define TD_ONNX_FILE_ONNX_READ_H

#include "io/protobuf.h"
#include "onnx_file/external_data.h"
#include "onnx_file/onnx.h"

enum { TD_ONNX_ITEMS_MAX = 1000000 }; /* total of nodes, tensors, names, attributes and numbers */

typedef struct {
    td_onnx *m;
    const char *what;
    int64_t n_left; /* what remains of TD_ONNX_ITEMS_MAX */
    bool has_graph, has_opset;
    const td_onnx_node *node; /* the node that is being read, or NULL */
    td_external_files *files; /* NULL: all data must be in the file */
} td_onnx_reader;

/** TD_ELIMIT: more than TD_ONNX_ITEMS_MAX. */
td_status td_onnx_count_items(td_onnx_reader *r, int64_t n) TD_CHECKED;

/** TD_EUNSUPPORTED: "'net.onnx' has WHAT, which is not supported", with the node's name. */
td_status td_onnx_refuse(const td_onnx_reader *r, const char *what) TD_CHECKED;

/** A text into the model's arena.  TD_EFORMAT, TD_ENOMEM. */
td_status td_onnx_get_text(td_onnx_reader *r, const td_pb *pb, const td_pb_field *f,
                           const char **out) TD_CHECKED;

/** A TensorProto; its data are those of the file that was read, or in the model's arena. */
td_status td_onnx_read_tensor(td_onnx_reader *r, td_pb pb, td_tensor *out) TD_CHECKED;

#endif
