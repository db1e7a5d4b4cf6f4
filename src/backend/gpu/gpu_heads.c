/*
 * gpu_heads.c -- a detector's heads as one table, and back
 *
 * Both sides are described as [N, columns, anchors, H, W], whose strides in the table depend on the
 * order; so joining is an addition, and the gradients are a copy and a sum.
 */
#include "backend/gpu/gpu.h"

enum { IMAGE, COLUMN, ANCHOR, HEIGHT, WIDTH };

typedef struct {
    td_gpu_tensor x, table; /* the head, and its rows */
} pair;

/* a dimension of channels as columns and anchors; `x` has rank 4 */
static void split_channels(td_gpu_tensor *x, const td_join_attr *a)
{
    const int64_t anchors = x->dim[ANCHOR] / a->columns, step = x->stride[ANCHOR];
    const bool is_pixel = a->order == TD_JOIN_PIXEL; /* channel a columns + k, else k anchors + a */
    x->dim[IMAGE] = x->dim[COLUMN];
    x->stride[IMAGE] = x->stride[COLUMN];
    x->dim[COLUMN] = a->columns;
    x->stride[COLUMN] = is_pixel ? step : anchors * step;
    x->dim[ANCHOR] = anchors;
    x->stride[ANCHOR] = is_pixel ? a->columns * step : step;
}

/* rows from `start` of `table` [N, rows, columns], as head x */
static pair pair_of(td_gpu_tensor x, td_gpu_tensor table, const td_join_attr *a, int64_t start)
{
    split_channels(&x, a);
    const int64_t anchors = x.dim[ANCHOR], area = x.dim[HEIGHT] * x.dim[WIDTH];
    const bool is_pixel = a->order == TD_JOIN_PIXEL; /* row p anchors + a, else a area + p */
    const int64_t pixel = is_pixel ? anchors * a->columns : a->columns;
    td_gpu_tensor rows = td_gpu_part(table, 3, 1, start, 1);
    const int64_t stride[] = { table.stride[TD_GPU_RANK - 3], 1,
                               is_pixel ? a->columns : area * a->columns, pixel * x.dim[WIDTH],
                               pixel };
    for (int d = 0; d < TD_GPU_RANK; d++) {
        rows.dim[d] = x.dim[d];
        rows.stride[d] = stride[d];
    }
    return (pair){ x, rows };
}

/* a vector [C] as [1, columns, anchors, 1, 1] */
static td_gpu_tensor by_channel(td_gpu_tensor v, const td_join_attr *a)
{
    v.dim[ANCHOR] = v.dim[WIDTH];
    v.stride[ANCHOR] = v.stride[WIDTH];
    v.dim[WIDTH] = 1;
    split_channels(&v, a);
    return v;
}

static td_status run_join(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_join_attr *a = n->attr;
    const td_gpu_tensor table = td_gpu_tensor_at(p, n->n_in, args);
    int64_t start = 0;
    for (int i = 0; i < n->n_in; i += 2) {
        const pair head = pair_of(td_gpu_tensor_at(p, i, args), table, a, start);
        const td_gpu_tensor bias = by_channel(td_gpu_tensor_at(p, i + 1, args), a);
        TD_TRY(td_gpu_status(td_gpu()->map(&(td_gpu_map){ .f = TD_GPU_ADD,
                                                          .y = head.table,
                                                          .x = head.x,
                                                          .z = td_gpu_broadcast(bias, &head.x) })));
        start += td_join_rows(a, td_in_type(n, i));
    }
    return TD_OK;
}

static td_status run_join_grad(const td_prepared *p, void *const *args)
{
    const td_join_attr *a = p->node->attr;
    const td_gpu_tensor dy = td_gpu_tensor_at(p, 0, args);
    const pair head = pair_of(td_gpu_tensor_at(p, 2, args), dy, a, a->start);
    TD_TRY(td_gpu_status(
        td_gpu()->map(&(td_gpu_map){ .f = TD_GPU_SCALE, .by = 1, .y = head.x, .x = head.table })));
    return td_gpu_status(td_gpu()->reduce(&(td_gpu_reduce){
        .by = 1, .y = by_channel(td_gpu_tensor_at(p, 3, args), a), .x = head.table }));
}

#define KERNEL(op_, run_)                                                                          \
    const td_kernel td_gpu_##op_ = {                                                               \
        .name = "cuda_" #op_, .op = &td_op_##op_, .accepts = td_gpu_accepts_any, .run = run_       \
    };

KERNEL(join_heads, run_join)
KERNEL(join_heads_grad, run_join_grad)
