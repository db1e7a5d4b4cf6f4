/*
 * arith.cu -- sums over dimensions
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"
#include "backend/cuda/walk.cuh"

namespace tandem
{
namespace
{

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
    const unsigned t = threadIdx.x;
    for (int64_t o = blockIdx.x * LANES + t % LANES; o - t % LANES < w.out.count;
         o += static_cast<int64_t>(gridDim.x) * LANES) {
        const places start = places_of(w.out, o < w.out.count ? o : 0);
        double sum = 0;
        for (int64_t i = t / LANES; o < w.out.count && i < w.in.count; i += THREADS / LANES)
            sum += term(r, w.in, start, i);
        sum = lane_sum<LANES>(sum);
        if (t < LANES && o < w.out.count)
            store(r.y.data, r.y.dtype, start.at[0], static_cast<float>(r.by * sum));
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
