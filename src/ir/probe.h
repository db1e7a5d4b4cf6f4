/*
 * ir/probe.h -- a hypothetical node, to query a target about types that the graph does not have
 *
 *     td_probe p;
 *     td_probe_init(&p, node);
 *     p.value[0].type.dtype = TD_DT_F32;              operands first, then results
 *     target->supports(target->ctx, &p.node);
 *
 * A probe has pointers to itself: do not copy it.  It borrows the node's names, producers and
 * attributes.
 */
#ifndef TD_IR_PROBE_H
#define TD_IR_PROBE_H

#include "ir/op.h"
#include "ir/target.h"

typedef struct {
    td_node node;
    td_value value[TD_IN_MAX + TD_OUT_MAX];
    td_value *pointer[TD_IN_MAX + TD_OUT_MAX];
} td_probe;

/** Make a copy of `n` whose operands and results belong to the probe. */
void td_probe_init(td_probe *p, const td_node *n);

/** Like td_probe_init, with `n_in` other operands. */
void td_probe_init_with(td_probe *p, const td_node *n, int n_in, td_value *const *in);

/** Give operands and results the layouts `l`; shape-only operands keep theirs. */
void td_probe_set_layouts(td_probe *p, const td_node_layouts *l);

/** Has the target a kernel for this node, plain or in the layouts that it prefers?  Sets these in
    the second case.  `target` may be NULL, which supports everything. */
bool td_probe_has_kernel(td_probe *p, const td_target *target);

/** The same in the layouts that the target prefers, or, of the reference device, plain: a kernel
    that every device has does not count.  False if `target` is NULL. */
bool td_probe_has_fast_kernel(td_probe *p, const td_target *target);

#endif
