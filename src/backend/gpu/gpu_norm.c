/*
 * gpu_norm.c -- batch normalisation, forward and backward
 */
#include <math.h>
#include <string.h>

#include "backend/gpu/gpu.h"

/* --- shapes and memory ------------------------------------------------------------------------ */

static bool is_channels_last(const td_type *t)
{
    return strcmp(t->layout, "acdb") == 0 || t->dim[2] * t->dim[3] == 1;
}

static td_gpu_images images_of(const td_type *t)
{
    return (td_gpu_images){ .dtype = t->dtype,
                            .is_channels_last = is_channels_last(t),
                            .n = t->dim[0],
                            .channels = t->dim[1],
                            .area = t->dim[2] * t->dim[3] };
}

/* enough blocks of threads for the largest GPUs, each with some thousands of elements */
static int64_t parts_of(const td_gpu_images *m)
{
    const int64_t each = 1 << 14, most = 2048, pixels = m->n * m->area;
    const int64_t together = m->is_channels_last ? 256 : 1; /* channels of a block */
    const int64_t blocks = pixels * m->channels / each;
    const int64_t groups = (m->channels + together - 1) / together;
    const int64_t parts = (blocks < most ? blocks : most) / groups;
    return parts > 1 ? parts : 1;
}

static size_t sums_bytes(const td_gpu_images *m)
{
    return (size_t)(parts_of(m) * m->channels) * 2 * sizeof(double);
}

static size_t coefs_bytes(const td_gpu_images *m)
{
    return (size_t)m->channels * TD_GPU_NORM_COEFS * sizeof(float);
}

static td_gpu_norm_work work_of(const td_gpu_images *m, void *scratch, bool has_sums)
{
    const size_t n_bytes = has_sums ? sums_bytes(m) : 0;
    return (td_gpu_norm_work){ .n_parts = parts_of(m),
                               .sums = has_sums ? scratch : NULL,
                               .coefs = (float *)(void *)((char *)scratch + n_bytes) };
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_gpu_images m = images_of(td_in_type(n, 0));
    out->scratch_bytes = sums_bytes(&m) + coefs_bytes(&m);
    return TD_OK;
}

static td_status prepare_infer(const td_node *n, td_prepared *out)
{
    const td_gpu_images m = images_of(td_in_type(n, 0));
    out->scratch_bytes = coefs_bytes(&m);
    return TD_OK;
}

/* --- what is accepted ------------------------------------------------------------------------- */

static td_status check_images(const td_node *n, int i)
{
    const td_type *x = td_in_type(n, 0), *t = td_gpu_type(n, i);
    if (t->dtype != x->dtype || strcmp(t->layout, x->layout) != 0)
        return td_error(TD_ENOKERNEL, "tensors 0 and %d differ in dtype or layout", i);
    if (t->dtype != TD_DT_F32 && !td_dtype_is_half(t->dtype))
        return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(t->dtype));
    if (!td_type_is_plain(t) && strcmp(t->layout, "acdb") != 0)
        return td_error(TD_ENOKERNEL, "layout %s", t->layout);
    return TD_OK;
}

/* images of one type, float32 vectors, masks; scale and shift may be half */
static td_status accepts(const td_node *n)
{
    const int n_alike = n->op == &td_op_batch_norm_statistics        ? 6
                        : n->op == &td_op_batch_norm_scale_relu_grad ? 5
                                                                     : n->n_in + n->n_out;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = td_gpu_type(n, i);
        const bool may_be_half = i >= n_alike && td_dtype_is_half(t->dtype);
        if (t->rank == 4)
            TD_TRY(check_images(n, i));
        else if (t->dtype != TD_DT_F32 && t->dtype != TD_DT_U8 && !may_be_half)
            return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(t->dtype));
    }
    return TD_OK;
}

/* --- forward ---------------------------------------------------------------------------------- */

static const td_norm_attr *attr_of(const td_prepared *p)
{
    return p->node->attr;
}

static float cap_of(const td_prepared *p)
{
    return attr_of(p)->relu6 ? 6 : INFINITY;
}

/* (x, gamma, beta [, z]) -> y, mean, var [, mask] */
static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    void *const *out = args + n->n_in;
    const td_gpu_images m = images_of(td_in_type(n, 0));
    const bool has_relu = n->n_out > 3;
    return td_gpu_status(td_gpu()->norm(&(td_gpu_norm){
        .images = m,
        .work = work_of(&m, out[n->n_out], true),
        .eps = attr_of(p)->eps,
        .cap = has_relu ? cap_of(p) : 0,
        .x = args[0],
        .z = n->n_in > 3 ? args[3] : NULL,
        .gamma = args[1],
        .beta = args[2],
        .mean = out[1],
        .var = out[2],
        .y = out[0],
        .mask = has_relu ? out[3] : NULL,
    }));
}

/* (x, gamma, beta, mean, var [, z]) -> y */
static td_status run_infer(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_gpu_images m = images_of(td_in_type(n, 0));
    return td_gpu_status(td_gpu()->norm(&(td_gpu_norm){
        .images = m,
        .work = work_of(&m, args[n->n_in + 1], false),
        .eps = attr_of(p)->eps,
        .cap = n->op == &td_op_batch_norm_infer ? 0 : cap_of(p),
        .is_given = true,
        .x = args[0],
        .z = n->n_in > 5 ? args[5] : NULL,
        .gamma = args[1],
        .beta = args[2],
        .mean = args[3],
        .var = args[4],
        .y = args[n->n_in],
    }));
}

/* (x, gamma, beta, mean, var, z) -> y, mask */
static td_status run_given(const td_prepared *p, void *const *args)
{
    const td_gpu_images m = images_of(td_in_type(p->node, 0));
    return td_gpu_status(td_gpu()->norm(&(td_gpu_norm){
        .images = m,
        .work = work_of(&m, args[8], false),
        .eps = attr_of(p)->eps,
        .cap = cap_of(p),
        .is_given = true,
        .x = args[0],
        .z = args[5],
        .gamma = args[1],
        .beta = args[2],
        .mean = args[3],
        .var = args[4],
        .y = args[6],
        .mask = args[7],
    }));
}

/* --- backward --------------------------------------------------------------------------------- */

/* (dy [, mask], x, gamma, mean, var [, dy2]) -> dx, dgamma, dbeta [, dz] */
static td_status run_backward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    void *const *out = args + n->n_in;
    const td_gpu_images m = images_of(td_in_type(n, 0));
    const bool has_mask = n->n_in > 5;
    void *const *rest = args + (has_mask ? 2 : 1); /* x, gamma, ... */
    return td_gpu_status(td_gpu()->norm_grad(&(td_gpu_norm_grad){
        .images = m,
        .work = work_of(&m, out[n->n_out], true),
        .eps = attr_of(p)->eps,
        .is_given = n->op == &td_op_batch_norm_infer_grad,
        .dy = args[0],
        .dy2 = n->n_in > 6 ? args[6] : NULL,
        .mask = has_mask ? args[1] : NULL,
        .x = rest[0],
        .gamma = rest[1],
        .mean = rest[2],
        .var = rest[3],
        .dx = out[0],
        .dz = n->n_out > 3 ? out[3] : NULL,
        .dgamma = out[1],
        .dbeta = out[2],
    }));
}

/* (dy, x, gamma, mean, var, scale, shift) -> dx, dgamma, dbeta */
static td_status run_scale_relu_grad(const td_prepared *p, void *const *args)
{
    const td_gpu_images m = images_of(td_in_type(p->node, 0));
    return td_gpu_status(td_gpu()->norm_grad(&(td_gpu_norm_grad){
        .images = m,
        .work = work_of(&m, args[10], true),
        .eps = attr_of(p)->eps,
        .dy = args[0],
        .x = args[1],
        .gamma = args[2],
        .mean = args[3],
        .var = args[4],
        .scale = args[5],
        .shift = args[6],
        .vectors = td_in_type(p->node, 5)->dtype,
        .cap = cap_of(p),
        .dx = args[7],
        .dgamma = args[8],
        .dbeta = args[9],
    }));
}

/* --- vectors ---------------------------------------------------------------------------------- */

static td_status run_scale(const td_prepared *p, void *const *args)
{
    return td_gpu_status(
        td_gpu()->norm_scale(&(td_gpu_norm_scale){ .channels = td_in_type(p->node, 0)->dim[0],
                                                   .eps = attr_of(p)->eps,
                                                   .gamma = args[0],
                                                   .var = args[1],
                                                   .scale = args[2] }));
}

/* (sum, squares, gamma, beta) -> mean, var, scale, shift */
static td_status run_statistics(const td_prepared *p, void *const *args)
{
    return td_gpu_status(td_gpu()->norm_statistics(&(td_gpu_norm_statistics){
        .channels = td_in_type(p->node, 0)->dim[0],
        .eps = attr_of(p)->eps,
        .count = (double)attr_of(p)->count,
        .sum = args[0],
        .squares = args[1],
        .gamma = args[2],
        .beta = args[3],
        .mean = args[4],
        .var = args[5],
        .scale = args[6],
        .shift = args[7],
        .vectors = p->node->out[2]->type.dtype,
    }));
}

static void fill_update(const td_prepared *p, void *const *args, void *out)
{
    const td_norm_attr *a = attr_of(p);
    const double count = (double)a->count;
    *(td_gpu_norm_update *)out =
        (td_gpu_norm_update){ .channels = td_in_type(p->node, 0)->dim[0],
                              .momentum = a->momentum,
                              .unbiased = a->count > 1 ? count / (count - 1) : 1,
                              .finite = p->node->n_in > 4 ? args[4] : NULL,
                              .mean = args[2],
                              .var = args[3],
                              .running_mean = args[0],
                              .running_var = args[1] };
}

static td_status run_update(const td_prepared *p, void *const *args)
{
    td_gpu_norm_update u;
    fill_update(p, args, &u);
    return td_gpu_status(td_gpu()->norm_update(&u));
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define KERNEL(op_, prepare_, run_)                                                                \
    const td_kernel td_gpu_##op_ = { .name = "cuda_" #op_,                                         \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts,                                           \
                                     .prepare = prepare_,                                          \
                                     .run = run_ };

KERNEL(batch_norm, prepare, run_forward)
KERNEL(batch_norm_relu, prepare, run_forward)
KERNEL(batch_norm_add_relu, prepare, run_forward)
KERNEL(batch_norm_grad, prepare, run_backward)
KERNEL(batch_norm_relu_grad, prepare, run_backward)
KERNEL(batch_norm_add_relu_grad, prepare, run_backward)
KERNEL(batch_norm_infer, prepare_infer, run_infer)
KERNEL(batch_norm_relu_infer, prepare_infer, run_infer)
KERNEL(batch_norm_add_relu_infer, prepare_infer, run_infer)
KERNEL(batch_norm_infer_grad, prepare, run_backward)
KERNEL(batch_norm_scale, NULL, run_scale)
KERNEL(batch_norm_statistics, NULL, run_statistics)
KERNEL(batch_norm_add_relu_given, prepare_infer, run_given)
KERNEL(batch_norm_scale_relu_grad, prepare, run_scale_relu_grad)

TD_GPU_MULTI(update, td_gpu_norm_update, TD_GPU_MULTI_NORM_UPDATE, -1)
const td_kernel td_gpu_batch_norm_update = { .name = "cuda_batch_norm_update",
                                             .op = &td_op_batch_norm_update,
                                             .accepts = accepts,
                                             .run = run_update,
                                             .multi = &multi_update };
