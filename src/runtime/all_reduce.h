/*
 * runtime/all_reduce.h -- runs a program's collective nodes (ops/collective.c)
 */
#ifndef TD_RUNTIME_ALL_REDUCE_H
#define TD_RUNTIME_ALL_REDUCE_H

#include "comm/reduction.h"
#include "ir/graph.h"
#include "runtime/kernel.h"
#include "tandem/program.h"

/** The kernel of a collective node; NULL if the node is not collective. */
const td_kernel *td_collective_select(const td_node *n);

/**
 * Is a sum required in this run of a collective node?  Operand i, if there is one, is `update`.
 * It is read where the program's input is bound, or copied from the memory of the device.
 */
TD_CHECKED td_status td_collective_is_wanted(const td_prepared *p, int i, void *const *args,
                                             bool *out);

/**
 * Make the buckets for all collective nodes of a graph, to be summed over the ranks of `c` (NULL:
 * one rank); *out is NULL if there are none.  Every rank must call it with the same graph.
 */
TD_CHECKED td_status td_collective_open(const td_graph *g, td_comm *c, td_reduction **out);

/**
 * Bytes of memory, shared or private, that a rank will use for them: its operands, the sums, and
 * the slices received from the others.  `g` may be before or after pass buckets.  0 for one rank.
 */
int64_t td_collective_bytes(const td_graph *g, const td_comm *c);

#endif
