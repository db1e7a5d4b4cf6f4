/*
 * backend/cuda/row.cuh -- rows of numbers, each with LANES threads: a warp, or a block of THREADS
 *
 * All threads of a row get the same bits; the order depends on LANES only.
 */
#ifndef TD_BACKEND_CUDA_ROW_CUH
#define TD_BACKEND_CUDA_ROW_CUH

#include "backend/cuda/vector.cuh"

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

/* --- rows of vectors -------------------------------------------------------------------------- */

/** LANES threads have a row in registers, each of them up to VECTORS vectors. */
template <unsigned LANES_, int VECTORS_> struct row_shape {
    static constexpr unsigned LANES = LANES_;
    static constexpr int VECTORS = VECTORS_;
};

/** More elements do not fit. */
constexpr int64_t MOST_COLUMNS = 2 * WIDE * THREADS;

/** f(T(), row_shape()) for rows of at most MOST_COLUMNS elements. */
template <typename F> void with_rows(td_dtype d, int64_t width, F f)
{
    constexpr int64_t of_warp = WIDE * WARP;
    with_type(d, [&](auto type) {
        if (width <= of_warp)
            f(type, row_shape<WARP, 1>());
        else if (width <= 2 * of_warp)
            f(type, row_shape<WARP, 2>());
        else if (width <= 3 * of_warp)
            f(type, row_shape<WARP, 3>());
        else if (width <= 4 * of_warp)
            f(type, row_shape<WARP, 4>());
        else if (width <= WIDE * THREADS)
            f(type, row_shape<THREADS, 1>());
        else
            f(type, row_shape<THREADS, 2>());
    });
}

/** The first column of this thread's vector k. */
template <typename S> __device__ inline int column_of(int k)
{
    return WIDE * (k * int(S::LANES) + int(threadIdx.x % S::LANES));
}

/** f(k, column) for this thread's vectors of a row. */
template <typename S, typename F> __device__ inline void each_vector(int width, F f)
{
    TD_UNROLL
    for (int k = 0; k < S::VECTORS; k++)
        if (column_of<S>(k) < width)
            f(k, column_of<S>(k));
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
