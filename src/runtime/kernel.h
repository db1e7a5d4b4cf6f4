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
#include "device/device_memory.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/target.h"

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

/* One of many nodes that run as one call. */
typedef struct {
    const td_prepared *prepared;
    void *const *args; /* of `run`; those of all runs of the program */
} td_multi_node;

/*
 * How kernels run many nodes as one call.  No node depends on another one of the call, with one
 * exception: operand `chained`, unless that is negative, is the result of the node before, which
 * nothing else reads and `run` need not write.  `prepare` may read `nodes` during the call only.
 */
typedef struct {
    int chained;
    td_status (*prepare)(const td_multi_node *nodes, int n, void **state);
    td_status (*run)(void *state);
    void (*release)(void *state);
} td_multi;

/* How evenly a node's work is divided among threads, in elements of its tensors. */
typedef struct {
    double largest, mean; /* the busiest thread's; 0: not known */
} td_work_share;

/** The shares of n jobs of `each` elements in OpenMP's static order. */
static inline td_work_share td_work_share_of(int64_t n, double each, int threads)
{
    return (td_work_share){ (double)((n + threads - 1) / threads) * each,
                            (double)n * each / threads };
}

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

    /* Kernels with the same one may run together, without scratch: state of td_multi has what they
       need.  NULL: each node by itself. */
    const td_multi *multi;

    /* The division of the work among `threads` threads, computed by what `run` divides it with.
       NULL: a library divides it, or it is not divided. */
    td_work_share (*share)(const td_node *n, int threads);
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
