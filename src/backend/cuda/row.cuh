/*
 * backend/cuda/row.cuh -- rows of numbers, each with LANES threads: a warp, or a block of THREADS
 *
 * All threads of a row get the same bits; the order depends on LANES only.
 */
#ifndef TD_BACKEND_CUDA_ROW_CUH
#define TD_BACKEND_CUDA_ROW_CUH

#include "backend/cuda/tensor.cuh"

namespace tandem {

/** combine(parts) of the row's threads, which all call it. */
template <unsigned LANES, typename T, typename F> __device__ inline T row_combine(T v, F combine)
{
    static_assert(LANES == WARP || LANES == THREADS, "a warp, or the whole block");
    for (int step = WARP / 2; step > 0; step /= 2)
        v = combine(v, __shfl_xor_sync(0xffffffffu, v, step));
    if constexpr (LANES > WARP) {
        __shared__ T part[LANES / WARP];
        __syncthreads(); /* part may still be read by an earlier call */
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = v;
        __syncthreads();
        v = part[0];
        for (unsigned i = 1; i < LANES / WARP; i++)
            v = combine(v, part[i]);
    }
    return v;
}

template <unsigned LANES, typename T> __device__ inline T row_sum(T v)
{
    return row_combine<LANES>(v, [](T a, T b) { return a + b; });
}

/** The largest; NaN is skipped. */
template <unsigned LANES> __device__ inline float row_max(float v)
{
    return row_combine<LANES>(v, [](float a, float b) { return fmaxf(a, b); });
}

/** This thread's row of a grid of THREADS, and how many rows the grid has. */
template <unsigned LANES> __device__ inline int64_t row_index()
{
    return thread_index() / LANES;
}

template <unsigned LANES> __device__ inline int64_t row_count()
{
    return thread_count() / LANES;
}

/* --- softmax ---------------------------------------------------------------------------------- */

/** A row's largest element, and the sum of exp(x - largest). */
struct exponentials {
    float max, sum;
};

/** Of elements [at, at + columns). */
template <unsigned LANES>
__device__ inline exponentials row_exponentials(const void *x, td_dtype d, int64_t at,
                                                int64_t columns)
{
    exponentials e = { -INFINITY, 0 };
    for (int64_t i = threadIdx.x % LANES; i < columns; i += LANES)
        e.max = fmaxf(e.max, load(x, d, at + i));
    e.max = row_max<LANES>(e.max);
    for (int64_t i = threadIdx.x % LANES; i < columns; i += LANES)
        e.sum += expf(load(x, d, at + i) - e.max);
    e.sum = row_sum<LANES>(e.sum);
    return e;
}

} // namespace tandem

#endif
