/*
 * ops/problem_line.h -- an op and its shapes as a line of text, for tests and benchmarks
 *
 *     conv2d x=8x64x56x56 w=64x4x3x3 stride=2 groups=16 dtype=f32
 *
 * The op's name, its operands in order as NAME=SHAPE ("-" for no dimensions), attributes as
 * NAME=VALUE, and dtype= (f32 when absent).  labels are i64, mask is u8, whatever the dtype.
 */
#ifndef TD_OPS_PROBLEM_LINE_H
#define TD_OPS_PROBLEM_LINE_H

#include "ir/op.h"

/**
 * Build the line's graph: its operands are inputs (parameters if the op overwrites them), output
 * "y" is the first result, and outputs "d0", "d1", ... are the gradients for input "dy" if the op
 * has any.  `dtype`, unless 0, replaces the line's dtype.  *op (unless NULL) receives the line's
 * op.  TD_EUSAGE: invalid line; TD_ESHAPE.
 */
td_status td_problem_graph(const char *line, td_dtype dtype, td_graph **out,
                           const td_op **op) TD_CHECKED;

#endif
