/*
 * onnx_import/index_values.h -- computes tensors of any rank: the indices of a Gather, the mask of
 * an attention
 */
#ifndef TD_ONNX_IMPORT_INDEX_VALUES_H
#define TD_ONNX_IMPORT_INDEX_VALUES_H

#include "onnx_import/shape_values.h"

/**
 * Compute node `n` if its operands are known (known_tensor.h) and it is one of the operators of
 * index_values.c: its result joins the tensors and *done is true.  At most TD_ONNX_KNOWN_MAX
 * elements for one model.  Errors as of td_onnx_fold.
 */
td_status td_onnx_fold_tensors(td_onnx_folder *f, const td_onnx_node *n, bool *done) TD_CHECKED;

#endif
