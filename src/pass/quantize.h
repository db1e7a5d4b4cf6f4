/*
 * pass/quantize.h -- what pass `quantize` and the calibration (quantize/) know about a graph
 */
#ifndef TD_PASS_QUANTIZE_H
#define TD_PASS_QUANTIZE_H

#include "ir/graph.h"

/** The parameter from which the weight of a convolution or linear layer is computed; NULL: none. */
const td_value *td_quantize_filter(const td_node *conv);

/** Set is_unsigned[v] for each value of `g` of which no element can be negative. */
void td_quantize_signs(const td_graph *g, bool *is_unsigned);

/**
 * Has the convolution or linear layer the form that the pass can replace: fused, with a bias, in
 * float32?
 */
bool td_quantize_fits(const td_node *conv);

#endif
