/*
 * arith.cu -- element by element with repeated operands, and sums over dimensions
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"
#include "backend/cuda/walk.cuh"
#include "ops/act_list.h"

namespace tandem
{
namespace
{

/* --- element by element ----------------------------------------------------------------------- */

__device__ inline float round_tf32(float v)
{
    const uint32_t u = __float_as_uint(v);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    return __uint_as_float((u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu);
}

__device__ inline float apply(td_gpu_function f, float by, float x, float z)
{
    switch (f) {
    case TD_GPU_SCALE:
        return by * x;
    case TD_GPU_ADD:
        return x + z;
    case TD_GPU_CLIP:
        x *= z;
        return x > by ? by : x < -by ? -by : x;
    case TD_GPU_ROUND_TF32:
        return round_tf32(x);
    default:
        return by;
    }
}

__global__ void map_kernel(td_gpu_map m, walk w)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        const float x = m.x.data ? load(m.x.data, m.x.dtype, p.at[1]) : 0;
        const float z = m.z.data ? load(m.z.data, m.z.dtype, p.at[2]) : 0;
        store(m.y.data, m.y.dtype, p.at[0], apply(m.f, static_cast<float>(m.by), x, z));
    }
}

/* --- activations ------------------------------------------------------------------------------ */

typedef float real;

#define EXP   expf
#define EXPM1 expm1f
#define LOG   logf
#define SQRT  sqrtf
#define POW   powf
#define TANH  tanhf
#define ERF   erff
#define ABS   fabsf

#define FUNCTION(K, id, tf, tf_grad, fields, reads, zero, text, formula, ...)                      \
    case TD_ACT_##id:                                                                              \
        return formula;

__device__ inline float act_of(int act, float a, float b, float x)
{
    switch (act) {
        TD_ACT_LIST(FUNCTION, )
    default:
        return x;
    }
}

/* X or Y */
#define READS_X x
#define READS_Y y

#define GRADIENT(K, id, tf, tf_grad, fields, reads, zero, text, formula, grad)                     \
    case TD_ACT_##id: {                                                                            \
        const float READS_##reads = with;                                                          \
        return grad;                                                                               \
    }

__device__ inline float act_gradient_of(int act, float a, float b, float dy, float with)
{
    switch (act) {
        TD_ACT_LIST(GRADIENT, )
    default:
        return dy;
    }
}

/* apart from map_kernel, whose registers these functions would increase */
__global__ void act_kernel(td_gpu_map m, walk w)
{
    const float a = static_cast<float>(m.by), b = static_cast<float>(m.also);
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        const float x = load(m.x.data, m.x.dtype, p.at[1]);
        store(m.y.data, m.y.dtype, p.at[0], act_of(m.act, a, b, x));
    }
}

__global__ void act_grad_kernel(td_gpu_map m, walk w)
{
    const float a = static_cast<float>(m.by), b = static_cast<float>(m.also);
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        const float dy = load(m.x.data, m.x.dtype, p.at[1]);
        const float with = load(m.z.data, m.z.dtype, p.at[2]);
        store(m.y.data, m.y.dtype, p.at[0], act_gradient_of(m.act, a, b, dy, with));
    }
}

#define BINARY(K, id, tf, zero, text, formula)                                                     \
    case TD_BINARY_##id:                                                                           \
        return formula;

__device__ inline float binary_of(int function, float x, float z)
{
    switch (function) {
        TD_BINARY_LIST(BINARY, )
    default:
        return x;
    }
}

__global__ void binary_kernel(td_gpu_map m, walk w)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        const float x = load(m.x.data, m.x.dtype, p.at[1]);
        const float z = load(m.z.data, m.z.dtype, p.at[2]);
        store(m.y.data, m.y.dtype, p.at[0], binary_of(m.act, x, z));
    }
}

__global__ void copy_kernel(td_gpu_map m, walk w)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        copy_bits(m.y.data, p.at[0], m.x.data, p.at[1], m.y.dtype);
    }
}

/* --- sums ------------------------------------------------------------------------------------- */

/* `out`: the results, of y, x and z; `in`: the terms of one result, of x and z */
struct reduce_walks {
    walk out, in;
};

__device__ inline float term(const td_gpu_reduce &r, const walk &in, const places &start, int64_t i)
{
    const places p = places_of(in, i);
    const float x = load(r.x.data, r.x.dtype, start.at[1] + p.at[1]);
    return r.z.data ? x * load(r.z.data, r.z.dtype, start.at[2] + p.at[2]) : x;
}

/* one block for each result */
__global__ void reduce_kernel(td_gpu_reduce r, reduce_walks w)
{
    for (int64_t o = blockIdx.x; o < w.out.count; o += gridDim.x) {
        const places start = places_of(w.out, o);
        double sum = 0; /* terms cancel; even where f64 is slow, memory is slower */
        for (int64_t i = threadIdx.x; i < w.in.count; i += blockDim.x)
            sum += term(r, w.in, start, i);
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            store(r.y.data, r.y.dtype, start.at[0], static_cast<float>(r.by * sum));
    }
}

/* LANES results that are neighbours in x too, as channels are where they are last */
template <unsigned LANES> __global__ void reduce_neighbours(td_gpu_reduce r, reduce_walks w)
{
    __shared__ double part[THREADS];
    const unsigned t = threadIdx.x;
    for (int64_t o = blockIdx.x * LANES + t % LANES; o - t % LANES < w.out.count;
         o += static_cast<int64_t>(gridDim.x) * LANES) {
        const places start = places_of(w.out, o < w.out.count ? o : 0);
        double sum = 0;
        for (int64_t i = t / LANES; o < w.out.count && i < w.in.count; i += THREADS / LANES)
            sum += term(r, w.in, start, i);
        part[t] = sum;
        for (unsigned half = THREADS / 2; half >= LANES; half /= 2) {
            __syncthreads();
            if (t < half)
                part[t] += part[t + half];
        }
        if (t < LANES && o < w.out.count)
            store(r.y.data, r.y.dtype, start.at[0], static_cast<float>(r.by * part[t]));
        __syncthreads();
    }
}

/* do neighbouring results, not the terms of one, come from neighbouring elements of x? */
bool has_neighbours(const reduce_walks &w)
{
    return w.out.stride[1][w.out.rank - 1] == 1 && w.in.stride[1][w.in.rank - 1] != 1;
}

reduce_walks walks_of(const td_gpu_reduce &r)
{
    reduce_walks w = {};
    w.out.count = w.in.count = 1;
    for (int d = 0; d < RANK; d++) {
        const bool is_summed = r.y.dim[d] == 1 && r.x.dim[d] != 1;
        const int64_t to = is_summed ? r.x.stride[d] : r.y.stride[d]; /* for the order only */
        const int64_t stride[MAX_TENSORS] = { to, r.x.stride[d], r.z.stride[d] };
        if (r.x.dim[d] != 1)
            add_dim(is_summed ? w.in : w.out, r.x.dim[d], stride);
    }
    return { finished(w.out), finished(w.in) };
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *map(const td_gpu_map *m)
{
    const walk w = walk_of(m->y, m->x, m->z);
    const bool is_copy = m->f == TD_GPU_SCALE && m->by == 1 && m->x.dtype == m->y.dtype;
    if (m->f == TD_GPU_ACT)
        TD_LAUNCH(act_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    else if (m->f == TD_GPU_ACT_GRAD)
        TD_LAUNCH(act_grad_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    else if (m->f == TD_GPU_BINARY)
        TD_LAUNCH(binary_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    else if (is_copy)
        TD_LAUNCH(copy_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    else
        TD_LAUNCH(map_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    return started();
}

const char *reduce(const td_gpu_reduce *r)
{
    const reduce_walks w = walks_of(*r);
    constexpr unsigned few = 8, many = WARP;
    const int64_t lanes = !has_neighbours(w) ? 1 : w.out.count < 256 * many ? few : many;
    const int64_t all = (w.out.count + lanes - 1) / lanes;
    const unsigned blocks = static_cast<unsigned>(all < 65535 ? all : 65535);
    if (lanes == many)
        TD_LAUNCH(reduce_neighbours<many>, blocks, THREADS, 0, queue(), *r, w);
    else if (lanes == few)
        TD_LAUNCH(reduce_neighbours<few>, blocks, THREADS, 0, queue(), *r, w);
    else
        TD_LAUNCH(reduce_kernel, blocks, THREADS, 0, queue(), *r, w);
    return started();
}

} // namespace tandem
