/*
 * ir/match.h -- the users of each value, for rules that match neighbours
 */
#ifndef TD_IR_MATCH_H
#define TD_IR_MATCH_H

#include "ir/op.h"

typedef struct {
    const td_node **users; /* grouped by value */
    int *first;            /* [n_values + 1] start of each value's users */
} td_uses;

/** Find the users of every value.  Always call td_uses_release. */
td_status td_uses_init(td_uses *u, const td_graph *g) TD_CHECKED;
void td_uses_release(td_uses *u);

/** The nodes that have `v` as an operand, in order, once per operand. */
const td_node *const *td_uses_of(const td_uses *u, const td_value *v, int *n);

/**
 * Does a node after node `from` and before node `to` overwrite a parameter that `reader` reads?
 * Then `reader` cannot be moved between them.
 */
bool td_overwritten_between(const td_graph *g, int from, int to, const td_node *reader);

/** The only node that uses `v`; NULL when there are several or `v` is a graph output. */
const td_node *td_uses_only(const td_uses *u, const td_value *v);

/** The producer of `v` if its op is `op` and only one node uses `v`; otherwise NULL. */
const td_node *td_uses_producer(const td_uses *u, const td_value *v, const td_op *op);

#endif
