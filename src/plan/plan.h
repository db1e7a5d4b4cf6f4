/*
 * plan/plan.h -- the memory plan: a byte offset in one slab for each value
 *
 *     time ->      node 0   1   2   3   4
 *     buffer A     [========]                     two buffers may share bytes
 *     buffer B          [=======]                 when their spans do not touch
 *     buffer C                  [=======]   at A's offset
 *
 * A buffer holds one value, or several: a reshape and its operand, or a result that reuses its
 * operand's memory (in place).
 */
#ifndef TD_PLAN_PLAN_H
#define TD_PLAN_PLAN_H

#include "ir/op.h"

typedef struct {
    int buffer; /* index into td_plan.buffers; -1: the caller's memory (inputs) */
} td_slot;

typedef struct {
    int64_t bytes, offset;
    int first, last;    /* its lifetime, in node ids, inclusive */
    bool is_persistent; /* parameters, and setup results that every run reads */
    bool is_setup;      /* alive only during the setup: shares memory with buffers of later nodes */
    int node;           /* the node whose scratch it is, or -1 */
} td_buffer;

typedef struct {
    td_slot *slots; /* [graph values] */
    td_buffer *buffers;
    int n_buffers;
    int *scratch;             /* [nodes] buffer of a node's scratch, or -1 */
    int64_t persistent_bytes; /* persistent buffers come first in the slab */
    int64_t transient_bytes;  /* everything else */
    int64_t unplanned_bytes;  /* transient bytes without sharing of memory */
    int64_t peak_live_bytes;  /* peak of live transient bytes */
    int64_t largest_scratch_bytes;
} td_plan;

/**
 * Find the nodes to run once after parameters were set: those whose operands are parameters that no
 * node writes, or results of such nodes.  is_setup has g->n_nodes elements.  Returns false if the
 * graph writes a parameter.
 */
bool td_plan_mark_setup(const td_graph *g, bool *is_setup);

/**
 * Find the nodes whose results depend on parameters only, the parameters included; none if the
 * graph writes a parameter.  Free *is_fixed [n_nodes].
 */
td_status td_plan_fixed_new(const td_graph *g, bool **is_fixed) TD_CHECKED;

/**
 * Place every value.  is_setup[i]: node i runs once after parameters change, before the others;
 * results that others read are persistent.  calls[i]: the first of the consecutive nodes that run
 * as one call with node i, so that what any of them reads is needed until all have run; NULL: each
 * node runs by itself.  scratch_bytes[i]: scratch size of node i's kernel.  Always call
 * td_plan_release.
 */
td_status td_plan_make(td_plan *p, const td_graph *g, const bool *is_setup, const int *calls,
                       const size_t *scratch_bytes) TD_CHECKED;
void td_plan_release(td_plan *p);

/**
 * Check a plan independently, from the graph alone: every buffer is inside the slab; no two values
 * that are alive at the same time share a byte, unless one is a reshape of the other or replaced it
 * at its last use (in place); no scratch overlaps live values.  TD_EARG names the violation.
 */
td_status td_plan_check(const td_plan *p, const td_graph *g, const bool *is_setup,
                        const int *calls) TD_CHECKED;

#endif
