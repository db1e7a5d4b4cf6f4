/*
 * ir/match.h -- who uses a value, for rules that look at neighbours
 */
#ifndef TD_IR_MATCH_H
#define TD_IR_MATCH_H

#include "ir/op.h"

typedef struct {
    const td_node **users; /* grouped by value */
    int *first;            /* [n_values + 1] where a value's users begin */
} td_uses;

/** Work out the users of every value.  td_uses_release always. */
td_status td_uses_init(td_uses *u, const td_graph *g) TD_CHECKED;
void td_uses_release(td_uses *u);

/** The nodes that have `v` as an operand, in order, once per operand. */
const td_node *const *td_uses_of(const td_uses *u, const td_value *v, int *n);

/**
 * Does a node after node `from` and before node `to` overwrite a parameter that `reader` reads?
 * Then `reader` cannot be moved from the one place to the other.
 */
bool td_overwritten_between(const td_graph *g, int from, int to, const td_node *reader);

/** The one node that uses `v`; NULL when there are several or the graph gives it out. */
const td_node *td_uses_only(const td_uses *u, const td_value *v);

#endif
