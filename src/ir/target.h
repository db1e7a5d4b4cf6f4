/*
 * ir/target.h -- what passes can query about a device, independent of the backend
 */
#ifndef TD_IR_TARGET_H
#define TD_IR_TARGET_H

#include "ir/graph.h"

/* Layouts that a node prefers; "" is plain. */
typedef struct {
    char in[4][TD_LAYOUT_BYTES];
    char out[TD_LAYOUT_BYTES];
} td_node_layouts;

typedef struct {
    void *ctx;

    /* Is there a kernel for exactly this node (types, layouts, attributes)? */
    bool (*supports)(void *ctx, const td_node *n);

    /* The layouts that the fastest kernel for this CHOOSES node prefers.  Layouts that its operands
       already have are kept if a good kernel supports them.  False: no preference, use plain. */
    bool (*preferred_layout)(void *ctx, const td_node *n, td_node_layouts *out);

    bool has_tf32; /* it multiplies TF32 faster than float32 */
} td_target;

#endif
