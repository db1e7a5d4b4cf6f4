/*
 * ir/target.h -- what passes can query about a device, independent of the backend
 */
#ifndef TD_IR_TARGET_H
#define TD_IR_TARGET_H

#include "ir/graph.h"

#define TD_NODE_LAYOUTS 7 /* operands of the ops that choose layouts, at most */

/* Layouts that a node prefers; "" is plain. */
typedef struct {
    char in[TD_NODE_LAYOUTS][TD_LAYOUT_BYTES];
    char out[TD_LAYOUT_BYTES];
} td_node_layouts;

typedef struct {
    void *ctx;

    /* Is there a kernel for exactly this node (types, layouts, attributes)? */
    bool (*supports)(void *ctx, const td_node *n);

    /* The layouts that the fastest kernel for this CHOOSES node prefers.  Layouts that its operands
       already have are kept if a good kernel supports them.  False: no preference, use plain. */
    bool (*preferred_layout)(void *ctx, const td_node *n, td_node_layouts *out);

    /* What nodes that may run as one call have in common; NULL: this one runs by itself.  *chained:
       an operand that may be the result of the node before it in the call, or -1.  The function is
       NULL if all nodes run by themselves. */
    const void *(*multi)(void *ctx, const td_node *n, int *chained);

    int bf16_rate;      /* products of bfloat16 in the time of one of float32 */
    int smallest_batch; /* programs of fewer images will share this one's filters; 0: none will */
    bool direct_only;   /* it may not compute convolutions by Winograd's algorithm */
    bool has_tf32;      /* it multiplies TF32 faster than float32 */
    bool is_reference;  /* it computes every op by its definition, whatever the time */
    bool fuses_gates;   /* pass gates: it has kernels for gated_add and means of half images */
    bool fuses_norms;   /* pass norms: convolutions compute the sums for batch norms */
} td_target;

#endif
