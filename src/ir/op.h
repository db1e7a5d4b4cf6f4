/*
 * ir/op.h -- the definition of an op: properties and hooks, one constant struct per op
 *
 * Everything the passes, the verifier, the planner and the text form know about an op is here.  The
 * structs are at the bottom of ir/leaf.c and of the files in ops/; ops/ops.def lists all of
 * them.
 */
#ifndef TD_IR_OP_H
#define TD_IR_OP_H

#include "ir/graph.h"
#include "ir/type.h"
#include "options/field.h"

#define TD_IN_MAX  16 /* limit for all ops; only concat needs so many */
#define TD_OUT_MAX 4

/* Precision classes of TensorFlow's auto_mixed_precision, used by the amp pass.  Which class an op
   has depends on the rule, the half type and the user's edits: amp/amp_lists.h. */
typedef enum {
    TD_AMP_NONE,  /* in no list: never changed, stops the propagation */
    TD_AMP_ALLOW, /* fast and safe in half */
    TD_AMP_INFER, /* safe in half if its neighbours are half */
    TD_AMP_DENY,  /* must stay float32 */
    TD_AMP_CLEAR  /* moves data without arithmetic */
} td_amp;

/* How an op handles memory layouts. */
typedef enum {
    TD_LAYOUT_PLAIN,   /* every operand and result in plain C order */
    TD_LAYOUT_FOLLOWS, /* all tensors of the first operand's rank share its layout */
    TD_LAYOUT_CHOOSES  /* the target chooses the layouts */
} td_layout_role;

struct td_op {
    const char *name;
    const char *summary; /* "grouped, strided, dilated 2-D convolution" */
    int n_in;            /* minimum number of operands */
    int n_in_max;        /* maximum number of operands; 0: exactly n_in */
    int n_out;
    int8_t in_rank[TD_IN_MAX]; /* 0: any rank */
    const td_field *fields;    /* fields of attr; NULL: no attributes */
    size_t attr_bytes;
    const char *tf_op; /* the TensorFlow op whose precision class it has; NULL: never changed */
    uint32_t wide_in;  /* operands that are float32 in mixed precision, and may always be float32 */
    uint32_t wide_out; /* results that are float32 while others are half */
    td_layout_role layout;
    uint32_t any_dtype;          /* operands that need not be a float type */
    uint32_t memory_order;       /* operands (masks) in the memory order of operand 0 */
    uint32_t own_layout;         /* operands that may have another layout than operand 0 */
    uint32_t shape_only;         /* operands whose values are never read */
    uint32_t writes;             /* operands overwritten in place, which must be parameters */
    uint32_t after_update;       /* with `writes`: operands that an earlier update may write */
    uint32_t may_overwrite;      /* operands whose buffer output 0 may reuse after their last use */
    uint32_t may_overwrite_last; /* the same for the last output, if there are several */
    bool is_alias;               /* output 0 is operand 0's memory with another type */
    bool is_leaf;                /* input, param: no kernel */
    bool is_composite;           /* has decompose, no kernel */
    bool is_collective; /* communicates with other ranks: runs once, in order; kernel in runtime/ */

    /* Infer the types of the outputs.  Arity, ranks and attribute ranges are already checked; the
       caller chooses the layouts. */
    td_status (*infer)(const td_node *n, td_type *y);

    /* Emit gradients.  dy[i]: gradient of output i, NULL if it has none.  Set dx[i] for each
       operand that has a gradient. */
    void (*grad)(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx);

    /* Decompose a composite into simpler ops: in[] -> out[]. */
    void (*decompose)(td_builder *b, const td_node *n, td_value *const *in, td_value **out);

    /* Multiply-accumulates of one run; NULL: negligible. */
    int64_t (*macs)(const td_node *n);
};

/** Is only the shape of operand i used?  false for results, i >= n->n_in. */
static inline bool td_is_shape_only(const td_node *n, int i)
{
    return i < n->n_in && (n->op->shape_only >> i & 1);
}

#endif
