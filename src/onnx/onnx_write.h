/*
 * onnx/onnx_write.h -- the state of writing a graph into an ONNX model
 *
 * Errors stay in model->st: after the first one every function does nothing of use and returns a
 * name all the same, so that an op is written without a look at each step.
 */
#ifndef TD_ONNX_ONNX_WRITE_H
#define TD_ONNX_ONNX_WRITE_H

#include "ir/graph.h"
#include "onnx/onnx_export.h"

typedef struct {
    td_onnx *m;
    const td_graph *g, *other;
    td_program *p;
    const td_onnx_opts *o;
    const char **name;     /* [g->n_values] in the model; NULL: not added yet */
    int8_t *rank;          /* [g->n_values] of added tensors */
    bool *wanted;          /* [g->n_nodes] */
    const td_value **bias; /* [g->n_values] of a conv2d: what is added to it and to nothing else */
    td_map used;           /* names */
} td_onnx_writer;

/** `st` is the model's error from now on, unless it has one. */
void td_writer_stop(td_onnx_writer *e, td_status st);
bool td_writer_is_ok(const td_onnx_writer *e);

/** "a" "b" as a name that nothing has yet, in the model's arena. */
const char *td_writer_name(td_onnx_writer *e, const char *a, const char *b);

/** The type of `v`; a dimension that goes with the batch is called so where the batch is open. */
td_onnx_value td_writer_shape(const td_onnx_writer *e, const td_value *v);

/** Append a node for `n`; its result's name.  Attributes go to the node added last. */
const char *td_writer_add(td_onnx_writer *e, const char *op, const td_node *n,
                          const td_onnx_value *type, int n_in, const char *const *in);

/* the same with the operands' names in the line, and integers as an attribute */
#define TD_WRITER_ADD(e, op, n, type, ...)                                                         \
    td_writer_add(e, op, n, type,                                                                  \
                  (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *)),      \
                  (const char *const[]){ __VA_ARGS__ })
#define TD_WRITER_INTS(e, name, ...)                                                               \
    td_onnx_attr_ints((e)->m, name, (int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)),     \
                      (const int64_t[]){ __VA_ARGS__ })

/* Tensors that belong to a node: a copy of `data`, integers, one number.  Return their names. */
const char *td_writer_constant(td_onnx_writer *e, const td_node *n, const char *what,
                               td_dtype dtype, int rank, const int64_t *dim, const void *data,
                               size_t n_bytes);
const char *td_writer_ints(td_onnx_writer *e, const td_node *n, const char *what, int count,
                           const int64_t *values);
const char *td_writer_scalar(td_onnx_writer *e, const td_node *n, const char *what, td_dtype d,
                             double x);

/** What a value is called; a parameter becomes a tensor when it is first read. */
const char *td_writer_value(td_onnx_writer *e, const td_value *v);

/** The same of n->in[i]. */
const char *td_writer_operand(td_onnx_writer *e, const td_node *n, int i);

/** The same again, as a tensor of `rank` 2 or 4 dimensions, [A, B] or [A, B, 1, 1]. */
const char *td_writer_weight(td_onnx_writer *e, const td_node *n, int i, int rank);

/** n->out[0] is called `name`. */
void td_writer_result(td_onnx_writer *e, const td_node *n, const char *name);

/** Write one node; TD_EUNSUPPORTED where ONNX has nothing like it. */
void td_writer_put(td_onnx_writer *e, const td_node *n);

#endif
