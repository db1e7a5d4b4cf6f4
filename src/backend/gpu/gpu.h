/*
 * backend/gpu/gpu.h -- kernels that a GPU plug-in starts: nodes become structs of gpu_kernels.h
 *
 * Tensors may have any layout without inner blocks: plain, or channels last ("acdb").
 */
#ifndef TD_BACKEND_GPU_H
#define TD_BACKEND_GPU_H

#include "device/gpu_plugin.h"
#include "ops/ops.h"
#include "runtime/kernel.h"

/** `t` as the plug-in describes it; TD_ENOKERNEL: its layout has inner blocks. */
TD_CHECKED td_status td_gpu_tensor_of(const td_type *t, void *data, td_gpu_tensor *out);

/** The same, for a node that was accepted. */
td_gpu_tensor td_gpu_tensor_at(const td_prepared *p, int i, void *const *args);

/** The type of operand i, or of result i - n_in. */
const td_type *td_gpu_type(const td_node *n, int i);

/** As `x`, repeated along the dimensions in which it is 1 and `like` is not. */
td_gpu_tensor td_gpu_broadcast(td_gpu_tensor x, const td_gpu_tensor *like);

/** The part of `x` from `start` along axis `axis` of a tensor of `rank`, `size` long. */
td_gpu_tensor td_gpu_part(td_gpu_tensor x, int rank, int axis, int64_t start, int64_t size);

/** Do all tensors that are read have layouts without blocks and floats of one dtype? */
TD_CHECKED td_status td_gpu_accepts_alike(const td_node *n);

/** The same, with any dtypes that kernels know: all but f64. */
TD_CHECKED td_status td_gpu_accepts_any(const td_node *n);

/** Are all tensors that are read in plain layout? */
TD_CHECKED td_status td_gpu_check_plain(const td_node *n);

/** Writes operand i of a node, rounded to the dtype of operand 0, to `to`. */
TD_CHECKED td_status td_gpu_round_operand(const td_prepared *p, int i, void *const *args, void *to);

/* --- a library's choices ---------------------------------------------------------------------- */

/* defines kernels of an op that use what the library ranks first to third, or to sixth: --tune
   measures them; accepts, prepare, run and release are functions of the file */
#define TD_GPU_CHOICE(library_, op_, suffix_, choice_)                                             \
    const td_kernel td_gpu_##op_##suffix_ = { .name = #library_ "_" #op_ #suffix_,                 \
                                              .op = &td_op_##op_,                                  \
                                              .variant = (choice_),                                \
                                              .accepts = accepts,                                  \
                                              .prepare = prepare,                                  \
                                              .run = run,                                          \
                                              .release = release };
#define TD_GPU_RANKED(library_, op_)                                                               \
    TD_GPU_CHOICE(library_, op_, , 0)                                                              \
    TD_GPU_CHOICE(library_, op_, _2, 1) TD_GPU_CHOICE(library_, op_, _3, 2)
#define TD_GPU_RANKED_6(library_, op_)                                                             \
    TD_GPU_RANKED(library_, op_)                                                                   \
    TD_GPU_CHOICE(library_, op_, _4, 3)                                                            \
    TD_GPU_CHOICE(library_, op_, _5, 4) TD_GPU_CHOICE(library_, op_, _6, 5)

/* --- many nodes in one launch ----------------------------------------------------------------- */

/** Fills the plug-in's struct of a node, which is all zeros. */
typedef void td_gpu_fill(const td_prepared *p, void *const *args, void *out);

/** Members of td_multi; `size`: of a struct. */
TD_CHECKED td_status td_gpu_multi_prepare(td_gpu_multi_kind kind, size_t size, td_gpu_fill *fill,
                                          const td_multi_node *nodes, int n, void **state);
TD_CHECKED td_status td_gpu_multi_start(void *state);
void td_gpu_multi_release(void *state);

/* defines multi_NAME, by fill_NAME(p, args, struct) */
#define TD_GPU_MULTI(name_, struct_, kind_, chained_)                                              \
    static td_status prepare_multi_##name_(const td_multi_node *nodes, int n, void **state)        \
    {                                                                                              \
        return td_gpu_multi_prepare(kind_, sizeof(struct_), fill_##name_, nodes, n, state);        \
    }                                                                                              \
    static const td_multi multi_##name_ = { .chained = (chained_),                                 \
                                            .prepare = prepare_multi_##name_,                      \
                                            .run = td_gpu_multi_start,                             \
                                            .release = td_gpu_multi_release };

/* clang-format off */
#define TD_GPU_3(K, op_) K(op_) K(op_##_2) K(op_##_3)
#define TD_GPU_6(K, op_) TD_GPU_3(K, op_) K(op_##_4) K(op_##_5) K(op_##_6)

#define TD_GPU_LIST(K)                                                                             \
    TD_BINARY_LIST(TD_BINARY_NAME, K) TD_ACT_LIST(TD_ACT_BOTH, K)                                  \
    K(scale) K(round_tf32) K(bias_add) K(broadcast_like) K(constant) K(cast) K(reorder) K(assign)  \
    K(concat) K(slice) K(slice_grad) K(gather) K(gather_grad) K(transpose) K(broadcast_to)         \
    K(sum) K(mean) K(sum_to)                                                                       \
    K(mul_reduce) K(bias_add_grad) K(global_avg_pool) K(global_avg_pool_grad)                      \
    K(gated_add) K(gated_add_relu_grad)                                                            \
    TD_GPU_6(K, conv2d) TD_GPU_6(K, conv2d_fused) TD_GPU_6(K, conv2d_grad_x)                       \
    TD_GPU_6(K, conv2d_grad_w)                                                                     \
    TD_GPU_3(K, conv2d_statistics) TD_GPU_3(K, conv2d_scale_relu_grad_w)                           \
    TD_GPU_3(K, linear) TD_GPU_3(K, linear_grad_x) TD_GPU_3(K, linear_grad_w)                      \
    TD_GPU_3(K, matmul) K(matmul_strided) K(layer_norm)                                            \
    K(layer_norm_grad) K(batch_norm) K(batch_norm_grad) K(batch_norm_relu)                         \
    K(batch_norm_relu_grad)                                                                        \
    K(batch_norm_add_relu) K(batch_norm_add_relu_grad) K(batch_norm_infer)                         \
    K(batch_norm_relu_infer) K(batch_norm_add_relu_infer) K(batch_norm_infer_grad)                 \
    K(batch_norm_scale) K(batch_norm_update) K(batch_norm_statistics)                              \
    K(batch_norm_add_relu_given) K(batch_norm_scale_relu_grad)                                     \
    K(max_pool2d) K(max_pool2d_grad) K(avg_pool2d) K(avg_pool2d_grad)                              \
    K(resize_nearest) K(resize_nearest_grad) K(join_heads) K(join_heads_grad)                      \
    K(resize) K(resize_grad)                                                                       \
    K(sgd) K(rmsprop) K(adam) K(lamb) K(accumulate) K(all_finite) K(grad_norm) K(limit_grad)       \
    K(carry) K(ema) K(commit)                                                                      \
    K(softmax) K(softmax_grad) K(one_hot) K(mixup) K(cutmix) K(dropout) K(normalize)               \
    K(softmax_cross_entropy) K(softmax_cross_entropy_grad)                                         \
    K(sigmoid_cross_entropy) K(sigmoid_cross_entropy_grad)                                         \
    K(sigmoid_focal_loss) K(sigmoid_focal_loss_grad) K(huber_box_loss) K(huber_box_loss_grad)      \
    K(multibox_class_loss) K(multibox_class_loss_grad)                                             \
    K(all_reduce_begin) K(all_reduce_end)
/* clang-format on */

/** Channels last, in which convolutions run; of normalize, the result. */
bool td_gpu_preferred_layout(const td_node *n, td_node_layouts *out);

#define TD_GPU_DECLARE(name) extern const td_kernel td_gpu_##name;
TD_GPU_LIST(TD_GPU_DECLARE)
#undef TD_GPU_DECLARE

#endif
