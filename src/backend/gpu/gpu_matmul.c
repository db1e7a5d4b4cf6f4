/*
 * gpu_matmul.c -- products of batches of matrices whose batches are repeated in any way, by a
 * kernel of our own; gpu_gemm.c has the others
 */
#include "backend/gpu/gpu.h"

enum { ROW = TD_GPU_RANK - 2, COLUMN = TD_GPU_RANK - 1 };

static td_status accepts(const td_node *n)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    return td_gpu_check_plain(n);
}

/* operand i as matrices of y's batch */
static td_gpu_tensor factor(const td_prepared *p, int i, bool is_transposed, const td_gpu_tensor *y,
                            void *const *args)
{
    td_gpu_tensor t = td_gpu_tensor_at(p, i, args), like = t;
    for (int d = 0; d < ROW; d++)
        like.dim[d] = y->dim[d];
    t = td_gpu_broadcast(t, &like);
    if (is_transposed) {
        const int64_t dim = t.dim[ROW], stride = t.stride[ROW];
        t.dim[ROW] = t.dim[COLUMN];
        t.stride[ROW] = t.stride[COLUMN];
        t.dim[COLUMN] = dim;
        t.stride[COLUMN] = stride;
    }
    return t;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_matmul_attr *at = n->attr;
    td_gpu_products m = { .y = td_gpu_tensor_at(p, n->n_in, args) };
    m.a = factor(p, 0, at->transpose_a, &m.y, args);
    m.b = factor(p, 1, at->transpose_b, &m.y, args);
    if (n->n_in > 2) {
        m.bias = args[2];
        m.bias_dtype = td_in_type(n, 2)->dtype;
    }
    return td_gpu_status(td_gpu()->products(&m));
}

const td_kernel td_gpu_matmul_strided = {
    .name = "cuda_matmul", .op = &td_op_matmul, .accepts = accepts, .run = run
};
