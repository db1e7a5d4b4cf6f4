/*
 * gpu_conv.c -- convolutions and linear layers, by the plug-in's library (cuDNN)
 *
 * Tensors are channels last: images [N,H,W,C], filters [K,R,S,C/groups].  A linear layer is a
 * convolution of images of one pixel.
 */
#include <stdio.h>
#include <string.h>

#include "backend/gpu/gpu.h"

static const char channels_last[] = "acdb";

/* which operand or result of a node is x, w, y; 0 bias and residual: none */
typedef struct {
    td_gpu_direction direction;
    int x, w, y, bias, residual;
} roles;

static bool is_filter_gradient(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_w || n->op == &td_op_linear_grad_w;
}

static bool is_data_gradient(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_x || n->op == &td_op_linear_grad_x;
}

static roles roles_of(const td_node *n)
{
    if (is_data_gradient(n))
        return (roles){ .direction = TD_GPU_DATA_GRADIENT, .y = 0, .w = 1, .x = n->n_in };
    if (is_filter_gradient(n))
        return (roles){ .direction = TD_GPU_FILTER_GRADIENT, .y = 0, .x = 1, .w = n->n_in };
    return (roles){ .direction = TD_GPU_FORWARD,
                    .x = 0,
                    .w = 1,
                    .bias = n->n_in > 2 ? 2 : 0,
                    .residual = n->n_in > 3 ? 3 : 0,
                    .y = n->n_in };
}

/* --- what is accepted ------------------------------------------------------------------------- */

static td_status check_tensor(const td_node *n, int i, td_dtype dtype)
{
    const td_type *t = td_gpu_type(n, i);
    if (t->dtype != dtype)
        return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(t->dtype));
    if (strcmp(t->layout, t->rank == 4 ? channels_last : "") != 0)
        return td_error(TD_ENOKERNEL, "tensor %d is not channels last", i);
    return TD_OK;
}

/* a bias, or the gradient of a filter, may be float32 where images are half */
static bool is_wide(const td_node *n, int i)
{
    return td_gpu_type(n, i)->dtype == TD_DT_F32 && td_in_type(n, 0)->dtype != TD_DT_F32;
}

static td_status accepts(const td_node *n)
{
    const roles r = roles_of(n);
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    TD_TRY(check_tensor(n, r.x, d));
    TD_TRY(check_tensor(n, r.w, is_filter_gradient(n) && is_wide(n, r.w) ? TD_DT_F32 : d));
    TD_TRY(check_tensor(n, r.y, d));
    if (r.bias)
        TD_TRY(check_tensor(n, r.bias, is_wide(n, r.bias) ? TD_DT_F32 : d));
    if (r.residual)
        TD_TRY(check_tensor(n, r.residual, d));
    if (n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->relu6)
        return td_error(TD_ENOKERNEL, "relu6 is not fused");
    return TD_OK;
}

bool td_gpu_preferred_layout(const td_node *n, td_node_layouts *out)
{
    const bool is_fused = n->op == &td_op_conv2d_fused;
    if (n->op != &td_op_conv2d && !is_fused && n->op != &td_op_conv2d_grad_x &&
        n->op != &td_op_conv2d_grad_w)
        return false;
    *out = (td_node_layouts){ 0 };
    memcpy(out->in[0], channels_last, sizeof channels_last);
    memcpy(out->in[1], channels_last, sizeof channels_last);
    memcpy(out->out, channels_last, sizeof channels_last);
    if (is_fused && n->n_in > 3)
        memcpy(out->in[3], channels_last, sizeof channels_last);
    return true;
}

/* --- plans ------------------------------------------------------------------------------------ */

static int64_t dim(const td_type *t, int d)
{
    return d < t->rank ? t->dim[d] : 1;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    static const td_conv_attr of_linear = { .stride = 1, .dilation = 1, .groups = 1 };
    const roles r = roles_of(n);
    const td_type *x = td_gpu_type(n, r.x), *w = td_gpu_type(n, r.w);
    const td_conv_attr *a = w->rank == 4 ? n->attr : &of_linear;
    td_gpu_planned made = { 0 };
    const td_gpu_conv_plan plan = {
        .direction = r.direction,
        .dtype = x->dtype,
        .wide_filter = is_filter_gradient(n) && is_wide(n, r.w),
        .wide_bias = r.bias && is_wide(n, r.bias),
        .has_bias = r.bias,
        .has_residual = r.residual,
        .relu = a->relu,
        .n = x->dim[0],
        .c = x->dim[1],
        .h = dim(x, 2),
        .w = dim(x, 3),
        .k = w->dim[0],
        .r = dim(w, 2),
        .s = dim(w, 3),
        .groups = a->groups,
        .pad_before = { a->pad, a->pad },
        .pad_after = { a->pad + a->pad_extra, a->pad + a->pad_extra },
        .stride = { a->stride, a->stride },
        .dilation = { a->dilation, a->dilation },
        .made = &made,
    };
    TD_TRY(td_gpu_status(td_gpu()->conv_plan(&plan)));
    out->state = made.plan;
    out->scratch_bytes = made.scratch_bytes;
    (void)snprintf(out->impl, sizeof out->impl, "%s", made.impl);
    return TD_OK;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const roles r = roles_of(n);
    return td_gpu_status(
        td_gpu()->conv_run(&(td_gpu_conv_run){ .plan = p->state,
                                               .x = args[r.x],
                                               .w = args[r.w],
                                               .y = args[r.y],
                                               .bias = r.bias ? args[r.bias] : NULL,
                                               .residual = r.residual ? args[r.residual] : NULL,
                                               .scratch = args[n->n_in + n->n_out] }));
}

static void release(td_prepared *p)
{
    (void)td_gpu()->conv_free(&(td_gpu_conv_free){ p->state });
    p->state = NULL;
}

#define KERNEL(op_)                                                                                \
    const td_kernel td_gpu_##op_ = { .name = "cudnn_" #op_,                                        \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts,                                           \
                                     .prepare = prepare,                                           \
                                     .run = run,                                                   \
                                     .release = release };

KERNEL(conv2d)
KERNEL(conv2d_fused)
KERNEL(conv2d_grad_x)
KERNEL(conv2d_grad_w)
KERNEL(linear)
KERNEL(linear_grad_x)
KERNEL(linear_grad_w)
