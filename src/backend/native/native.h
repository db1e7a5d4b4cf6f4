/*
 * backend/native/native.h -- the list of our own kernels
 *
 * The first kernel in the list that accepts a node computes it.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_H
#define TD_BACKEND_NATIVE_NATIVE_H

#include "ops/ops.h"
#include "runtime/kernel.h"

#define TD_NATIVE_TWO(K, name, ...) K(two_##name)

/* clang-format off */
#define TD_NATIVE_LIST(K)                                                                          \
    K(batch_norm) K(batch_norm_relu) K(batch_norm_add_relu)                                        \
    K(batch_norm_grad) K(batch_norm_relu_grad) K(batch_norm_add_relu_grad)                         \
    K(batch_norm_infer) K(batch_norm_relu_infer) K(batch_norm_add_relu_infer)                      \
    K(batch_norm_any) K(batch_norm_relu_any) K(batch_norm_add_relu_any)                            \
    K(batch_norm_grad_any) K(batch_norm_relu_grad_any) K(batch_norm_add_relu_grad_any)             \
    K(batch_norm_infer_any) K(batch_norm_relu_infer_any) K(batch_norm_add_relu_infer_any)          \
    K(global_avg_pool_plain) K(global_avg_pool_grad_plain) K(bias_add_plain)                       \
    K(max_pool2d) K(max_pool2d_grad) K(global_avg_pool) K(global_avg_pool_grad)                    \
    K(add) K(mul) K(mul_reduce) K(relu) K(relu_grad) K(cast) K(reorder) K(amx_filter) K(rgb)       \
    K(sgd) K(sgd_copies)                                                                           \
    K(rmsprop) K(rmsprop_copies) K(adam) K(adam_copies) K(lamb) K(lamb_copies)                     \
    K(accumulate) K(carry) K(ema) K(mixup) K(cutmix) K(dropout)                                    \
    K(all_finite) K(grad_norm) K(limit_grad) K(winograd_filter) K(conv2d_winograd)                 \
    K(conv2d_winograd_scaled) K(inverted_residual) K(expand_depthwise) K(conv2d_gated)             \
    K(inverted_residual_bf16) K(expand_depthwise_bf16) K(stem_conv_fused)                          \
    K(linear) K(linear_fused) K(linear_panels) K(linear_panels_bf16) K(attention_bf16)             \
    K(linear_packed) K(linear_grad_x) K(linear_grad_w)                                             \
    K(amx_conv) K(amx_conv_fused) K(amx_conv_int8) K(amx_conv_grad_x) K(amx_conv_grad_w)           \
    K(pointwise_conv) K(conv2d_winograd_grad_x) K(conv2d_winograd_grad_w)                          \
    K(grouped_conv) K(grouped_conv_fused) K(grouped_conv_grad_x) K(grouped_conv_grad_w)            \
    K(conv_grad_w)                                                                                 \
    K(depthwise_conv) K(depthwise_conv_fused) K(depthwise_conv_grad_x) K(depthwise_tiles_grad_w)   \
    K(depthwise_conv_grad_w)                                                                       \
    K(sigmoid_focal_loss) K(sigmoid_focal_loss_grad) K(huber_box_loss) K(huber_box_loss_grad)      \
    K(multibox_class_loss) K(multibox_class_loss_grad) \
    K(bias_add) K(bias_add_grad) K(resize_nearest) K(resize_nearest_grad)                          \
    K(resize) K(resize_grad)                                                                       \
    TD_ACT_OTHERS(TD_ACT_BOTH, K) TD_BINARY_LIST(TD_NATIVE_TWO, K) K(scale)                        \
    K(transpose) K(layer_norm) K(layer_norm_grad) K(softmax) K(softmax_grad) K(sum_to)             \
    K(mul_rows) K(mul_channels) K(mul_reduce_channels)                                             \
    K(add_repeated) K(mul_repeated) K(mul_reduce_rows) K(sum_to_rows)                              \
    K(bias_add_grad_rows) K(join_heads) K(join_heads_grad) K(concat) K(slice) K(slice_grad)        \
    K(quantize) K(dequantize)                                                                      \
    K(quantize_weights) K(shift_int8) K(conv2d_pool_int8) K(pointwise_int8) K(taps_int8)
/* clang-format on */

#define TD_NATIVE_DECLARE(name) extern const td_kernel td_native_##name;
TD_NATIVE_LIST(TD_NATIVE_DECLARE)
#undef TD_NATIVE_DECLARE

#endif
