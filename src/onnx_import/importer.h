/*
 * onnx_import/importer.h -- what the functions of onnx_import.c, operands.c and the operators share
 */
#ifndef TD_ONNX_IMPORT_IMPORTER_H
#define TD_ONNX_IMPORT_IMPORTER_H

#include "ir/build.h"
#include "onnx_import/onnx_import.h"
#include "onnx_import/shape_values.h"
#include "ops/ops.h"

typedef struct {
    const td_onnx *m;
    const char *what;
    const td_onnx_import_opts *o;
    td_builder *b;
    td_map values;   /* name -> td_value */
    td_map tensors;  /* name -> td_tensor */
    td_map declared; /* name -> td_onnx_value */
    td_map wide;     /* name -> td_wide (wide_values.c) */
    td_onnx_folder folder;
    td_onnx_graph *out;
    const td_onnx_node *node;   /* the current node */
    uint8_t *batch_dims;        /* [m->n_nodes] of a model whose batch is not fixed, or NULL */
    const td_onnx_node *merged; /* an Add that became the bias of a product, or NULL */
    bool is_probe;              /* the import for TD_IMPORT_PROBE images, which fills batch_dims */
    bool is_classifier;         /* all its nodes are a part of the network */
    bool has_kinds;             /* the file says which of its tensors are parameters */
    bool *is_needed;            /* [m->n_nodes] for the output of a model that has several; NULL:
                                   all are */
} td_importer;

#define TD_IMPORT_PROBE 1009 /* a prime: dimensions that contain the batch are its multiples */

/* --- operands.c: operands and attributes of the current node; errors name file and node ------- */

td_status td_import_refuse(const td_importer *im, const char *what) TD_CHECKED;
td_status td_import_wrong(const td_importer *im, const char *what) TD_CHECKED;
td_status td_import_leaf_of(td_importer *im, const td_tensor *t, int operand,
                            td_value **out) TD_CHECKED;
/** A known tensor, f32 or i64, as a constant. */
td_status td_import_constant(td_importer *im, const td_tensor *t, td_value **out) TD_CHECKED;
/** Operand i as a value of the graph; a tensor becomes a parameter when it is first read. */
td_status td_import_value_at(td_importer *im, int i, td_value **out) TD_CHECKED;
/** All operands, `least` to `most` of them. */
td_status td_import_values_of(td_importer *im, int least, int most, td_value **out) TD_CHECKED;
/** The five operands of a BatchNormalization; of a model, parameters that no other node reads. */
td_status td_import_norm_operands(td_importer *im, td_value **out) TD_CHECKED;
/** Operand i, a constant of this type. */
td_status td_import_tensor_at(const td_importer *im, int i, td_dtype dtype, int rank,
                              const td_tensor **out) TD_CHECKED;
/** Operand i, a constant i64 [n], n <= room. */
td_status td_import_ints_at(const td_importer *im, int i, int room, int *n,
                            int64_t *out) TD_CHECKED;
td_status td_import_attr_int(const td_importer *im, const char *name, int64_t otherwise,
                             int64_t *out) TD_CHECKED;
/** An attribute that only has one supported value. */
td_status td_import_attr_must(const td_importer *im, const char *name, int64_t value) TD_CHECKED;
double td_import_attr_float(const td_importer *im, const char *name, double otherwise);
bool td_import_attr_is(const td_importer *im, const char *name, const char *text);
/* Windows over images: height and width.  td_import_window reads them, also by auto_pad;
   `kernel`: the filter's sides, or NULL: kernel_shape must be there.  is_signal: of the images,
   [N, C, 1, L], the file knows only the width. */
typedef struct {
    int64_t kernel[2], stride[2], dilation[2], begin[2], end[2];
} td_onnx_window;

td_status td_import_window(const td_importer *im, const td_type *x, bool is_signal,
                           const int64_t *kernel, td_onnx_window *out) TD_CHECKED;

/* The same for an op that treats height and width alike: *x is padded with `value` where their
   padding differs, and of the op's result the rows and columns at multiples of `step` count. */
typedef struct {
    int64_t stride, dilation, pad, pad_extra;
    int64_t step[2], count[2];
} td_onnx_square;

td_status td_import_square(td_importer *im, td_onnx_window *v, double value, td_value **x,
                           td_onnx_square *out) TD_CHECKED;
td_value *td_import_stepped(td_importer *im, td_value *y, const td_onnx_square *s);

/** x with elements before and after along an axis: td_pad_mode. */
td_value *td_import_padded(td_importer *im, td_value *x, int axis, int64_t before, int64_t after,
                           int mode, double value);

/** TD_EFORMAT: the file declares another type for value `name`. */
td_status td_import_check_declared(const td_importer *im, const char *name,
                                   const td_type *t) TD_CHECKED;
/** Value `v` is result i of the current node. */
td_status td_import_result(td_importer *im, int i, td_value *v) TD_CHECKED;

/* --- axis_operators.c ------------------------------------------------------------------------- */

/** Attribute or operand `axes`: *n of them, -1 if there is none; is_axis [TD_RANK_MAX]. */
td_status td_import_axes(const td_importer *im, int operand, int rank, int *n,
                         bool *is_axis) TD_CHECKED;
/** The indices `at` [n] along an axis; negative ones count from the end and are replaced. */
td_status td_import_gather_at(td_importer *im, td_value *x, int64_t axis, int n, int64_t *at,
                              td_value **y) TD_CHECKED;
/** The dimensions of a result that contain the batch, as bits: found for TD_IMPORT_PROBE images. */
unsigned td_import_batch_dims(td_importer *im, int rank, const int64_t *dim);
/** Is the node an Expand along the batch?  It is left to its readers, whatever is known of it. */
bool td_import_repeats_batch(const td_importer *im);
/** x with these dimensions, of which one may contain the batch. */
td_value *td_import_reshaped(td_importer *im, td_value *x, int rank, const int64_t *dim);

/* --- wide_values.c: more than TD_RANK_MAX dimensions, from a Reshape to a Reshape ------------- */

#define TD_WIDE_RANK_MAX 8

typedef struct td_wide td_wide;

/** Operand i, or NULL: it is no such value. */
const td_wide *td_import_wide_of(const td_importer *im, int i);
const td_wide *td_import_wide_at(const td_importer *im); /* operand 0 */
/** The result is x with these dimensions, more than TD_RANK_MAX. */
td_status td_import_widen(td_importer *im, td_value *x, int rank, const int64_t *dim) TD_CHECKED;
/** The result is w itself. */
td_status td_import_wide_same(td_importer *im, const td_wide *w) TD_CHECKED;
td_status td_import_wide_transpose(td_importer *im, const td_wide *w) TD_CHECKED;
/** w in memory, of one dimension or a few; its elements are reshaped further. */
td_status td_import_narrow(td_importer *im, const td_wide *w, td_value **y) TD_CHECKED;
/** The result is the product of two such operands, with the same dimensions before the last two. */
td_status td_import_wide_product(td_importer *im) TD_CHECKED;
/** w's elements as rows of its last dimension, [-1, columns]. */
td_status td_import_wide_rows(td_importer *im, const td_wide *w, td_value **y) TD_CHECKED;
/** The result is w with other rows, in the order of td_import_wide_rows. */
td_status td_import_wide_of_rows(td_importer *im, const td_wide *w, td_value *rows,
                                 int64_t columns) TD_CHECKED;
/** An operator of single elements or of rows of the last dimension, by its function for others. */
td_status td_import_wide_each(td_importer *im,
                              td_status (*get)(td_importer *im, td_value **y)) TD_CHECKED;
/** w without n dimensions of 1: joins im->wide, or *y if few are left. */
td_status td_import_wide_squeeze(td_importer *im, const td_wide *w, int n, int64_t *axes,
                                 td_value **y) TD_CHECKED;
/** Index `at` of an axis, in the same way. */
td_status td_import_wide_pick(td_importer *im, const td_wide *w, int64_t axis, int64_t at,
                              td_value **y) TD_CHECKED;
/** The results are parts of w of these sizes. */
td_status td_import_wide_split(td_importer *im, const td_wide *w, int64_t axis,
                               const int64_t *size) TD_CHECKED;
/** w with a part of an axis; NULL: TD_ENOMEM. */
const td_wide *td_import_wide_part(td_importer *im, const td_wide *w, int64_t axis, int64_t start,
                                   int64_t size, int64_t step);
int td_import_wide_rank(const td_wide *w);
int64_t td_import_wide_dim(const td_wide *w, int d); /* 0: there is none */
int64_t td_import_wide_count(const td_wide *w);
/** The result is the list of w's dimensions. */
td_status td_import_wide_shape(td_importer *im, const td_wide *w) TD_CHECKED;

/* --- the operators: the value of a node's last result ----------------------------- */

/** Is operand i of a model a parameter that is one number, like the gate of a residual branch? */
bool td_import_is_gate(const td_importer *im, int i);
/** Is operand i of a model one finite number? */
bool td_import_is_number(const td_importer *im, int i, double *out);
td_status td_import_scalar_at(const td_importer *im, int i, td_dtype d, double *out) TD_CHECKED;
td_status td_import_conv(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_conv_transpose(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_norm(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_pool(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_means(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_flatten(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_gemm(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_identity(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_dropout(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_binary(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_act(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_gelu(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_negative(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_clip(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_pow(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_extreme(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_prelu(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_concat(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_tile(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_slice(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_reshape(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_cast(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_transpose(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_resize(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_gather(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_gather_nd(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_quantize(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_dequantize(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_reduce(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_global_max(td_importer *im, td_value *x, td_value **y) TD_CHECKED;
td_status td_import_global_max_pool(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_softmax_axis(const td_importer *im, int rank, int64_t *axis) TD_CHECKED;
td_status td_import_log_softmax(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_pad(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_group_norm(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_sum(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_selu(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_celu(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_softsign(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_softmax(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_matmul(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_einsum(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_layer_norm(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_split(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_squeeze(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_unsqueeze(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_expand(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_compare(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_sign(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_logic(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_is_nan(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_cast_like(td_importer *im, td_value **y) TD_CHECKED;
/** x, a tensor of the graph, as 1 where it is not 0, and otherwise 0. */
td_status td_import_cast_to_bool(td_importer *im, td_value *x, td_value **y) TD_CHECKED;
td_status td_import_where(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_triangle(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_sequence(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_sequence_at(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_depth_to_space(td_importer *im, td_value **y) TD_CHECKED;
td_status td_import_space_to_depth(td_importer *im, td_value **y) TD_CHECKED;

#endif
