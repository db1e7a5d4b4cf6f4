/*
 * runtime/kernel.h -- the interface of backends: a list of kernels, best first
 *
 *     select:   for each kernel of the op: accepts(node)? -> prepare(node) -> a prepared call
 *     run:      prepared.kernel->run(&prepared, args)      only pointers change; no decisions
 *
 * args holds the pointers of the operands, then of the results, then of the scratch (NULL if the
 * kernel needs none).  A shape-only operand's pointer must not be read.
 */
#ifndef TD_RUNTIME_KERNEL_H
#define TD_RUNTIME_KERNEL_H

#include "base/text.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/target.h"
#include "runtime/device_memory.h"

typedef struct td_kernel td_kernel;

/* A kernel prepared for one node. */
typedef struct {
    const td_kernel *kernel;
    const td_node *node;            /* types and attributes; outlives the call */
    void *state;                    /* owned by the kernel, or NULL */
    size_t scratch_bytes;           /* the planner provides it for the call only */
    char impl[64];                  /* the implementation that the library chose, or "" */
    struct td_reduction *reduction; /* collective nodes: borrowed from the program */
    struct td_gpu_sums *sums;       /* instead of it, with a group of GPUs */
    const void *const *update;      /* collective nodes: where `update` is bound, in host memory */
    const td_device_memory *memory; /* that of the args; host kernels copy with it */
} td_prepared;

struct td_kernel {
    const char *name; /* "dnnl_conv", in logs and reports */
    const td_op *op;
    int variant; /* tells kernels apart that have the same functions */

    /* Runs on the host: it does not use the memory of args except by copies (prepared.memory). */
    bool is_host;

    /* Does `run` read more than args on the host, or wait, for this node?  Then its launches cannot
       be replayed.  NULL: it does not. */
    bool (*decides_on_host)(const td_node *n);

    /* Can this kernel run the node exactly as it is?  No side effects; otherwise TD_ENOKERNEL, with
       a short reason as the message ("groups is 1"). */
    td_status (*accepts)(const td_node *n);

    /* Does all slow work in advance.  Sets state, scratch_bytes and impl; may be NULL. */
    td_status (*prepare)(const td_node *n, td_prepared *out);

    td_status (*run)(const td_prepared *p, void *const *args);
    void (*release)(td_prepared *p); /* may be NULL */
};

typedef struct {
    const char *name;
    const char *description;
    const td_kernel *const *kernels; /* best first */
    int n_kernels;

    /* The layouts that the best kernel for a CHOOSES node prefers; NULL or false: no preference. */
    bool (*preferred_layout)(const td_node *n, td_node_layouts *out);

    /* Candidate k = 0, 1, ... of other layouts that it has kernels for, to be measured if the user
       requests it (runtime/autotune.h); false past the end.  NULL: none. */
    bool (*candidate_layout)(const td_node *n, int k, td_node_layouts *out);

    /* One line about the backend's library, for `tandem doctor`; may be NULL. */
    void (*describe)(td_text *out);
} td_backend;

#endif
