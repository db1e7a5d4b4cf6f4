/*
 * gpu_shape.c -- parts of tensors, and tensors with other dimensions: copies with other strides,
 * and elements by index
 */
#include "backend/gpu/gpu.h"

#define KERNEL(op_, accepts_)                                                                      \
    const td_kernel td_gpu_##op_ = {                                                               \
        .name = "cuda_" #op_, .op = &td_op_##op_, .accepts = accepts_, .run = run_##op_            \
    };

static td_status start_copy(td_gpu_tensor x, td_gpu_tensor y)
{
    return td_gpu_status(
        td_gpu()->map(&(td_gpu_map){ .f = TD_GPU_SCALE, .by = 1, .y = y, .x = x }));
}

/* the elements of `x`, of a tensor of `rank`, that a slice keeps */
static td_gpu_tensor sliced(const td_slice_attr *a, td_gpu_tensor x, int rank)
{
    x = td_gpu_part(x, rank, a->axis, a->start, a->size);
    x.stride[TD_GPU_RANK - rank + a->axis] *= a->step;
    return x;
}

static td_status run_slice(const td_prepared *p, void *const *args)
{
    const td_gpu_tensor x = td_gpu_tensor_at(p, 0, args);
    return start_copy(sliced(p->node->attr, x, td_in_type(p->node, 0)->rank),
                      td_gpu_tensor_at(p, 1, args));
}
KERNEL(slice, td_gpu_accepts_any)

static td_status run_slice_grad(const td_prepared *p, void *const *args)
{
    const td_type *x = &p->node->out[0]->type;
    const td_gpu_tensor dx = td_gpu_tensor_at(p, 2, args);
    TD_TRY(td_gpu_status(td_gpu()->fill(args[2], 0, (size_t)td_type_bytes(x))));
    return start_copy(td_gpu_tensor_at(p, 0, args), sliced(p->node->attr, dx, x->rank));
}
KERNEL(slice_grad, td_gpu_accepts_any)

static td_status accepts_gather(const td_node *n)
{
    TD_TRY(td_gpu_accepts_any(n));
    if (n->out[0]->type.dtype == TD_DT_S8)
        return td_error(TD_ENOKERNEL, "dtype is s8");
    return td_gpu_check_plain(n);
}

static td_status start_gather(const td_prepared *p, const td_type *x, void *whole, void *part,
                              const void *index, bool is_grad)
{
    const td_gather_shape v = td_gather_shape_of(p->node, x);
    return td_gpu_status(
        td_gpu()->select_rows(&(td_gpu_select_rows){ .dtype = p->node->out[0]->type.dtype,
                                                     .outer = v.outer,
                                                     .rows = v.rows,
                                                     .inner = v.inner,
                                                     .n = v.n,
                                                     .whole = whole,
                                                     .part = part,
                                                     .index = index,
                                                     .is_grad = is_grad }));
}

static td_status run_gather(const td_prepared *p, void *const *args)
{
    return start_gather(p, td_in_type(p->node, 0), args[0], args[2], args[1], false);
}
KERNEL(gather, accepts_gather)

static td_status run_gather_grad(const td_prepared *p, void *const *args)
{
    return start_gather(p, td_in_type(p->node, 2), args[3], args[0], args[1], true);
}
KERNEL(gather_grad, accepts_gather)

static td_status run_transpose(const td_prepared *p, void *const *args)
{
    const td_gpu_tensor x = td_gpu_tensor_at(p, 0, args);
    const int rank = td_in_type(p->node, 0)->rank, first = TD_GPU_RANK - rank;
    td_gpu_tensor turned = x;
    int perm[TD_RANK_MAX];
    TD_CHECK(td_transpose_perm(p->node, perm));
    for (int d = 0; d < rank; d++) {
        turned.dim[first + d] = x.dim[first + perm[d]];
        turned.stride[first + d] = x.stride[first + perm[d]];
    }
    return start_copy(turned, td_gpu_tensor_at(p, 1, args));
}
KERNEL(transpose, td_gpu_accepts_any)

static td_status run_broadcast_to(const td_prepared *p, void *const *args)
{
    const td_gpu_tensor y = td_gpu_tensor_at(p, 1, args);
    return start_copy(td_gpu_broadcast(td_gpu_tensor_at(p, 0, args), &y), y);
}
KERNEL(broadcast_to, td_gpu_accepts_alike)
