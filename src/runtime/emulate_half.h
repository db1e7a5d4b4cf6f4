/*
 * runtime/emulate_half.h -- emulates half precision by any float32 kernel
 */
#ifndef TD_RUNTIME_EMULATE_HALF_H
#define TD_RUNTIME_EMULATE_HALF_H

#include "runtime/kernel.h"

/**
 * Accepts a node with bf16 or f16 tensors if a backend other than `ref` accepts it with float32 in
 * their place: it widens the operands, runs that kernel and rounds the results to nearest even,
 * with overflow to infinity.  Rejects nodes that only `ref` computes, that overwrite a half
 * operand, or whose attributes name a half type.  It is in no backend's list; its impl is
 * "emulated: INNER".
 */
extern const td_kernel td_emulate_half;

/** The layouts that the float32 form of `n` prefers. */
bool td_emulate_half_preferred_layout(const td_node *n, td_node_layouts *out);

/**
 * `n` elements from float32 to bf16 or f16 or back, on all threads.  The memory must not overlap;
 * other pairs of types are not allowed.
 */
void td_emulate_half_convert(td_dtype from, const void *src, td_dtype to, void *dst, int64_t n);

#endif
