/*
 * ir/target.h -- how passes ask about a device without knowing any backend
 */
#ifndef TD_IR_TARGET_H
#define TD_IR_TARGET_H

#include "ir/graph.h"

/* Layouts a node wants; "" is plain. */
typedef struct {
    char in[4][TD_LAYOUT_BYTES];
    char out[TD_LAYOUT_BYTES];
} td_node_layouts;

typedef struct {
    void *ctx;

    /* Has some kernel for this node exactly as it stands (types, layouts, attributes)? */
    bool (*supports)(void *ctx, const td_node *n);

    /* Which layouts does the fastest kernel for this CHOOSES node want?  Layouts that its operands
       have already are kept where a good kernel takes them.  false: no opinion, plain. */
    bool (*preferred_layout)(void *ctx, const td_node *n, td_node_layouts *out);
} td_target;

#endif
