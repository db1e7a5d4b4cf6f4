/*
 * onnx_file/onnx.h -- an ONNX file: nodes, tensors and texts, independent of the operators' meaning
 *
 *     ModelProto   ir_version, producer, opset_import, metadata_props, graph
 *     GraphProto   node[] in order, initializer[], input[], output[], value_info[]
 *
 * Writes and reads inference graphs of one domain (ai.onnx); writes all tensor data into the file:
 *
 *     td_onnx *m;  TD_TRY(td_onnx_new(&m));
 *     td_onnx_add_node(m, "Relu", "relu_1", 1, (const char *[]){ "x" }, "y");
 *     ...
 *     TD_OUT(td_onnx_write(m, "net.onnx", check, ctx));
 *
 * The functions that add record the first failure in m->st; later calls do nothing, and
 * td_onnx_write returns it.  Reading takes tensors from files beside it too (external_data.h), and
 * rejects subgraphs, functions, other domains and sparse tensors.
 *
 * Source: onnx.proto of ONNX 1.23 (IR version 14); opsets 13 to 21.
 */
#ifndef TD_ONNX_FILE_ONNX_H
#define TD_ONNX_FILE_ONNX_H

#include "base/arena.h"
#include "base/map.h"
#include "io/safetensors.h" /* td_tensor */

#define TD_ONNX_OPSET_MIN      13
#define TD_ONNX_OPSET_READ_MIN 11
#define TD_ONNX_OPSET_MAX      21
#define TD_ONNX_RANK_MAX       TD_TENSOR_RANK_MAX

#define TD_ONNX_OPSET_LAYER_NORM 17 /* the first with LayerNormalization */

/* a protobuf message has less than 2 GiB */
#define TD_ONNX_BYTES_MAX ((int64_t)INT32_MAX)

typedef struct {
    int64_t value;     /* -1: not fixed */
    const char *param; /* the name of a dimension that is not fixed, "N"; NULL: none */
} td_onnx_dim;

/** The description of an edge: name, type, shape. */
typedef struct {
    const char *name;
    td_dtype dtype;
    int rank;
    td_onnx_dim dim[TD_ONNX_RANK_MAX];
    const char *kind; /* PARAMETER, BUFFER or another word by which PyTorch's exporter says what a
                         tensor was; NULL: the file does not say */
} td_onnx_value;

typedef enum {
    TD_ONNX_FLOAT = 1,
    TD_ONNX_INT = 2,
    TD_ONNX_TEXT = 3,
    TD_ONNX_TENSOR = 4, /* read only */
    TD_ONNX_FLOATS = 6, /* read only */
    TD_ONNX_INTS = 7
} td_onnx_kind;

typedef struct {
    const char *name;
    td_onnx_kind kind;
    float f;
    int64_t i;
    const char *text;
    int n; /* the number of ints, or of floats */
    int64_t *ints;
    float *floats;
    td_tensor *tensor;
} td_onnx_attr;

typedef struct {
    const char *op, *name;
    int n_in, n_out, n_attr;
    const char **in; /* "" if an operand is omitted */
    const char **out;
    td_onnx_attr *attr;
} td_onnx_node;

typedef struct {
    td_onnx_value *at;
    size_t n, cap;
} td_onnx_values;

typedef struct {
    const char *key, *value;
} td_onnx_meta;

typedef struct {
    td_arena arena; /* owns every text and array below but `file` */
    td_status st;   /* the first failure of adding */
    int64_t ir_version, opset;
    const char *producer, *producer_version, *graph_name;
    td_onnx_node *nodes;
    size_t n_nodes, cap_nodes;
    td_tensor *tensors; /* initialisers; not aligned after reading */
    size_t n_tensors, cap_tensors;
    td_onnx_values inputs, outputs, values; /* values: intermediate ones */
    td_onnx_meta *meta;
    size_t n_meta, cap_meta;
    char *file; /* the bytes of the file that was read */
} td_onnx;

td_status td_onnx_new(td_onnx **out) TD_CHECKED;
void td_onnx_free(td_onnx *m);

/* --- building --------------------------------------------------------------------------------- */

/** Append a node whose result is called `out`.  Texts are copied, tensors' data is borrowed. */
void td_onnx_add_node(td_onnx *m, const char *op, const char *name, int n_in, const char *const *in,
                      const char *out);

/** Add a second result to the last node. */
void td_onnx_add_result(td_onnx *m, const char *out);

/** Add attributes to the last node: at most 8. */
void td_onnx_attr_int(td_onnx *m, const char *name, int64_t value);
void td_onnx_attr_float(td_onnx *m, const char *name, float value);
void td_onnx_attr_text(td_onnx *m, const char *name, const char *value);
void td_onnx_attr_ints(td_onnx *m, const char *name, int n, const int64_t *values);

void td_onnx_add_tensor(td_onnx *m, const char *name, td_dtype dtype, int rank, const int64_t *dim,
                        const void *data);
void td_onnx_add_value(td_onnx *m, td_onnx_values *list, const td_onnx_value *v);
void td_onnx_set_meta(td_onnx *m, const char *key, const char *value);

/** A copy of `text` that lives as long as the model; "" after a failure. */
const char *td_onnx_text(td_onnx *m, const char *text);

/** Convert a dtype to ONNX's number and back: 0 and TD_DT_NONE if there is none. */
int td_onnx_dtype_number(td_dtype d);
td_dtype td_onnx_dtype_of(int64_t number);

/** The IR version that belongs to an opset. */
int td_onnx_ir_version(int opset);

/* --- files ------------------------------------------------------------------------------------ */

/**
 * Write atomically.  `check`, unless NULL, is called with the path of the complete new file before
 * it replaces `path`; if it fails, `path` is unchanged.
 *
 *   TD_ELIMIT  more than protobuf's 2 GiB
 *   TD_EIO     could not be written
 *   TD_ENOMEM  or the failure recorded while adding
 */
td_status td_onnx_write(const td_onnx *m, const char *path,
                        td_status (*check)(void *ctx, const char *written), void *ctx) TD_CHECKED;

/** Does the file begin like an ONNX model, with ir_version?  false if it cannot be read. */
bool td_onnx_is(const char *path);

/**
 * Read a whole file and check it (td_onnx_check); its external data are read, too.
 *
 *   TD_ENOTFOUND, TD_EIO
 *   TD_EFORMAT       malformed: the message gives the position or the node
 *   TD_ELIMIT        more than 2 GiB, or more than 1,000,000 nodes, tensors, names and numbers
 *   TD_EUNSUPPORTED  subgraphs, functions, other domains, opsets not 13 .. 21, ...
 *   TD_ENOMEM
 */
td_status td_onnx_read(const char *path, td_onnx **out) TD_CHECKED;

/**
 * The same from memory, borrowed until td_onnx_free; `what` names it in messages.  External data is
 * TD_EUNSUPPORTED.
 */
td_status td_onnx_parse(const void *bytes, size_t n_bytes, const char *what,
                        td_onnx **out) TD_CHECKED;

/**
 * Check that the model is a valid graph: every operand is an input, a tensor or the result of an
 * earlier node, so that there is no cycle; no name is used twice; every tensor's size matches its
 * type and shape; attributes of a node differ in name; outputs exist and have a type.
 */
td_status td_onnx_check(const td_onnx *m, const char *what) TD_CHECKED;

/** The node that has this result, or NULL. */
const td_onnx_node *td_onnx_producer(const td_onnx *m, const char *name);
const td_onnx_attr *td_onnx_attr_find(const td_onnx_node *n, const char *name); /* or NULL */
const char *td_onnx_meta_find(const td_onnx *m, const char *key);               /* or NULL */

#endif
