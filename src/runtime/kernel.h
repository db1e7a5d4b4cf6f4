/*
 * runtime/kernel.h -- the interface of backends: a list of kernels, best first
 *
 *     select:   for each kernel of the op: accepts(node)? -> prepare(node) -> a prepared call
 *     run:      prepared.kernel->run(&prepared, args)      pointers in, nothing decided
 *
 * args holds the operands' pointers, then the results', then the scratch (NULL when none was asked
 * for).  A shape-only operand's pointer must not be read.
 */
#ifndef TD_RUNTIME_KERNEL_H
#define TD_RUNTIME_KERNEL_H

#include "base/text.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/target.h"

typedef struct td_kernel td_kernel;

/* A kernel made ready for one node. */
typedef struct {
    const td_kernel *kernel;
    const td_node *node;            /* types and attributes; outlives the call */
    void *state;                    /* the kernel's own, or NULL */
    size_t scratch_bytes;           /* asked of the planner; alive during this call only */
    char impl[64];                  /* the library's name for what it chose, or "" */
    struct td_reduction *reduction; /* of collective nodes: the program's, borrowed */
} td_prepared;

struct td_kernel {
    const char *name; /* "dnnl_conv", in logs and reports */
    const td_op *op;

    /* Can this node be run here, exactly as it is?  No side effects; TD_ENOKERNEL when not,
       with a short reason as the message ("groups is 1"). */
    td_status (*accepts)(const td_node *n);

    /* Everything slow.  Fills state, scratch_bytes and impl; may be NULL. */
    td_status (*prepare)(const td_node *n, td_prepared *out);

    td_status (*run)(const td_prepared *p, void *const *args);
    void (*release)(td_prepared *p); /* may be NULL */
};

typedef struct {
    const char *name;
    const char *description;
    const td_kernel *const *kernels; /* best first */
    int n_kernels;

    /* Layouts the best kernel of a CHOOSES node prefers; NULL or false: no opinion. */
    bool (*preferred_layout)(const td_node *n, td_node_layouts *out);

    /* Other layouts it has kernels for, k = 0, 1, ..., that are worth measuring where the user asks
       for it (runtime/autotune.h); false past the end.  NULL: none. */
    bool (*candidate_layout)(const td_node *n, int k, td_node_layouts *out);

    /* One line about its library, for doctor; may be NULL. */
    void (*describe)(td_text *out);
} td_backend;

#endif
