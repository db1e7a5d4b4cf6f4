/*
 * gpu_loss.c -- softmax, targets, cross-entropy, mixup
 */
#include "backend/gpu/gpu.h"

/* --- rows of logits --------------------------------------------------------------------------- */

static td_status accepts_rows(const td_node *n)
{
    TD_TRY(td_gpu_accepts_alike(n));
    return td_gpu_check_plain(n);
}

/* `f` of rows as in tensor x of the node, which are its last dimension */
static td_gpu_rows rows_of(const td_prepared *p, td_gpu_row_function f, int x, void *const *args)
{
    const td_node *n = p->node;
    const td_type *t = td_gpu_type(n, x);
    const int64_t columns = t->dim[t->rank - 1];
    return (td_gpu_rows){ .f = f,
                          .dtype = t->dtype,
                          .rows = td_type_count(t) / columns,
                          .columns = columns,
                          .x = args[x],
                          .y = args[n->n_in] };
}

static td_status start_rows(const td_gpu_rows *r)
{
    return td_gpu_status(td_gpu()->rows(r));
}

#define KERNEL(op_, accepts_)                                                                      \
    const td_kernel td_gpu_##op_ = {                                                               \
        .name = "cuda_" #op_, .op = &td_op_##op_, .accepts = accepts_, .run = run_##op_            \
    };

static td_status run_softmax(const td_prepared *p, void *const *args)
{
    const td_gpu_rows r = rows_of(p, TD_GPU_SOFTMAX, 0, args);
    return start_rows(&r);
}
KERNEL(softmax, accepts_rows)

static td_status run_softmax_grad(const td_prepared *p, void *const *args)
{
    td_gpu_rows r = rows_of(p, TD_GPU_SOFTMAX_GRAD, 1, args);
    r.z = args[0];
    return start_rows(&r);
}
KERNEL(softmax_grad, accepts_rows)

static td_status run_softmax_cross_entropy(const td_prepared *p, void *const *args)
{
    td_gpu_rows r = rows_of(p, TD_GPU_CROSS_ENTROPY, 0, args);
    r.z = args[1];
    return start_rows(&r);
}
KERNEL(softmax_cross_entropy, accepts_rows)

static td_status run_softmax_cross_entropy_grad(const td_prepared *p, void *const *args)
{
    td_gpu_rows r = rows_of(p, TD_GPU_CROSS_ENTROPY_GRAD, 1, args);
    r.z = args[2];
    r.dloss = args[0];
    return start_rows(&r);
}
KERNEL(softmax_cross_entropy_grad, accepts_rows)

static float threshold_of(const td_prepared *p)
{
    return (float)((const td_sigmoid_loss_attr *)p->node->attr)->threshold;
}

static td_status run_sigmoid_cross_entropy(const td_prepared *p, void *const *args)
{
    td_gpu_rows r = rows_of(p, TD_GPU_SIGMOID_CROSS_ENTROPY, 0, args);
    r.z = args[1];
    r.weights = p->node->n_in > 2 ? args[2] : NULL;
    r.threshold = threshold_of(p);
    return start_rows(&r);
}
KERNEL(sigmoid_cross_entropy, accepts_rows)

static td_status run_sigmoid_cross_entropy_grad(const td_prepared *p, void *const *args)
{
    td_gpu_rows r = rows_of(p, TD_GPU_SIGMOID_CROSS_ENTROPY_GRAD, 1, args);
    r.z = args[2];
    r.dloss = args[0];
    r.weights = p->node->n_in > 3 ? args[3] : NULL;
    r.threshold = threshold_of(p);
    return start_rows(&r);
}
KERNEL(sigmoid_cross_entropy_grad, accepts_rows)

/* --- targets ---------------------------------------------------------------------------------- */

static td_status accepts_targets(const td_node *n)
{
    TD_TRY(td_gpu_accepts_any(n));
    return td_gpu_check_plain(n);
}

static td_status run_one_hot(const td_prepared *p, void *const *args)
{
    const td_one_hot_attr *at = p->node->attr;
    const double off = at->smoothing / at->classes;
    return td_gpu_status(
        td_gpu()->targets(&(td_gpu_targets){ .rows = td_in_type(p->node, 0)->dim[0],
                                             .columns = at->classes,
                                             .labels = args[0],
                                             .on = (float)(off + (1 - at->smoothing)),
                                             .off = (float)off,
                                             .q = args[1] }));
}
KERNEL(one_hot, accepts_targets)

static td_status run_mixup(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    return td_gpu_status(td_gpu()->mix(&(td_gpu_mix){ .dtype = x->dtype,
                                                      .rows = x->dim[0],
                                                      .width = td_type_count(x) / x->dim[0],
                                                      .x = args[0],
                                                      .lambda = args[1],
                                                      .partner = args[2],
                                                      .y = args[3] }));
}
KERNEL(mixup, accepts_targets)

static td_status run_cutmix(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    return td_gpu_status(td_gpu()->mix(&(td_gpu_mix){ .dtype = x->dtype,
                                                      .rows = x->dim[0],
                                                      .width = td_type_count(x) / x->dim[0],
                                                      .x = args[0],
                                                      .box = args[1],
                                                      .image_height = x->dim[2],
                                                      .image_width = x->dim[3],
                                                      .partner = args[2],
                                                      .y = args[3] }));
}
KERNEL(cutmix, accepts_targets)
