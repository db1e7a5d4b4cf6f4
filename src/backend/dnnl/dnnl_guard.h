/*
 * backend/dnnl/dnnl_guard.h -- calls oneDNN's functions without letting C++ exceptions through
 *
 * oneDNN is C++ behind a C interface, and lets std::bad_alloc through: a C program ends in
 * std::terminate.  Functions that allocate are therefore called through dnnl_guard.cpp, which
 * catches the exception and returns dnnl_out_of_memory instead (dnnl_runtime_error for any other
 * exception).  The macros below replace the functions' names, so calling code looks as usual; add
 * every newly used function that allocates to both lists.
 *
 * Two cases cannot be turned into a status: oneDNN writes through a null pointer after a failed
 * allocation, or fails inside one of its own threads.  Then the process still ends, but it prints
 * one sentence, removes its temporary files and exits with code 1; see dnnl_guard.cpp.
 */
#ifndef TD_DNNL_GUARD_H
#define TD_DNNL_GUARD_H

#include <dnnl.h>

/* clang-format off */
#define TD_DNNL_GUARDED(CALL)                                                                      \
    CALL(dnnl_engine_create)                                                                       \
    CALL(dnnl_stream_create)                                                                       \
    CALL(dnnl_memory_create)                                                                       \
    CALL(dnnl_memory_set_data_handle)                                                              \
    CALL(dnnl_memory_desc_create_with_tag)                                                         \
    CALL(dnnl_memory_desc_create_with_strides)                                                     \
    CALL(dnnl_post_ops_create)                                                                     \
    CALL(dnnl_post_ops_append_sum)                                                                 \
    CALL(dnnl_post_ops_append_eltwise)                                                             \
    CALL(dnnl_primitive_attr_create)                                                               \
    CALL(dnnl_primitive_attr_set_post_ops)                                                         \
    CALL(dnnl_primitive_attr_set_scratchpad_mode)                                                  \
    CALL(dnnl_primitive_desc_query)                                                                \
    CALL(dnnl_convolution_forward_primitive_desc_create)                                           \
    CALL(dnnl_convolution_backward_data_primitive_desc_create)                                     \
    CALL(dnnl_convolution_backward_weights_primitive_desc_create)                                  \
    CALL(dnnl_pooling_forward_primitive_desc_create)                                               \
    CALL(dnnl_pooling_backward_primitive_desc_create)                                              \
    CALL(dnnl_matmul_primitive_desc_create)                                                        \
    CALL(dnnl_reorder_primitive_desc_create)                                                       \
    CALL(dnnl_primitive_create)                                                                    \
    CALL(dnnl_primitive_execute)

#ifdef __cplusplus
#define TD_DNNL_DECLARE(name) extern "C" __typeof__(name) *const td_guarded_##name;
#else
#define TD_DNNL_DECLARE(name) extern __typeof__(name) *const td_guarded_##name;
#endif
TD_DNNL_GUARDED(TD_DNNL_DECLARE)

#ifndef __cplusplus
#define dnnl_engine_create td_guarded_dnnl_engine_create
#define dnnl_stream_create td_guarded_dnnl_stream_create
#define dnnl_memory_create td_guarded_dnnl_memory_create
#define dnnl_memory_set_data_handle td_guarded_dnnl_memory_set_data_handle
#define dnnl_memory_desc_create_with_tag td_guarded_dnnl_memory_desc_create_with_tag
#define dnnl_memory_desc_create_with_strides td_guarded_dnnl_memory_desc_create_with_strides
#define dnnl_post_ops_create td_guarded_dnnl_post_ops_create
#define dnnl_post_ops_append_sum td_guarded_dnnl_post_ops_append_sum
#define dnnl_post_ops_append_eltwise td_guarded_dnnl_post_ops_append_eltwise
#define dnnl_primitive_attr_create td_guarded_dnnl_primitive_attr_create
#define dnnl_primitive_attr_set_post_ops td_guarded_dnnl_primitive_attr_set_post_ops
#define dnnl_primitive_attr_set_scratchpad_mode td_guarded_dnnl_primitive_attr_set_scratchpad_mode
#define dnnl_primitive_desc_query td_guarded_dnnl_primitive_desc_query
#define dnnl_convolution_forward_primitive_desc_create \
    td_guarded_dnnl_convolution_forward_primitive_desc_create
#define dnnl_convolution_backward_data_primitive_desc_create \
    td_guarded_dnnl_convolution_backward_data_primitive_desc_create
#define dnnl_convolution_backward_weights_primitive_desc_create \
    td_guarded_dnnl_convolution_backward_weights_primitive_desc_create
#define dnnl_pooling_forward_primitive_desc_create \
    td_guarded_dnnl_pooling_forward_primitive_desc_create
#define dnnl_pooling_backward_primitive_desc_create \
    td_guarded_dnnl_pooling_backward_primitive_desc_create
#define dnnl_matmul_primitive_desc_create td_guarded_dnnl_matmul_primitive_desc_create
#define dnnl_reorder_primitive_desc_create td_guarded_dnnl_reorder_primitive_desc_create
#define dnnl_primitive_create td_guarded_dnnl_primitive_create
#define dnnl_primitive_execute td_guarded_dnnl_primitive_execute
#endif
/* clang-format on */

#endif
