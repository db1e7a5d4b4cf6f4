/*
 * onnx_import/shape_values.h -- computes the constants and shapes of an ONNX model
 *
 * An exporter writes `x.view(x.size(0), -1)` as Shape, Gather, Unsqueeze, Concat and Reshape.  All
 * types are known while a graph is made, so these lists of integers are, too.
 *
 * PyTorch's exporter writes parameters of equal numbers once, and an Identity for each of the
 * others, whose result has the parameter's name: each is a tensor of its own.
 */
#ifndef TD_ONNX_IMPORT_SHAPE_VALUES_H
#define TD_ONNX_IMPORT_SHAPE_VALUES_H

#include "ir/type.h"
#include "onnx_file/onnx.h"

#define TD_ONNX_FOLD_MAX  64                 /* integers in a list */
#define TD_ONNX_KNOWN_MAX ((int64_t)1 << 25) /* elements of all tensors of a model (256 MiB) */

typedef struct {
    td_arena arena;  /* owns the tensors that are computed */
    td_map *tensors; /* name -> td_tensor: initialisers, and the results */
    td_map fixed;    /* name -> td_tensor: those that are not initialisers */
    td_map computed; /* name -> td_tensor: those of fixed that are no Constants */
    int64_t n_known; /* elements of tensors of td_onnx_fold_tensors */
    int64_t n_read;  /* elements that td_onnx_folder_read has counted */
} td_onnx_folder;

/**
 * Compute node `n` if it is a Constant, an Identity of a tensor, a Shape, an operation on known
 * integers (i64, at most one dimension, TD_ONNX_FOLD_MAX numbers; index_values.h for others), or
 * one on float32 numbers that are computed from such: its result joins the tensors and *done is
 * true.  `x`: the type of operand 0 if that is a value of the graph; NULL: it is not.
 *
 *   TD_EFORMAT  operands or attributes that ONNX does not allow; the message lacks file and node
 *   TD_ENOMEM
 */
td_status td_onnx_fold(td_onnx_folder *f, const td_onnx_node *n, const td_type *x,
                       bool *done) TD_CHECKED;

/** Add the result of a node, whose data live as long as the folder. */
td_status td_onnx_folder_add(td_onnx_folder *f, const td_onnx_node *n,
                             const td_tensor *t) TD_CHECKED;

/** A Constant that is no parameter, whatever its size. */
td_status td_onnx_folder_fix(td_onnx_folder *f, const char *name) TD_CHECKED;

/**
 * Count elements that are read without becoming as many new ones: many nodes may read one large
 * tensor.  False: there would be more than TD_ONNX_KNOWN_MAX of a model.
 */
bool td_onnx_folder_read(td_onnx_folder *f, int64_t count);

/** Is it the result of an operator other than Constant?  Then no training changes it. */
bool td_onnx_is_computed(const td_onnx_folder *f, const char *name);

/**
 * The result of Add, Sub, Mul, Div, Mod, Max or Min, or 0 or 1 of a comparison, And or Or; false:
 * it overflows, or b is 0.
 */
bool td_onnx_compute(const char *op, int64_t a, int64_t b, int64_t *out);

/** Free the results; `tensors` is the caller's. */
void td_onnx_folder_release(td_onnx_folder *f);

#endif
