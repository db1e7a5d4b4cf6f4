/*
 * runtime/backends.h -- the backends of this build and the kernels that they have for a node
 *
 * Direct: what backends do with the types that a node has.  The kernel reads and writes these types
 * itself, without emulation (emulate_half.h), and `ref` is not asked.
 */
#ifndef TD_RUNTIME_BACKENDS_H
#define TD_RUNTIME_BACKENDS_H

#include "runtime/kernel.h"

#define TD_BACKENDS_MAX 8

/** All backends of this build, best first; NULL past the end. */
const td_backend *td_backend_at(int i);

/** Is it the reference backend? */
bool td_backend_is_ref(const td_backend *b);

/** Does `k` accept `n`?  When not, ("; ") "kernel: reason" is added to `why`, which may be NULL. */
bool td_kernel_accepts(const td_kernel *k, const td_node *n, td_text *why);

/** The first kernel of `b` that accepts `n`, or NULL; `why` collects the reasons of refusals. */
const td_kernel *td_backend_select(const td_backend *b, const td_node *n, td_text *why);

/** The first kernel of any backend but `ref` that accepts `n`, or NULL. */
const td_kernel *td_direct_select(const td_node *n, td_text *why);

/** The layouts that the first backend with a preference prefers; false: none has one. */
bool td_direct_preferred_layout(const td_node *n, td_node_layouts *out);

/**
 * All layouts that the backends prefer or have kernels for, k = 0, 1, ...: 0 is
 * td_direct_preferred_layout; the same layouts may come twice.  false past the end.
 */
bool td_direct_candidate_layout(const td_node *n, int k, td_node_layouts *out);

#endif
