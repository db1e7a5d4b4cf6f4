/*
 * gpu_layer_norm.c -- rows normalised by their own statistics
 */
#include "backend/gpu/gpu.h"

/* tensors of one dtype, gamma, beta and statistics f32 */
static td_status accepts(const td_node *n)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    if (d != TD_DT_F32 && !td_dtype_is_half(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    for (int i = 1; i < n->n_in; i++)
        if ((n->op->wide_in >> i & 1) && td_in_type(n, i)->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "operand %d is %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype));
    return td_gpu_check_plain(n);
}

static td_status run_norm(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_layer_norm_sizes s = td_layer_norm_sizes_of(td_in_type(n, 0), td_in_type(n, 1));
    return td_gpu_status(
        td_gpu()->norm_rows(&(td_gpu_norm_rows){ .dtype = td_in_type(n, 0)->dtype,
                                                 .rows = s.rows,
                                                 .width = s.width,
                                                 .eps = ((const td_layer_norm_attr *)n->attr)->eps,
                                                 .x = args[0],
                                                 .gamma = args[1],
                                                 .beta = args[2],
                                                 .y = args[3],
                                                 .mean = args[4],
                                                 .scale = args[5] }));
}

static td_status prepare_grad(const td_node *n, td_prepared *out)
{
    const td_layer_norm_sizes s = td_layer_norm_sizes_of(td_in_type(n, 1), td_in_type(n, 2));
    out->scratch_bytes =
        (size_t)(td_gpu_norm_rows_parts(s.rows, s.width) * 2 * s.width) * sizeof(float);
    return TD_OK;
}

static td_status run_grad(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_layer_norm_sizes s = td_layer_norm_sizes_of(td_in_type(n, 1), td_in_type(n, 2));
    return td_gpu_status(td_gpu()->norm_rows_grad(
        &(td_gpu_norm_rows_grad){ .dtype = td_in_type(n, 0)->dtype,
                                  .rows = s.rows,
                                  .width = s.width,
                                  .dy = args[0],
                                  .x = args[1],
                                  .gamma = args[2],
                                  .mean = args[3],
                                  .scale = args[4],
                                  .dx = args[5],
                                  .dgamma = args[6],
                                  .dbeta = args[7],
                                  .n_parts = td_gpu_norm_rows_parts(s.rows, s.width),
                                  .sums = args[8] }));
}

const td_kernel td_gpu_layer_norm = {
    .name = "cuda_layer_norm", .op = &td_op_layer_norm, .accepts = accepts, .run = run_norm
};

const td_kernel td_gpu_layer_norm_grad = { .name = "cuda_layer_norm_grad",
                                           .op = &td_op_layer_norm_grad,
                                           .accepts = accepts,
                                           .prepare = prepare_grad,
                                           .run = run_grad };
