/*
 * problem.h -- a problem line as a graph with numbers in it
 *
 *     td_problem p;
 *     TD_OUT(td_problem_make("conv2d x=2x3x9x9 w=4x3x3x3 pad=1", 0, &p));
 *     p.forward           the op's node;  p.graph->nodes  also its gradients
 *     p.data[v->id]       every value's elements in plain order, worked out by the reference
 *     td_problem_release(&p);
 */
#ifndef TD_TEST_PROBLEM_H
#define TD_TEST_PROBLEM_H

#include "device/device_memory.h"
#include "ops/ops.h"
#include "runtime/kernel.h"

typedef struct {
    td_graph *graph;
    const td_node *forward;
    const td_value *dy;            /* what arrives at result 0; NULL: the op has no gradient */
    const td_value *dx[TD_IN_MAX]; /* d <result 0, dy> / d operand i; NULL: none */
    void **data;                   /* by value id */
} td_problem;

/** Build and work out; `dtype` replaces the line's own when it is not 0.  TD_EUSAGE: a bad line. */
td_status td_problem_make(const char *line, td_dtype dtype, td_problem *out) TD_CHECKED;
void td_problem_release(td_problem *p);

/** Work out one node with its reference kernel, into p->data. */
td_status td_problem_run(const td_problem *p, const td_node *n) TD_CHECKED;

/** Operands (in, then out) of `n` as a kernel takes them, without scratch. */
void td_problem_args(const td_problem *p, const td_node *n, void **args);

/**
 * Prepare, run, release.  Each of `args`, and TD_PROBLEM_FENCE bytes after it, is copied to memory
 * `m` and back, unless that is the host's; equal pointers remain equal.
 */
td_status td_kernel_run_once(const td_kernel *k, const td_node *n, const td_device_memory *m,
                             void *const *args) TD_CHECKED;

/** The same as one call of kernel `k` for `n_nodes` nodes like `n`, args[i] those of the i-th. */
enum { TD_PROBLEM_NODES = 3 };
td_status td_kernel_run_multi(const td_kernel *k, const td_node *n, const td_device_memory *m,
                              void *const *const *args, int n_nodes) TD_CHECKED;
enum { TD_PROBLEM_FENCE = 64 };

/** The backend of a name, NULL when this build has none. */
const td_backend *td_backend_named(const char *name);

#endif
