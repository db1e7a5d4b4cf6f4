/*
 * gpu_conv.c -- convolutions, by the plug-in's library (cuDNN)
 *
 * Tensors are channels last: images [N,H,W,C], filters [K,R,S,C/groups].  A float32 bias of a half
 * problem is rounded to half first: cuDNN's kernels for it are compiled at run time, which takes a
 * second for each shape.  Float32 gradients of half filters take longer or are refused, so they are
 * not accepted.
 *
 * The first layer keeps its three channels.  For an H200 cuDNN 9.28 ranks the same kernel of tensor
 * cores first with 3, 4 and 8 channels, without workspace, and has statistics fused with all three;
 * its filter gradient copies x into 212 MB for a batch of 256 with 3 and 4 channels, into 2 MB with
 * 8, but then x itself has nearly as much more.
 *
 * What cuDNN fuses depends on the GPU, so accepts asks the plug-in about convolutions with
 * statistics, those of relu(scale x + shift), and those with relu6.  In float32 without tensor
 * cores relu6 is fused with depthwise convolutions only: otherwise slower engines would run.
 */
#include <stdio.h>
#include <string.h>

#include "backend/gpu/gpu.h"

static const char channels_last[] = "acdb";

/* which operand or result of a node is x, w, y; 0: no bias, residual, scale or sums; shift and
   squares follow scale and sum */
typedef struct {
    td_gpu_direction direction;
    int x, w, y, bias, residual, scale, sum;
} roles;

static roles roles_of(const td_node *n)
{
    if (n->op == &td_op_conv2d_grad_x)
        return (roles){ .direction = TD_GPU_DATA_GRADIENT, .y = 0, .w = 1, .x = n->n_in };
    if (n->op == &td_op_conv2d_grad_w || n->op == &td_op_conv2d_scale_relu_grad_w)
        return (roles){ .direction = TD_GPU_FILTER_GRADIENT,
                        .y = 0,
                        .x = 1,
                        .w = n->n_in,
                        .scale = n->n_in > 3 ? 3 : 0 };
    if (n->op == &td_op_conv2d_statistics)
        return (roles){ .direction = TD_GPU_FORWARD,
                        .x = 0,
                        .w = 1,
                        .y = n->n_in,
                        .scale = n->n_in > 2 ? 2 : 0,
                        .sum = n->n_in + 1 };
    return (roles){ .direction = TD_GPU_FORWARD,
                    .x = 0,
                    .w = 1,
                    .bias = n->n_in > 2 ? 2 : 0,
                    .residual = n->n_in > 3 ? 3 : 0,
                    .y = n->n_in };
}

/* --- the problem ------------------------------------------------------------------------------ */

static td_gpu_conv_plan problem_of(const td_node *n, const roles *r)
{
    const td_type *x = td_gpu_type(n, r->x), *w = td_gpu_type(n, r->w);
    const td_conv_attr *a = n->attr;
    return (td_gpu_conv_plan){
        .direction = r->direction,
        .dtype = x->dtype,
        .has_bias = r->bias,
        .has_residual = r->residual,
        .relu = a->relu,
        .relu6 = a->relu && a->relu6,
        .has_scale_relu = r->scale,
        .wide_vectors = r->scale && td_gpu_type(n, r->scale)->dtype != x->dtype,
        .has_statistics = r->sum,
        .allow_tf32 = td_is_tf32(n),
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .k = w->dim[0],
        .r = w->dim[2],
        .s = w->dim[3],
        .groups = a->groups,
        .pad_before = { a->pad, a->pad },
        .pad_after = { a->pad + a->pad_extra, a->pad + a->pad_extra },
        .stride = { a->stride, a->stride },
        .dilation = { a->dilation, a->dilation },
    };
}

/* --- what is accepted ------------------------------------------------------------------------- */

static td_status check_dtype(const td_node *n, int i, td_dtype wanted, bool or_f32)
{
    const td_dtype d = td_gpu_type(n, i)->dtype;
    if (d != wanted && !(or_f32 && d == TD_DT_F32))
        return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(d));
    return TD_OK;
}

static td_status check_dtypes(const td_node *n, const roles *r)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    TD_TRY(check_dtype(n, r->x, d, false));
    TD_TRY(check_dtype(n, r->w, d, false));
    TD_TRY(check_dtype(n, r->y, d, false));
    if (r->bias)
        TD_TRY(check_dtype(n, r->bias, d, true));
    return r->residual ? check_dtype(n, r->residual, d, false) : TD_OK;
}

static td_status check_layout(const td_node *n, int i)
{
    if (strcmp(td_gpu_type(n, i)->layout, channels_last) != 0)
        return td_error(TD_ENOKERNEL, "tensor %d is not channels last", i);
    return TD_OK;
}

/* does cuDNN fuse the statistics, relu(scale x + shift), or relu6? */
static td_status check_fusion(const td_node *n, const roles *r)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    const td_gpu_conv_plan asked = problem_of(n, r);
    const bool is_fast = asked.relu6 && (asked.allow_tf32 || asked.groups == asked.c);
    if (!td_dtype_is_half(d) && !is_fast)
        return td_error(TD_ENOKERNEL, "dtype is %s, which is not fused", td_dtype_name(d));
    const char *why = td_gpu()->conv_plan(&asked);
    return why ? td_error(TD_ENOKERNEL, "%s", why) : TD_OK;
}

static bool has_relu6(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    return n->op == &td_op_conv2d_fused && a->relu && a->relu6;
}

static td_status accepts(const td_node *n)
{
    const roles r = roles_of(n);
    TD_TRY(check_dtypes(n, &r));
    if (n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->act)
        return td_error(TD_ENOKERNEL, "only relu and relu6 are fused");
    TD_TRY(check_layout(n, r.x));
    TD_TRY(check_layout(n, r.w));
    TD_TRY(check_layout(n, r.y));
    if (r.residual)
        TD_TRY(check_layout(n, r.residual));
    return r.scale || r.sum || has_relu6(n) ? check_fusion(n, &r) : TD_OK;
}

bool td_gpu_preferred_layout(const td_node *n, td_node_layouts *out)
{
    const bool is_fused = n->op == &td_op_conv2d_fused;
    *out = (td_node_layouts){ 0 };
    if (n->op == &td_op_normalize) {
        memcpy(out->out, channels_last, sizeof channels_last);
        return true;
    }
    if (n->op != &td_op_conv2d && !is_fused && n->op != &td_op_conv2d_statistics &&
        n->op != &td_op_conv2d_grad_x && n->op != &td_op_conv2d_grad_w &&
        n->op != &td_op_conv2d_scale_relu_grad_w)
        return false;
    memcpy(out->in[0], channels_last, sizeof channels_last);
    memcpy(out->in[1], channels_last, sizeof channels_last);
    memcpy(out->out, channels_last, sizeof channels_last);
    if (is_fused && n->n_in > 3)
        memcpy(out->in[3], channels_last, sizeof channels_last);
    return true;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* cuDNN's later engines for float32 include one that rounds factors to TF32 without saying so: of
   filter gradients of 5 x 5 depthwise convolutions, on an H200 */
enum { CHOICES_F32 = 3 };

typedef struct {
    void *plan;
    bool rounds_bias; /* it is float32, and the others half */
    size_t bias_at;   /* in the scratch memory: the bias in half */
} conv_state;

static td_status plan(const td_node *n, const roles *r, int choice, td_gpu_planned *made)
{
    td_gpu_conv_plan p = problem_of(n, r);
    if (choice >= CHOICES_F32 && p.dtype == TD_DT_F32)
        return td_error(TD_ENOKERNEL, "engines for float32 after the third are not used");
    p.choice = choice;
    p.made = made;
    td_status st = td_gpu_status(td_gpu()->conv_plan(&p));
    return st != TD_OK && choice > 0 ? td_error(TD_ENOKERNEL, "cuDNN has no other engine") : st;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    enum { ALIGN = 256 };
    const roles r = roles_of(n);
    td_gpu_planned made = { 0 };
    conv_state *s = TD_NEW(conv_state);
    if (!s)
        return TD_ENOMEM;
    td_status st = plan(n, &r, out->kernel->variant, &made);
    if (st != TD_OK) {
        td_free(s);
        return st;
    }
    *s = (conv_state){ .plan = made.plan, .rounds_bias = r.bias && td_is_wide_operand(n, r.bias) };
    out->state = s;
    out->scratch_bytes = made.scratch_bytes;
    if (s->rounds_bias) {
        s->bias_at = (made.scratch_bytes + ALIGN - 1) / ALIGN * ALIGN;
        out->scratch_bytes = s->bias_at + (size_t)td_type_bytes(td_gpu_type(n, r.bias)) / 2;
    }
    (void)snprintf(out->impl, sizeof out->impl, "%s", made.impl);
    return TD_OK;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const conv_state *s = p->state;
    const roles r = roles_of(n);
    void *scratch = args[n->n_in + n->n_out], *bias = r.bias ? args[r.bias] : NULL;
    if (s->rounds_bias) {
        bias = (char *)scratch + s->bias_at;
        TD_TRY(td_gpu_round_operand(p, r.bias, args, bias));
    }
    return td_gpu_status(
        td_gpu()->conv_run(&(td_gpu_conv_run){ .plan = s->plan,
                                               .x = args[r.x],
                                               .w = args[r.w],
                                               .y = args[r.y],
                                               .bias = bias,
                                               .residual = r.residual ? args[r.residual] : NULL,
                                               .scale = r.scale ? args[r.scale] : NULL,
                                               .shift = r.scale ? args[r.scale + 1] : NULL,
                                               .sum = r.sum ? args[r.sum] : NULL,
                                               .squares = r.sum ? args[r.sum + 1] : NULL,
                                               .scratch = scratch }));
}

static void release(td_prepared *p)
{
    conv_state *s = p->state;
    if (s)
        (void)td_gpu()->conv_free(&(td_gpu_conv_free){ s->plan });
    td_free(s);
    p->state = NULL;
}

/* the engines that cuDNN ranks first; of few input channels the fastest may come late */
TD_GPU_RANKED_6(cudnn, conv2d)
TD_GPU_RANKED_6(cudnn, conv2d_fused)
TD_GPU_RANKED_6(cudnn, conv2d_grad_x)
TD_GPU_RANKED_6(cudnn, conv2d_grad_w)
TD_GPU_RANKED(cudnn, conv2d_statistics)
TD_GPU_RANKED(cudnn, conv2d_scale_relu_grad_w)
