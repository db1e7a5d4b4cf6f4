/*
 * arith.cu -- element by element with repeated operands, and sums over dimensions
 *
 * The host sorts dimensions by the result's strides and merges those that every tensor walks as
 * one, so tensors of one layout have one dimension, and threads write neighbouring elements.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem {
namespace {

enum { RANK = TD_GPU_RANK, MAX_TENSORS = 3 };

/* --- walks ------------------------------------------------------------------------------------ */

/* the dimensions of up to three tensors, slowest first; offsets in elements */
struct walk {
    int rank;
    int64_t count;
    int64_t dim[RANK];
    int64_t stride[MAX_TENSORS][RANK];
};

struct places {
    int64_t at[MAX_TENSORS];
};

__device__ inline places places_of(const walk &w, int64_t i)
{
    places p = { { 0, 0, 0 } };
    for (int d = w.rank - 1; d > 0; d--) {
        const int64_t k = i % w.dim[d];
        i /= w.dim[d];
        for (int t = 0; t < MAX_TENSORS; t++)
            p.at[t] += k * w.stride[t][d];
    }
    for (int t = 0; t < MAX_TENSORS; t++)
        p.at[t] += i * w.stride[t][0];
    return p;
}

void add_dim(walk &w, int64_t dim, const int64_t *stride)
{
    w.dim[w.rank] = dim;
    for (int t = 0; t < MAX_TENSORS; t++)
        w.stride[t][w.rank] = stride[t];
    w.rank++;
    w.count *= dim;
}

/* slowest of tensor 0 first */
void sort_dims(walk &w)
{
    for (int i = 1; i < w.rank; i++)
        for (int k = i; k > 0 && w.stride[0][k - 1] < w.stride[0][k]; k--) {
            std::swap(w.dim[k - 1], w.dim[k]);
            for (auto &s : w.stride)
                std::swap(s[k - 1], s[k]);
        }
}

/* can dimensions d - 1 and d be walked as one? */
bool is_one(const walk &w, int d)
{
    for (const auto &s : w.stride)
        if (s[d - 1] != s[d] * w.dim[d])
            return false;
    return true;
}

void merge_dims(walk &w)
{
    for (int d = w.rank - 1; d > 0; d--) {
        if (!is_one(w, d))
            continue;
        w.dim[d - 1] *= w.dim[d];
        for (int t = 0; t < MAX_TENSORS; t++)
            w.stride[t][d - 1] = w.stride[t][d];
        for (int k = d; k + 1 < w.rank; k++) {
            w.dim[k] = w.dim[k + 1];
            for (auto &s : w.stride)
                s[k] = s[k + 1];
        }
        w.rank--;
    }
}

walk finished(walk w)
{
    const int64_t none[MAX_TENSORS] = { 0, 0, 0 };
    if (w.rank == 0)
        add_dim(w, 1, none);
    sort_dims(w);
    merge_dims(w);
    return w;
}

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
    case TD_GPU_MUL:
        return x * z;
    case TD_GPU_RELU:
        return x < 0 ? 0 : x;
    case TD_GPU_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case TD_GPU_SIGMOID:
        return 1 / (1 + expf(-x));
    case TD_GPU_RELU_GRAD:
        return z > 0 ? x : 0;
    case TD_GPU_RELU6_GRAD:
        return z > 0 && z < 6 ? x : 0;
    case TD_GPU_SIGMOID_GRAD:
        return x * z * (1 - z);
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

__global__ void copy_kernel(td_gpu_map m, walk w)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        copy_bits(m.y.data, p.at[0], m.x.data, p.at[1], m.y.dtype);
    }
}

walk walk_of(const td_gpu_map &m)
{
    walk w = {};
    w.count = 1;
    for (int d = 0; d < RANK; d++) {
        const int64_t stride[MAX_TENSORS] = { m.y.stride[d], m.x.stride[d], m.z.stride[d] };
        if (m.y.dim[d] != 1)
            add_dim(w, m.y.dim[d], stride);
    }
    return finished(w);
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
    const walk w = walk_of(*m);
    const bool is_copy = m->f == TD_GPU_SCALE && m->by == 1 && m->x.dtype == m->y.dtype;
    if (is_copy)
        TD_LAUNCH(copy_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    else
        TD_LAUNCH(map_kernel, blocks_for(w.count), THREADS, 0, queue(), *m, w);
    return started();
}

const char *reduce(const td_gpu_reduce *r)
{
    const reduce_walks w = walks_of(*r);
    const unsigned blocks = static_cast<unsigned>(w.out.count < 65535 ? w.out.count : 65535);
    TD_LAUNCH(reduce_kernel, blocks, THREADS, 0, queue(), *r, w);
    return started();
}

} // namespace tandem
