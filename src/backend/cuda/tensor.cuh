/*
 * backend/cuda/tensor.cuh -- elements of tensors of any dtype and layout, for kernels
 */
#ifndef TD_BACKEND_CUDA_TENSOR_CUH
#define TD_BACKEND_CUDA_TENSOR_CUH

#include <cstddef>

#include "backend/cuda/device.cuh"
#include "device/gpu_kernels.h"

namespace tandem {

/** Element i as a float; integers above 2^24 are rounded. */
__device__ inline float load(const void *data, td_dtype d, int64_t i)
{
    switch (d) {
    case TD_DT_F32:
        return static_cast<const float *>(data)[i];
    case TD_DT_F16:
        return __half2float(static_cast<const __half *>(data)[i]);
    case TD_DT_BF16:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    case TD_DT_I64:
        return static_cast<float>(static_cast<const int64_t *>(data)[i]);
    case TD_DT_I32:
        return static_cast<float>(static_cast<const int32_t *>(data)[i]);
    case TD_DT_U8:
        return static_cast<float>(static_cast<const uint8_t *>(data)[i]);
    default:
        return 0;
    }
}

/** v truncated and saturated to [low, high]; NaN is 0. */
template <typename T> __device__ inline T to_integer(float v, float low, float high, T lowest, T highest)
{
    return v != v ? T(0) : v <= low ? lowest : v >= high ? highest : static_cast<T>(v);
}

/** Rounds to nearest even; to integers, truncates and saturates. */
__device__ inline void store(void *data, td_dtype d, int64_t i, float v)
{
    switch (d) {
    case TD_DT_F32:
        static_cast<float *>(data)[i] = v;
        break;
    case TD_DT_F16:
        static_cast<__half *>(data)[i] = __float2half_rn(v);
        break;
    case TD_DT_BF16:
        static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(v);
        break;
    case TD_DT_I64:
        static_cast<int64_t *>(data)[i] =
            to_integer<int64_t>(v, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX);
        break;
    case TD_DT_I32:
        static_cast<int32_t *>(data)[i] =
            to_integer<int32_t>(v, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX);
        break;
    case TD_DT_U8:
        static_cast<uint8_t *>(data)[i] = to_integer<uint8_t>(v, 0, 255, 0, 255);
        break;
    default:
        break;
    }
}

/** Copy the bits of element i of `from` to element j of `to`, of one dtype. */
__device__ inline void copy_bits(void *to, int64_t j, const void *from, int64_t i, td_dtype d)
{
    switch (d) {
    case TD_DT_I64:
    case TD_DT_F64:
        static_cast<int64_t *>(to)[j] = static_cast<const int64_t *>(from)[i];
        break;
    case TD_DT_F32:
    case TD_DT_I32:
        static_cast<int32_t *>(to)[j] = static_cast<const int32_t *>(from)[i];
        break;
    case TD_DT_F16:
    case TD_DT_BF16:
        static_cast<int16_t *>(to)[j] = static_cast<const int16_t *>(from)[i];
        break;
    default:
        static_cast<uint8_t *>(to)[j] = static_cast<const uint8_t *>(from)[i];
    }
}

constexpr unsigned THREADS = 256, WARP = 32;

/** Blocks of THREADS threads for `n` threads, at most 65,535: kernels walk with a stride. */
inline unsigned blocks_for(int64_t n)
{
    const int64_t blocks = (n + THREADS - 1) / THREADS;
    return static_cast<unsigned>(blocks < 65535 ? (blocks > 0 ? blocks : 1) : 65535);
}

/** The index of this thread among all, and their number. */
__device__ inline int64_t thread_index()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t thread_count()
{
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/** The sum of v over the block's threads, on thread 0; an order that depends on blockDim only. */
__device__ inline double block_sum(double v)
{
    __shared__ double part[WARP];
    for (int step = WARP / 2; step > 0; step /= 2)
        v += __shfl_down_sync(0xffffffffu, v, step);
    __syncthreads(); /* part may still be read by an earlier sum */
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    double sum = 0;
    if (threadIdx.x == 0)
        for (unsigned i = 0; i < blockDim.x / WARP; i++)
            sum += part[i];
    return sum;
}

/** As block_sum, over the threads that are LANES apart, on the first LANES threads. */
template <unsigned LANES> __device__ inline double lane_sum(double v)
{
    __shared__ double part[THREADS];
    const unsigned t = threadIdx.x;
    __syncthreads(); /* part may still be read by an earlier sum */
    part[t] = v;
    for (unsigned half = THREADS / 2; half >= LANES; half /= 2) {
        __syncthreads();
        if (t < half)
            part[t] += part[t + half];
    }
    return t < LANES ? part[t] : 0;
}

} // namespace tandem

#endif
