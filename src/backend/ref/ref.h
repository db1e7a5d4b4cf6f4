/*
 * backend/ref/ref.h -- the reference kernels: every op once, in double, written for clarity
 *
 * A kernel here is one function on float64 tensors in plain C order.  Around it, td_ref_run
 * converts operands of any float dtype to double and rounds the results to their own dtype, so that
 * one body serves f32, f64, bf16 and f16, sums are kept in float64 whatever the storage, and a
 * result is as accurate as its dtype allows: the reference for all other backends.
 *
 *     static void relu(const td_node *n, int64_t count, double *const *a)   a[0] = x, a[1] = y
 *     const td_ref_kernel td_ref_relu = TD_REF_EACH(relu, relu);
 *
 * A body gets integer tensors (labels, masks) as they are stored, and NULL for a shape-only
 * operand.  Sums run in one fixed order on one thread; only independent results are computed in
 * parallel.
 */
#ifndef TD_BACKEND_REF_H
#define TD_BACKEND_REF_H

#include "ops/ops.h"
#include "runtime/kernel.h"

typedef struct {
    td_kernel kernel; /* first, so that a td_kernel pointer can be cast to this type */

    /* Whole tensors: operands, results, then the work area.  f64 operands and results are the
       caller's own memory, so result 0 may be an operand that the op's may_overwrite names. */
    void (*body)(const td_node *n, void *const *a);
    int64_t (*work)(const td_node *n); /* size of the work area in doubles; NULL: none */

    /* Element by element: `count` elements of every tensor; an operand of one element is repeated
       `count` times. */
    void (*each)(const td_node *n, int64_t count, double *const *a);
} td_ref_kernel;

#define TD_REF_KERNEL(op_, accepts_, prepare_, run_, ...)                                          \
    {                                                                                              \
        .kernel = { .name = "ref_" #op_,                                                           \
                    .op = &td_op_##op_,                                                            \
                    .accepts = accepts_,                                                           \
                    .prepare = prepare_,                                                           \
                    .run = run_ },                                                                 \
        __VA_ARGS__                                                                                \
    }

/* whole tensors in plain layout */
#define TD_REF(op_, body_)                                                                         \
    TD_REF_KERNEL(op_, td_ref_accepts, td_ref_prepare, td_ref_run, .body = body_)
#define TD_REF_WORK(op_, body_, work_)                                                             \
    TD_REF_KERNEL(op_, td_ref_accepts, td_ref_prepare, td_ref_run, .body = body_, .work = work_)

/* element by element: any layout, the same for all; its padding is computed too */
#define TD_REF_EACH(op_, each_)                                                                    \
    TD_REF_KERNEL(op_, td_ref_accepts_each, NULL, td_ref_run_each, .each = each_)

td_status td_ref_accepts(const td_node *n) TD_CHECKED;
td_status td_ref_prepare(const td_node *n, td_prepared *out) TD_CHECKED;
td_status td_ref_run(const td_prepared *p, void *const *args) TD_CHECKED;
td_status td_ref_accepts_each(const td_node *n) TD_CHECKED;
td_status td_ref_run_each(const td_prepared *p, void *const *args) TD_CHECKED;

/** The activation `act`, a td_conv_act, of v. */
double td_ref_activation(int act, double v);

/** TD_ENOKERNEL if an operand or result is not plain; the message names the first one. */
td_status td_ref_check_plain(const td_node *n) TD_CHECKED;

/** Type of tensor i: operands first, then results. */
const td_type *td_ref_type(const td_node *n, int i);

/**
 * Convert `n` elements to and from double.  Rounds to nearest even; conversion to an integer type
 * truncates and saturates, and turns NaN into 0.
 */
void td_ref_load(td_dtype d, const void *src, int64_t n, double *dst);
void td_ref_store(td_dtype d, const double *src, int64_t n, void *dst);

/** A matrix: element (i, j) is data[i * row + j * col]. */
typedef struct {
    double *data;
    int64_t row, col;
} td_ref_matrix;

/** c[m, n] += a[m, k] b[k, n], each sum in order of k. */
void td_ref_multiply(int64_t m, int64_t n, int64_t k, td_ref_matrix a, td_ref_matrix b,
                     td_ref_matrix c);

#define TD_REF_BINARY(K, name, ...) K(name) K(name##_broadcast)

/* clang-format off */
#define TD_REF_LIST(K)                                                                             \
    K(constant) K(conv2d) K(conv2d_grad_x) K(conv2d_grad_w) K(conv2d_fused)                        \
    K(conv2d_statistics) K(conv2d_scale_relu_grad_w) K(winograd_filter) K(conv2d_winograd)         \
    K(conv2d_winograd_scaled) K(inverted_residual) K(expand_depthwise) K(conv2d_gated)             \
    K(conv2d_winograd_grad_x) K(conv2d_winograd_grad_w)                                            \
    K(quantize) K(dequantize) K(quantize_weights) K(shift_int8) K(shift_int8_bias) K(conv2d_int8)  \
    K(conv2d_pool_int8)                                                                            \
    K(linear) K(linear_fused) K(linear_grad_x) K(linear_grad_w)                                    \
    K(matmul) K(attention) K(layer_norm) K(layer_norm_grad)                                        \
    K(batch_norm) K(batch_norm_grad) K(batch_norm_relu) K(batch_norm_relu_grad)                    \
    K(batch_norm_add_relu) K(batch_norm_add_relu_grad) K(batch_norm_infer)                         \
    K(batch_norm_relu_infer) K(batch_norm_add_relu_infer) K(batch_norm_infer_grad)                 \
    K(batch_norm_scale) K(batch_norm_update) K(batch_norm_statistics)                              \
    K(batch_norm_add_relu_given) K(batch_norm_scale_relu_grad)                                     \
    TD_ACT_LIST(TD_ACT_BOTH, K)                                                                    \
    K(max_pool2d) K(max_pool2d_grad) K(avg_pool2d) K(avg_pool2d_grad)                              \
    K(global_avg_pool) K(global_avg_pool_grad)                                                     \
    TD_BINARY_LIST(TD_REF_BINARY, K) K(mul_reduce) K(sum_to) K(scale)                              \
    K(gated_add) K(gated_add_relu_grad)                                                            \
    K(broadcast_like) K(concat) K(slice) K(slice_grad) K(gather) K(gather_grad)                    \
    K(reshape) K(transpose) K(transpose_view) K(broadcast_to)                                      \
    K(cast) K(reorder) K(assign) K(resize_nearest) K(resize_nearest_grad) K(sum) K(mean)           \
    K(resize) K(resize_grad)                                                                       \
    K(softmax) K(softmax_grad) K(one_hot) K(softmax_cross_entropy)                                 \
    K(sigmoid_cross_entropy) K(sigmoid_cross_entropy_grad)                                         \
    K(softmax_cross_entropy_grad) K(sigmoid_focal_loss) K(sigmoid_focal_loss_grad)               \
    K(huber_box_loss) K(huber_box_loss_grad) K(multibox_class_loss) K(multibox_class_loss_grad)  \
    K(mixup) K(dropout) K(normalize) K(sgd) K(rmsprop) K(adam) K(lamb) K(accumulate) K(all_reduce) \
    K(cutmix)                                                                                      \
    K(grad_norm) K(limit_grad) K(carry)                                                            \
    K(ema) K(commit) K(all_finite) \
    K(round_tf32) K(bias_add) K(bias_add_grad) K(join_heads) K(join_heads_grad)
/* clang-format on */

#define TD_REF_DECLARE(name) extern const td_ref_kernel td_ref_##name;
TD_REF_LIST(TD_REF_DECLARE)
#undef TD_REF_DECLARE

/* --- TF32 ------------------------------------------------------------------------------------- */

/** Doubles of the work area for the factors of `n`, rounded; 0 unless tf32 is set (ops.h). */
int64_t td_ref_factors_work(const td_node *n);

/**
 * `out` [TD_IN_MAX + TD_OUT_MAX + 1] becomes `a`, but if tf32 is set its factors are rounded
 * copies, in the work area from `at` on.
 */
void td_ref_round_factors(const td_node *n, void *const *a, int64_t at, void **out);

#endif
