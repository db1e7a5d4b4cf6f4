/*
 * gpu_arith.c -- element by element, copies, and sums over dimensions
 */
#include "backend/gpu/gpu.h"

#include "device/device_memory.h"
#include "ir/leaf.h"

/* --- element by element ----------------------------------------------------------------------- */

static td_status start_map(const td_gpu_map *m)
{
    return td_gpu_status(td_gpu()->map(m));
}

td_status td_gpu_round_operand(const td_prepared *p, int i, void *const *args, void *to)
{
    td_gpu_map m = { .f = TD_GPU_SCALE, .by = 1, .x = td_gpu_tensor_at(p, i, args) };
    m.y = m.x;
    m.y.dtype = td_in_type(p->node, 0)->dtype;
    m.y.data = to;
    return start_map(&m);
}

/* y = by x in place: tensors `from` and `to` of the node */
static td_gpu_map copy_of(const td_prepared *p, int from, int to, double by, void *const *args)
{
    td_gpu_map m = { .f = TD_GPU_SCALE, .by = by, .y = td_gpu_tensor_at(p, to, args) };
    const td_gpu_tensor x = td_gpu_tensor_at(p, from, args);
    m.x = td_gpu_broadcast(x, &m.y);
    return m;
}

static td_status copy(const td_prepared *p, int from, int to, double by, void *const *args)
{
    const td_gpu_map m = copy_of(p, from, to, by, args);
    return start_map(&m);
}

static td_status run_unary(const td_prepared *p, td_gpu_function f, void *const *args)
{
    return start_map(&(td_gpu_map){
        .f = f, .y = td_gpu_tensor_at(p, 1, args), .x = td_gpu_tensor_at(p, 0, args) });
}

/* x and z are repeated where they are smaller than y */
static td_gpu_map binary_of(const td_prepared *p, td_gpu_function f, void *const *args)
{
    td_gpu_map m = { .f = f, .y = td_gpu_tensor_at(p, 2, args) };
    m.x = td_gpu_broadcast(td_gpu_tensor_at(p, 0, args), &m.y);
    m.z = td_gpu_broadcast(td_gpu_tensor_at(p, 1, args), &m.y);
    return m;
}

#define RUN(kind, op_, f)                                                                          \
    static td_status run_##op_(const td_prepared *p, void *const *args)                            \
    {                                                                                              \
        return run_##kind(p, f, args);                                                             \
    }                                                                                              \
    KERNEL(op_, td_gpu_accepts_alike)

#define KERNEL(op_, accepts_)                                                                      \
    const td_kernel td_gpu_##op_ = {                                                               \
        .name = "cuda_" #op_, .op = &td_op_##op_, .accepts = accepts_, .run = run_##op_            \
    };

RUN(unary, round_tf32, TD_GPU_ROUND_TF32)

#define BINARY_KERNELS(K, id, ...)                                                                 \
    static td_status run_##id(const td_prepared *p, void *const *args)                             \
    {                                                                                              \
        td_gpu_map m = binary_of(p, TD_GPU_BINARY, args);                                          \
        m.act = TD_BINARY_##id;                                                                    \
        return start_map(&m);                                                                      \
    }                                                                                              \
    KERNEL(id, td_gpu_accepts_alike)

TD_BINARY_LIST(BINARY_KERNELS, )

/* an activation, or its gradient */
static td_status run_act(const td_prepared *p, td_gpu_function f, td_act act, void *const *args)
{
    const td_node *n = p->node;
    const td_act_attr attr = n->attr ? *(const td_act_attr *)n->attr : (td_act_attr){ 0 };
    td_gpu_map m = {
        .f = f, .act = (int)act, .by = attr.a, .also = attr.b, .x = td_gpu_tensor_at(p, 0, args)
    };
    m.y = td_gpu_tensor_at(p, n->n_in, args);
    if (n->n_in > 1)
        m.z = td_gpu_tensor_at(p, 1, args);
    return start_map(&m);
}

#define ACT_KERNELS(K, id, ...)                                                                    \
    static td_status run_##id(const td_prepared *p, void *const *args)                             \
    {                                                                                              \
        return run_act(p, TD_GPU_ACT, TD_ACT_##id, args);                                          \
    }                                                                                              \
    KERNEL(id, td_gpu_accepts_alike)                                                               \
    static td_status run_##id##_grad(const td_prepared *p, void *const *args)                      \
    {                                                                                              \
        return run_act(p, TD_GPU_ACT_GRAD, TD_ACT_##id, args);                                     \
    }                                                                                              \
    KERNEL(id##_grad, td_gpu_accepts_alike)

TD_ACT_LIST(ACT_KERNELS, )

#define KERNEL_OF_MANY(op_, accepts_, many_)                                                       \
    const td_kernel td_gpu_##op_ = { .name = "cuda_" #op_,                                         \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts_,                                          \
                                     .run = run_##op_,                                             \
                                     .multi = &multi_##many_ };

static void fill_accumulate(const td_prepared *p, void *const *args, void *out)
{
    *(td_gpu_map *)out = binary_of(p, TD_GPU_ADD, args);
}
TD_GPU_MULTI(accumulate, td_gpu_map, TD_GPU_MULTI_MAP, -1)

static td_status run_accumulate(const td_prepared *p, void *const *args)
{
    const td_gpu_map m = binary_of(p, TD_GPU_ADD, args);
    return start_map(&m);
}
KERNEL_OF_MANY(accumulate, td_gpu_accepts_alike, accumulate)

static td_status run_limit_grad(const td_prepared *p, void *const *args)
{
    td_gpu_map m = binary_of(p, TD_GPU_CLIP, args);
    m.by = ((const td_limit_grad_attr *)p->node->attr)->limit;
    return start_map(&m);
}
KERNEL(limit_grad, td_gpu_accepts_alike)

static double factor(const td_node *n)
{
    return ((const td_scale_attr *)n->attr)->by;
}

static td_status run_scale(const td_prepared *p, void *const *args)
{
    return copy(p, 0, 1, factor(p->node), args);
}
KERNEL(scale, td_gpu_accepts_alike)

static td_status run_broadcast_like(const td_prepared *p, void *const *args)
{
    return copy(p, 0, 2, factor(p->node), args);
}
KERNEL(broadcast_like, td_gpu_accepts_alike)

/* a list of values: these nodes run once, so that the copy is in no captured graph */
static td_status send_values(const td_node *n, void *to)
{
    const td_type *t = &n->out[0]->type;
    const size_t n_bytes = (size_t)td_type_count(t) * td_dtype_bytes(t->dtype);
    void *host = td_alloc(n_bytes, 1);
    if (!host)
        return TD_ENOMEM;
    td_constant_fill(n, host);
    const td_status st = td_gpu_memory.copy_in(to, host, n_bytes);
    td_free(host);
    return st;
}

static td_status run_constant(const td_prepared *p, void *const *args)
{
    if (((const td_constant_attr *)p->node->attr)->values)
        return send_values(p->node, args[0]);
    const double value = ((const td_constant_attr *)p->node->attr)->value;
    return start_map(
        &(td_gpu_map){ .f = TD_GPU_CONSTANT, .by = value, .y = td_gpu_tensor_at(p, 0, args) });
}
KERNEL(constant, td_gpu_accepts_any)

/* a vector [C] as [1, C, 1, 1] */
static td_gpu_tensor by_channel(td_gpu_tensor v)
{
    const int last = TD_GPU_RANK - 1, channel = last - 2;
    v.dim[channel] = v.dim[last];
    v.stride[channel] = v.stride[last];
    v.dim[last] = 1;
    return v;
}

static td_status run_bias_add(const td_prepared *p, void *const *args)
{
    td_gpu_map m = { .f = TD_GPU_ADD,
                     .y = td_gpu_tensor_at(p, 2, args),
                     .x = td_gpu_tensor_at(p, 0, args) };
    m.z = td_gpu_broadcast(by_channel(td_gpu_tensor_at(p, 1, args)), &m.y);
    return start_map(&m);
}
KERNEL(bias_add, td_gpu_accepts_any)

/* --- copies ----------------------------------------------------------------------------------- */

/* assign overwrites its first operand */
static void fill_copy(const td_prepared *p, void *const *args, void *out)
{
    const int to = p->node->op == &td_op_assign ? 0 : 1;
    *(td_gpu_map *)out = copy_of(p, 1 - to, to, 1, args);
}
TD_GPU_MULTI(copy, td_gpu_map, TD_GPU_MULTI_MAP, -1)

static td_status run_cast(const td_prepared *p, void *const *args)
{
    return copy(p, 0, 1, 1, args);
}
KERNEL_OF_MANY(cast, td_gpu_accepts_any, copy)

static td_status run_reorder(const td_prepared *p, void *const *args)
{
    return copy(p, 0, 1, 1, args);
}
KERNEL_OF_MANY(reorder, td_gpu_accepts_any, copy)

static td_status run_assign(const td_prepared *p, void *const *args)
{
    return copy(p, 1, 0, 1, args);
}
KERNEL_OF_MANY(assign, td_gpu_accepts_any, copy)

static td_status run_concat(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *y = &n->out[0]->type;
    const int axis = ((const td_concat_attr *)n->attr)->axis;
    int64_t start = 0;
    for (int i = 0; i < n->n_in; i++) {
        const int64_t size = td_in_type(n, i)->dim[axis];
        td_gpu_map m = { .f = TD_GPU_SCALE, .by = 1, .x = td_gpu_tensor_at(p, i, args) };
        m.y = td_gpu_part(td_gpu_tensor_at(p, n->n_in, args), y->rank, axis, start, size);
        TD_TRY(start_map(&m));
        start += size;
    }
    return TD_OK;
}
KERNEL(concat, td_gpu_accepts_any)

/* --- sums ------------------------------------------------------------------------------------- */

static td_status start_reduce(const td_gpu_reduce *r)
{
    return td_gpu_status(td_gpu()->reduce(r));
}

static td_status run_total(const td_prepared *p, double by, void *const *args)
{
    return start_reduce(&(td_gpu_reduce){
        .by = by, .y = td_gpu_tensor_at(p, 1, args), .x = td_gpu_tensor_at(p, 0, args) });
}

static td_status run_sum(const td_prepared *p, void *const *args)
{
    return run_total(p, 1, args);
}
KERNEL(sum, td_gpu_accepts_alike)

static td_status run_mean(const td_prepared *p, void *const *args)
{
    return run_total(p, 1 / (double)td_type_count(td_in_type(p->node, 0)), args);
}
KERNEL(mean, td_gpu_accepts_alike)
