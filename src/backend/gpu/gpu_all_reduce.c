/*
 * gpu_all_reduce.c -- sums over ranks by their GPUs (device/gpu_ranks.h)
 *
 *     all_reduce_begin   copies its operand to the bucket; the bucket's last part starts the sum
 *     all_reduce_end     follows the sum; copies its part of it to the result
 *
 * Nothing waits on the host.  Whether this run sums at all is read from the memory that the input
 * `update` is bound to, not from the GPU.  Without a group of GPUs the kernels of
 * runtime/all_reduce.c are used.
 */
#include "backend/gpu/gpu.h"
#include "device/gpu_ranks.h"
#include "runtime/all_reduce.h"

static td_status accepts_part(const td_node *n, int update)
{
    td_gpu_tensor unused;
    if (n->n_in > update && !td_value_is_input(n->in[update]))
        return td_error(TD_ENOKERNEL, "operand %d is not an input of the program", update);
    return td_gpu_tensor_of(td_in_type(n, 0), NULL, &unused);
}

static td_status accepts_begin(const td_node *n)
{
    return accepts_part(n, 1);
}

static td_status accepts_end(const td_node *n)
{
    return accepts_part(n, 2);
}

/* `count` consecutive numbers */
static td_gpu_tensor row(void *data, td_dtype dtype, int64_t count)
{
    const int last = TD_GPU_RANK - 1;
    td_gpu_tensor t = { .data = data, .dtype = dtype };
    for (int d = 0; d < last; d++)
        t.dim[d] = 1;
    t.dim[last] = count;
    t.stride[last] = 1;
    return t;
}

static td_status copy_row(td_gpu_tensor to, td_gpu_tensor from)
{
    return td_gpu_status(
        td_gpu()->map(&(td_gpu_map){ .f = TD_GPU_SCALE, .by = 1, .y = to, .x = from }));
}

static td_status run_begin(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_all_reduce_attr *a = n->attr;
    const int64_t count = td_type_count(td_in_type(n, 0));
    bool sums;
    TD_TRY(td_collective_is_wanted(p, 1, args, &sums));
    if (!sums)
        return TD_OK;
    TD_TRY(copy_row(
        row(td_gpu_sums_part(p->sums, a->bucket, a->at), td_gpu_sums_dtype(p->sums), count),
        row(args[0], TD_DT_F32, count)));
    if (n->n_in > 2)
        TD_TRY(copy_row(row(td_gpu_sums_start(p->sums, a->bucket, a->at), TD_DT_F32, count),
                        row(args[2], TD_DT_F32, count)));
    return a->is_last ? td_gpu_sums_begin(p->sums, a->bucket) : TD_OK;
}

/* all but the last part of a bucket are copies only, unless `update` may forbid them */
static bool begin_decides(const td_node *n)
{
    const td_all_reduce_attr *a = n->attr;
    return a->is_last || (!a->always && n->n_in > 1);
}

static td_status run_end(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_all_reduce_attr *a = n->attr;
    const int64_t count = td_type_count(td_in_type(n, 0));
    bool sums;
    TD_TRY(td_collective_is_wanted(p, 2, args, &sums));
    if (!sums)
        return TD_OK;
    TD_TRY(td_gpu_sums_wait(p->sums, a->bucket));
    return copy_row(
        row(args[n->n_in], TD_DT_F32, count),
        row(td_gpu_sums_part(p->sums, a->bucket, a->at), td_gpu_sums_dtype(p->sums), count));
}

/* the first part of a bucket that is read waits for its sum */
static bool end_decides(const td_node *n)
{
    (void)n;
    return true;
}

const td_kernel td_gpu_all_reduce_begin = { .name = "cuda_all_reduce_begin",
                                            .op = &td_op_all_reduce_begin,
                                            .decides_on_host = begin_decides,
                                            .accepts = accepts_begin,
                                            .run = run_begin };

const td_kernel td_gpu_all_reduce_end = { .name = "cuda_all_reduce_end",
                                          .op = &td_op_all_reduce_end,
                                          .decides_on_host = end_decides,
                                          .accepts = accepts_end,
                                          .run = run_end };
