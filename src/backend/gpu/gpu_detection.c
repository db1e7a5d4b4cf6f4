/*
 * gpu_detection.c -- the losses of detectors and their gradients
 */
#include "backend/gpu/gpu.h"

/* the operand that has the predictions: a gradient's operand 0 is dloss */
static int predictions(const td_node *n)
{
    return td_in_type(n, 0)->rank == 3 ? 0 : 1;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(td_gpu_accepts_any(n));
    if (td_in_type(n, predictions(n))->dim[1] > UINT32_MAX)
        return td_error(TD_ENOKERNEL, "an image has more than 2^32 anchors");
    return td_gpu_check_plain(n);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_type *x = td_in_type(n, predictions(n));
    out->scratch_bytes = (size_t)td_gpu_anchors_bytes(x->dim[0], x->dim[1]);
    return TD_OK;
}

static td_gpu_anchors anchors_of(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const int at = predictions(n);
    const td_type *x = td_in_type(n, at);
    return (td_gpu_anchors){ .dtype = x->dtype,
                             .images = x->dim[0],
                             .anchors = x->dim[1],
                             .columns = x->dim[2],
                             .x = args[at],
                             .labels = args[n->n_in - 1],
                             .dloss = at > 0 ? args[0] : NULL,
                             .y = args[n->n_in],
                             .scratch = args[n->n_in + 1] };
}

static td_status run_focal(const td_prepared *p, void *const *args)
{
    const td_focal_attr *at = p->node->attr;
    return td_gpu_status(td_gpu()->focal_loss(&(td_gpu_focal_loss){ .a = anchors_of(p, args),
                                                                    .alpha = (float)at->alpha,
                                                                    .rest = (float)(1 - at->alpha),
                                                                    .gamma = (float)at->gamma,
                                                                    .per_image = at->per_image }));
}

static td_status run_huber(const td_prepared *p, void *const *args)
{
    const td_huber_attr *at = p->node->attr;
    return td_gpu_status(
        td_gpu()->huber_loss(&(td_gpu_huber_loss){ .a = anchors_of(p, args),
                                                   .target = args[predictions(p->node) + 1],
                                                   .delta = (float)at->delta,
                                                   .per_image = at->per_image }));
}

static td_status run_multibox(const td_prepared *p, void *const *args)
{
    const td_multibox_attr *at = p->node->attr;
    return td_gpu_status(td_gpu()->multibox_loss(&(td_gpu_multibox_loss){
        .a = anchors_of(p, args), .ratio = at->ratio, .whole_batch = at->whole_batch }));
}

#define KERNEL(op_, run_)                                                                          \
    const td_kernel td_gpu_##op_ = { .name = "cuda_" #op_,                                         \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts,                                           \
                                     .prepare = prepare,                                           \
                                     .run = run_ };

KERNEL(sigmoid_focal_loss, run_focal)
KERNEL(sigmoid_focal_loss_grad, run_focal)
KERNEL(huber_box_loss, run_huber)
KERNEL(huber_box_loss_grad, run_huber)
KERNEL(multibox_class_loss, run_multibox)
KERNEL(multibox_class_loss_grad, run_multibox)
