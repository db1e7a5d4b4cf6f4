/*
 * onnx_import/known_tensor.h -- tensors whose elements are known while a graph is made
 *
 * They are i64 (booleans, too: 0 or 1) or f32.  Operands may be u8, as a file stores booleans.
 */
#ifndef TD_ONNX_IMPORT_KNOWN_TENSOR_H
#define TD_ONNX_IMPORT_KNOWN_TENSOR_H

#include "onnx_import/shape_values.h"

#define TD_KNOWN_RANK_MAX TD_TENSOR_RANK_MAX

typedef struct {
    td_dtype dtype;
    int rank;
    int64_t dim[TD_KNOWN_RANK_MAX];
    int64_t count;
    size_t each;       /* bytes of an element */
    const char *bytes; /* elements need not be aligned */
} td_known;

/**
 * Operand i, if it is known: integers of any kind; floats only if an operator has computed them, or
 * few that a Constant holds.  A parameter is not: training changes it.
 */
bool td_known_get(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out);

/** The same, or one float of an initializer: beside a known operand that is no parameter. */
bool td_known_beside(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out);

/** The same, or any floats of an initializer. */
bool td_known_any(const td_onnx_folder *f, const td_onnx_node *n, int i, td_known *out);

/** The same, i64 of one dimension and at most TD_KNOWN_RANK_MAX elements. */
bool td_known_list(const td_onnx_folder *f, const td_onnx_node *n, int i, int *count, int64_t *out);

int64_t td_known_int(const td_known *x, int64_t i);
float td_known_float(const td_known *x, int64_t i);

/** The dimensions of two tensors that are repeated along each other's; false: they do not fit. */
bool td_known_common(const td_known *x, const td_known *y, int *rank, int64_t *dim);

/** The element of x that is at position i of a tensor with these dimensions. */
int64_t td_known_repeated(const td_known *x, int rank, const int64_t *dim, int64_t i);

/**
 * A tensor for the result: *data is its memory, or NULL if it is empty or too large; then the node
 * is not computed.
 */
td_status td_known_new(td_onnx_folder *f, const td_onnx_node *n, td_dtype dtype, int rank,
                       const int64_t *dim, td_tensor *t, void **data) TD_CHECKED;

/** Computes one node: *done remains false if it does not apply. */
typedef td_status td_known_fold(td_onnx_folder *f, const td_onnx_node *n, bool *done);

/* --- known_moves.c: operators that move elements --------------------------------------------- */

td_known_fold td_known_expand, td_known_transpose, td_known_slice, td_known_gather, td_known_concat,
    td_known_where, td_known_scatter, td_known_fill, td_known_tile, td_known_triangle;

#endif
