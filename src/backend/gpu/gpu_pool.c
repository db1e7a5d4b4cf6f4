/*
 * gpu_pool.c -- max and average pooling, resizing
 */
#include "backend/gpu/gpu.h"

/* floats of one dtype that GPUs have, and u8 where it is `where`; any layout without blocks */
static td_status accepts(const td_node *n)
{
    const td_dtype wanted = td_in_type(n, 0)->dtype;
    if (wanted != TD_DT_F32 && !td_dtype_is_half(wanted))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(wanted));
    for (int i = 0; i < n->n_in + n->n_out; i++)
        for (int d = 0; d < td_gpu_type(n, i)->rank; d++)
            if (td_gpu_type(n, i)->dim[d] > INT32_MAX)
                return td_error(TD_ENOKERNEL, "tensor %d has dimensions above %d", i, INT32_MAX);
    for (int i = 1; i < n->n_in + n->n_out; i++) {
        const td_dtype d = td_gpu_type(n, i)->dtype;
        if (!td_is_shape_only(n, i) && d != wanted && d != TD_DT_U8)
            return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(d));
    }
    return td_gpu_accepts_any(n);
}

static td_status start(const td_gpu_pool *a)
{
    return td_gpu_status(td_gpu()->pool(a));
}

static td_gpu_pool pool_of(const td_prepared *p, td_gpu_window_function f)
{
    const td_pool_attr *a = p->node->attr;
    return (td_gpu_pool){ .f = f,
                          .kernel = a->kernel,
                          .width = td_pool_width(a),
                          .stride = a->stride,
                          .pad = a->pad,
                          .count_include_pad = a->count_include_pad };
}

static td_status run_max(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = pool_of(p, TD_GPU_MAX_POOL);
    a.image = td_gpu_tensor_at(p, 0, args);
    a.windows = td_gpu_tensor_at(p, 1, args);
    a.where = td_gpu_tensor_at(p, 2, args);
    return start(&a);
}

static td_status run_max_grad(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = pool_of(p, TD_GPU_MAX_POOL_GRAD);
    a.windows = td_gpu_tensor_at(p, 0, args);
    a.where = td_gpu_tensor_at(p, 1, args);
    a.image = td_gpu_tensor_at(p, 3, args);
    return start(&a);
}

static td_status run_avg(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = pool_of(p, TD_GPU_AVG_POOL);
    a.image = td_gpu_tensor_at(p, 0, args);
    a.windows = td_gpu_tensor_at(p, 1, args);
    return start(&a);
}

static td_status run_avg_grad(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = pool_of(p, TD_GPU_AVG_POOL_GRAD);
    a.windows = td_gpu_tensor_at(p, 0, args);
    a.image = td_gpu_tensor_at(p, 2, args);
    return start(&a);
}

static td_status run_resize(const td_prepared *p, void *const *args)
{
    return start(&(td_gpu_pool){ .f = TD_GPU_RESIZE,
                                 .image = td_gpu_tensor_at(p, 0, args),
                                 .windows = td_gpu_tensor_at(p, 1, args) });
}

static td_status run_resize_grad(const td_prepared *p, void *const *args)
{
    return start(&(td_gpu_pool){ .f = TD_GPU_RESIZE_GRAD,
                                 .windows = td_gpu_tensor_at(p, 0, args),
                                 .image = td_gpu_tensor_at(p, 2, args) });
}

static td_gpu_pool interpolation_of(const td_prepared *p, td_gpu_window_function f,
                                    const td_type *x)
{
    return (td_gpu_pool){ .f = f,
                          .rows = td_resize_axis_of(p->node->attr, x, false),
                          .columns = td_resize_axis_of(p->node->attr, x, true) };
}

static td_status run_interpolate(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = interpolation_of(p, TD_GPU_INTERPOLATE, td_in_type(p->node, 0));
    a.image = td_gpu_tensor_at(p, 0, args);
    a.windows = td_gpu_tensor_at(p, 1, args);
    return start(&a);
}

static td_status run_interpolate_grad(const td_prepared *p, void *const *args)
{
    td_gpu_pool a = interpolation_of(p, TD_GPU_INTERPOLATE_GRAD, td_in_type(p->node, 1));
    a.windows = td_gpu_tensor_at(p, 0, args);
    a.image = td_gpu_tensor_at(p, 2, args);
    return start(&a);
}

#define KERNEL(op_, run_)                                                                          \
    const td_kernel td_gpu_##op_ = {                                                               \
        .name = "cuda_" #op_, .op = &td_op_##op_, .accepts = accepts, .run = run_                  \
    };

KERNEL(max_pool2d, run_max)
KERNEL(max_pool2d_grad, run_max_grad)
KERNEL(avg_pool2d, run_avg)
KERNEL(avg_pool2d_grad, run_avg_grad)
KERNEL(resize, run_interpolate)
KERNEL(resize_grad, run_interpolate_grad)
KERNEL(resize_nearest, run_resize)
KERNEL(resize_nearest_grad, run_resize_grad)
