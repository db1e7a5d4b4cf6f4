/*
 * onnx/prepost.h -- an ONNX model's nodes before and after its network
 *
 * These do not become part of a graph.  The nodes before convert bytes to normalised floats
 * (td_onnx_prepare), the nodes after convert a detector's heads to boxes (td_onnx_finish).
 */
#ifndef TD_ONNX_PREPOST_H
#define TD_ONNX_PREPOST_H

#include "ir/type.h"
#include "onnx/onnx.h"

/** Can `n` precede a network with input *t so far?  *t becomes the type of its result. */
bool td_onnx_is_preparation(const td_onnx *m, const td_onnx_node *n, td_type *t);

/**
 * Call `use` for each value that the nodes from `first` on read and do not make themselves; i
 * counts them.  A failure of `use` ends it.
 */
td_status td_onnx_each_behind(const td_onnx *m, size_t first,
                              td_status (*use)(void *ctx, int i, const char *name),
                              void *ctx) TD_CHECKED;

/** What value i of these is called as an output of the graph. */
void td_onnx_behind_name(int i, char out[24]);

#endif
