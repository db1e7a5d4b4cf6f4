/*
 * runtime/backends.h -- the backends of this build and the kernels that they have for a node
 *
 * td_direct_* consider kernels that read and write a node's types themselves, without emulation
 * (emulate_half.h), of all backends except `ref`.
 */
#ifndef TD_RUNTIME_BACKENDS_H
#define TD_RUNTIME_BACKENDS_H

#include "runtime/kernel.h"

#define TD_BACKENDS_MAX 8

/** All backends of the processor in this build, best first; NULL past the end. */
const td_backend *td_backend_at(int i);

/** The backend of GPUs, of no other device; not among those of td_backend_at. */
const td_backend *td_backend_of_gpus(void);

/** Is it the reference backend? */
bool td_backend_is_ref(const td_backend *b);

/** Does `k` accept `n`?  If not, "kernel: reason" is appended to `why` (after "; "), unless that is
    NULL. */
bool td_kernel_accepts(const td_kernel *k, const td_node *n, td_text *why);

/** The first kernel of `b` that accepts `n`, or NULL; the reasons of those that refuse are appended
    to `why`. */
const td_kernel *td_backend_select(const td_backend *b, const td_node *n, td_text *why);

/** The first kernel of any backend except `ref` that accepts `n`, or NULL. */
const td_kernel *td_direct_select(const td_node *n, td_text *why);

/** The layouts preferred by the first backend that has a preference; false if none has. */
bool td_direct_preferred_layout(const td_node *n, td_node_layouts *out);

/**
 * Candidate k = 0, 1, ... of the layouts that the backends prefer or have kernels for: 0 is
 * td_direct_preferred_layout; the same layouts may occur twice.  False past the end.
 */
bool td_direct_candidate_layout(const td_node *n, int k, td_node_layouts *out);

#endif
