/*
 * onnx/onnx_eval.h -- evaluates nodes of an ONNX model with plain loops, following ONNX's
 * definitions
 *
 * For the nodes after a network: box decoding, suppression, sorting.  Not optimised, independent of
 * the exporter, and limited to arrays of f32 and i64.
 *
 *     td_onnx_eval *e;
 *     TD_TRY(td_onnx_eval_new(m, "the file", batch, &e));
 *     TD_OUT(td_onnx_eval_set(e, "codes", &array));           a value of the model; copied
 *     TD_OUT(td_onnx_eval_run(e, first));                      nodes from `first` on
 *     td_onnx_eval_get(e, "boxes")                             valid until td_onnx_eval_free
 */
#ifndef TD_ONNX_ONNX_EVAL_H
#define TD_ONNX_ONNX_EVAL_H

#include "onnx_file/onnx.h"

typedef struct {
    td_dtype dtype; /* f32 or i64 */
    int rank;
    int64_t dim[TD_ONNX_RANK_MAX];
    union {
        float *f;
        int64_t *i;
        void *data;
    };
} td_onnx_array;

typedef struct td_onnx_eval td_onnx_eval;

/** Start an evaluation.  `m` and `what`, its name in messages, are borrowed.  `batch` is the value
    of "N". */
td_status td_onnx_eval_new(const td_onnx *m, const char *what, int batch,
                           td_onnx_eval **out) TD_CHECKED;
void td_onnx_eval_free(td_onnx_eval *e);

td_status td_onnx_eval_set(td_onnx_eval *e, const char *name, const td_onnx_array *a) TD_CHECKED;

/**
 * Evaluate every node from `first` on, in order.  Each result's type is compared with the declared
 * one.
 *
 *   TD_EFORMAT       operands that do not match, indices outside an array, another type
 *   TD_EUNSUPPORTED  an operator or an attribute that is not supported here
 *   TD_ELIMIT        an array of more than 2^31 elements
 *   TD_ENOMEM
 */
td_status td_onnx_eval_run(td_onnx_eval *e, size_t first) TD_CHECKED;

/** NULL: unknown name. */
const td_onnx_array *td_onnx_eval_get(const td_onnx_eval *e, const char *name);

/** Is a node with this operator and these attributes supported? */
bool td_onnx_eval_knows(const td_onnx_node *n);

#endif
