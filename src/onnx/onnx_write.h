/*
 * onnx/onnx_write.h -- the state of writing a graph into an ONNX model
 *
 * Errors are recorded in model->st: after the first one every function still returns a valid name,
 * so that the conversion of an op need not check each step.
 */
#ifndef TD_ONNX_ONNX_WRITE_H
#define TD_ONNX_ONNX_WRITE_H

#include "ir/graph.h"
#include "onnx/onnx_export.h"

typedef struct {
    td_onnx *m;
    const td_graph *g, *other, *larger; /* the last two: onnx_open_dims.c; NULL: not compared */
    td_program *p;
    const td_onnx_opts *o;
    const char **name;      /* [g->n_values] name in the model; NULL: not added yet */
    int8_t *rank;           /* [g->n_values] ranks of added tensors */
    bool *wanted;           /* [g->n_nodes] */
    const td_value **bias;  /* [g->n_values] the bias merged into a conv2d, by its result */
    td_map used;            /* names in use */
    const td_map *integers; /* parameters to store as td_onnx_integers, by name; NULL: none */
} td_onnx_writer;

/** Record the error `st` in the model, unless it already has one. */
void td_writer_stop(td_onnx_writer *e, td_status st);
bool td_writer_is_ok(const td_onnx_writer *e);

/** The concatenation of a and b, made unique, as a name in the model's arena. */
const char *td_writer_name(td_onnx_writer *e, const char *a, const char *b);

/** The type of `v`; open dimensions (onnx_open_dims.c) have no number, and those that are the batch
    are "N". */
td_onnx_value td_writer_shape(const td_onnx_writer *e, const td_value *v);

/** Append a node for `n` and return its result's name.  Then add its attributes: they apply to the
    last node. */
const char *td_writer_add(td_onnx_writer *e, const char *op, const td_node *n,
                          const td_onnx_value *type, int n_in, const char *const *in);

/* the same with the operands' names as arguments, and integers as an attribute */
#define TD_WRITER_ADD(e, op, n, type, ...)                                                         \
    td_writer_add(e, op, n, type,                                                                  \
                  (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *)),      \
                  (const char *const[]){ __VA_ARGS__ })
#define TD_WRITER_INTS(e, name, ...)                                                               \
    td_onnx_attr_ints((e)->m, name, (int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)),     \
                      (const int64_t[]){ __VA_ARGS__ })

/* Add tensors that belong to a node: a copy of `data`, integers, one number.  They return names. */
const char *td_writer_constant(td_onnx_writer *e, const td_node *n, const char *what,
                               td_dtype dtype, int rank, const int64_t *dim, const void *data,
                               size_t n_bytes);
const char *td_writer_ints(td_onnx_writer *e, const td_node *n, const char *what, int count,
                           const int64_t *values);
const char *td_writer_scalar(td_onnx_writer *e, const td_node *n, const char *what, td_dtype d,
                             double x);

/** The name of a value; a parameter becomes a tensor when it is first read. */
const char *td_writer_value(td_onnx_writer *e, const td_value *v);

/** The same for n->in[i]. */
const char *td_writer_operand(td_onnx_writer *e, const td_node *n, int i);

/** The same for a weight, as a tensor of rank 2 or 4, [A, B] or [A, B, 1, 1]. */
const char *td_writer_weight(td_onnx_writer *e, const td_node *n, int i, int rank);

/** Set the name of n->out[0]. */
void td_writer_result(td_onnx_writer *e, const td_node *n, const char *name);

/** One node with the same operands and no attributes. */
void td_writer_same(td_onnx_writer *e, const td_node *n, const char *op);

/* onnx_open_dims.c: does dimension d of v depend on the batch, or on the size of the images? */
bool td_writer_is_open(const td_onnx_writer *e, const td_value *v, int d);

/** Are two dimensions the same number, whatever the batch and the size? */
bool td_writer_same_dim(const td_onnx_writer *e, const td_value *a, int i, const td_value *b,
                        int k);

/** The name of v's shape, i64 [rank], for node n; open dimensions are computed in the model. */
const char *td_writer_shape_of(td_onnx_writer *e, const td_node *n, const td_value *v);

/* onnx_axis_ops.c: rows of td_writer_put */
void td_writer_slice(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_gather(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_transpose(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_expand(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_matmul(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_layer_norm(td_onnx_writer *e, const td_node *n, const char *op);

/* onnx_image_ops.c: the same */
void td_writer_conv_transpose(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_interpolate(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_pad(td_onnx_writer *e, const td_node *n, const char *op);
void td_writer_group_norm(td_onnx_writer *e, const td_node *n, const char *op);

/** Append the activation `op` of the value x, which has the type of n's result; NULL: `op` is none
    of onnx_acts.c. */
const char *td_writer_act(td_onnx_writer *e, const td_node *n, const td_op *op, const char *x);

/** The same for a value of another type, a part of the composite n; the op's default attributes. */
const char *td_writer_act_of(td_onnx_writer *e, const td_node *n, const td_op *op,
                             const td_onnx_value *type, const char *x);

/** Is it an activation that td_writer_act converts? */
bool td_writer_is_act(const td_op *op);

/** Convert one node; TD_EUNSUPPORTED if ONNX has no counterpart. */
void td_writer_put(td_onnx_writer *e, const td_node *n);

#endif
