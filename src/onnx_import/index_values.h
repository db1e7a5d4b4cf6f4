/*
 * onnx_import/index_values.h -- computes tensors of integers of any rank: the indices of a Gather
 */
#ifndef TD_ONNX_IMPORT_INDEX_VALUES_H
#define TD_ONNX_IMPORT_INDEX_VALUES_H

#include "onnx_import/shape_values.h"

/**
 * Compute node `n` if it is a Range, or an Add, Sub, Mul, Div, Mod, Equal, Unsqueeze, Squeeze,
 * Reshape or Expand of known i64 tensors: its result joins the tensors and *done is true.  At most
 * TD_ONNX_INDICES_MAX integers for one model.  Errors as of td_onnx_fold.
 */
td_status td_onnx_fold_indices(td_onnx_folder *f, const td_onnx_node *n, bool *done) TD_CHECKED;

#endif
