/*
 * ir/rewrite.h -- reads one graph while emitting another
 *
 * A pass visits the old graph's nodes in order and emits nodes into a new builder.  `map` maps each
 * old value to its new value.  Like the builder, a rewriter records the first failure, so that a
 * pass need not check for errors.
 */
#ifndef TD_IR_REWRITE_H
#define TD_IR_REWRITE_H

#include "ir/build.h"
#include "ir/target.h"

typedef struct {
    const td_graph *old;
    td_builder *b;
    td_value **map; /* [old->n_values] old value's id -> new value, or NULL if not yet mapped */
    const td_target *target;
    const struct td_amp_opts *amp; /* mixed precision, NULL: none */
    void *state;                   /* owned by the pass */
    int n_changed;                 /* for the log: how often the pass's rule was applied */
} td_rewriter;

/** The new value of an old value. */
td_value *td_rw_get(const td_rewriter *rw, const td_value *old);

/** Map `old` to `new` from now on; keeps the old name unless it is a number. */
void td_rw_set(td_rewriter *rw, const td_value *old, td_value *new);

/** Copy a node with its mapped operands; layouts of results are kept. */
void td_rw_copy(td_rewriter *rw, const td_node *n);

/** Copy every node as it is. */
void td_rw_copy_all(td_rewriter *rw);

/** Copy a node with other operands. */
void td_rw_copy_with(td_rewriter *rw, const td_node *n, td_value *const *in);

/** Store the new operands of an old node in `in` (room for TD_IN_MAX). */
void td_rw_operands(const td_rewriter *rw, const td_node *n, td_value **in);

#endif
