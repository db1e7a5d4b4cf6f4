/*
 * backend/native/common/native_kernel.h -- checks of nodes, and the definition of
 * a kernel
 */
#ifndef TD_BACKEND_NATIVE_COMMON_NATIVE_KERNEL_H
#define TD_BACKEND_NATIVE_COMMON_NATIVE_KERNEL_H

#include "ops/ops.h"
#include "runtime/kernel.h"

/** Do the kernels support the dtype: is it f32, bf16 or f16? */
bool td_native_knows(td_dtype dtype);

/** TD_ENOKERNEL on a processor with AMX, for products that oneDNN computes faster there. */
td_status td_native_check_no_amx(void) TD_CHECKED;

/** TD_ENOKERNEL unless the operands and result 0 have these layouts. */
td_status td_native_check_layouts(const td_node *n, const td_node_layouts *l) TD_CHECKED;

/** A kernel's `release` where the state is one allocation. */
void td_native_release_state(td_prepared *p);

/** Should a result of this size be written with non-temporal stores, which bypass the caches? */
bool td_native_is_streamed(int64_t n_bytes);

/* Define the kernel of the op td_op_<op_>. */
#define TD_NATIVE_KERNEL(op_, accepts_, prepare_, run_, share_)                                    \
    const td_kernel td_native_##op_ = { .name = "native_" #op_,                                    \
                                        .op = &td_op_##op_,                                        \
                                        .accepts = accepts_,                                       \
                                        .prepare = prepare_,                                       \
                                        .run = run_,                                               \
                                        .share = share_ }

#endif
