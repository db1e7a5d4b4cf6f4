/*
 * sample_kernels.cu -- kernels that use what host_grid.h provides; nvcc compiles them, too
 */
#include "backend/cuda/device.cuh"

#include "cuda/sample_kernels.h"

namespace
{
__device__ __forceinline__ float sum_warp(float value)
{
    TD_UNROLL
    for (unsigned delta = 16; delta > 0; delta /= 2)
        value += __shfl_down_sync(0xffffffffu, value, delta);
    return value;
}

__global__ void __launch_bounds__(1024) sum_blocks(const float *__restrict__ x, int n, float *sum)
{
    __shared__ float parts[32];
    float own = 0;
    for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += int(blockDim.x * gridDim.x))
        own += __ldg(x + i);
    own = sum_warp(own);
    if (threadIdx.x % warpSize == 0)
        parts[threadIdx.x / warpSize] = own;
    __syncthreads();
    if (threadIdx.x >= warpSize)
        return;
    own = sum_warp(threadIdx.x < blockDim.x / warpSize ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0)
        atomicAdd(sum, own);
}

template <int BINS, typename T> __global__ void histogram(const T *x, int n, T *counts)
{
    TD_DYNAMIC_SHARED(T, own);
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        own[i] = 0;
    __syncthreads();
    for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += int(blockDim.x * gridDim.x))
        atomicAdd(&own[x[i] % BINS], 1);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        atomicAdd(&counts[i], own[i]);
}

__global__ void transpose(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[32][33];
    int col = int(blockIdx.x * 32 + threadIdx.x), row = int(blockIdx.y * 32 + threadIdx.y);
    for (int i = 0; i < 32; i += int(blockDim.y))
        if (row + i < rows && col < cols)
            tile[int(threadIdx.y) + i][threadIdx.x] = in[(row + i) * cols + col];
    __syncthreads();
    col = int(blockIdx.y * 32 + threadIdx.x);
    row = int(blockIdx.x * 32 + threadIdx.y);
    for (int i = 0; i < 32; i += int(blockDim.y))
        if (row + i < cols && col < rows)
            out[(row + i) * rows + col] = tile[threadIdx.x][int(threadIdx.y) + i];
}

__global__ void reverse_block(const int *in, int *out, int n)
{
    __shared__ int values[1024];
    int i = int(threadIdx.x);
    if (i >= n)
        return;
    values[i] = in[i];
    __syncthreads();
    out[i] = values[n - 1 - i];
}

__global__ void use_intrinsics(unsigned *out)
{
    const unsigned all = 0xffffffffu, i = threadIdx.x, lane = i % 32;
    unsigned *own = out + i * N_RESULTS;
    own[0] = unsigned(__syncthreads_or(i == 40));
    own[1] = unsigned(__syncthreads_and(i != 40));
    own[2] = unsigned(__syncthreads_count(i % 3 == 0));
    own[3] = __ballot_sync(all, lane % 4 == 1);
    own[4] = unsigned(__any_sync(all, i == 40));
    own[5] = unsigned(__all_sync(all, i != 40));
    own[6] = __shfl_sync(all, i, 5, 8);
    own[7] = __shfl_up_sync(all, i, 3, 16);
    own[8] = __shfl_down_sync(all, i, 3, 16);
    own[9] = __shfl_xor_sync(all, i, 17);
    own[10] = unsigned(__shfl_xor_sync(all, double(i) + 0.5, 1) * 2);
    if (lane < 8) /* a part of the warp, while the other lanes do something else */
        own[11] = __shfl_sync(0xffu, i, int(lane + 1) % 8);
    else
        own[11] = __ballot_sync(0xffffff00u, lane > 20);
    __syncwarp();
    own[12] = __activemask() >> lane & 1;
}

__global__ void record_order(unsigned *order, unsigned *counter)
{
    order[atomicAdd(counter, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void scale_halves(const unsigned short *in, unsigned short *half, unsigned short *bf16,
                             int n, float scale)
{
    int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    half[i] = __half_as_ushort(__float2half_rn(__half2float(__ushort_as_half(in[i])) * scale));
    bf16[i] = __bfloat16_as_ushort(
        __float2bfloat16_rn(__bfloat162float(__ushort_as_bfloat16(in[i])) * scale));
}

__global__ void nothing(int)
{
}

__global__ void shared_store(int *out, int offset)
{
    TD_DYNAMIC_SHARED(int, values);
    values[offset] = 7;
    out[0] = values[offset];
}

/* lanes that have returned take no part, though the mask contains them */
__global__ void leave_lanes(unsigned *out)
{
    const unsigned all = 0xffffffffu, i = threadIdx.x;
    if (i % 2 == 1)
        return;
    out[i] = __ballot_sync(all, i != 4);
    out[i + 1] = __shfl_down_sync(all, i, i % 4 == 0 ? 1 : 2);
}

/* the neighbour's value is there only if the neighbour ran before: a barrier is missing */
__global__ void forget_barrier(int *out)
{
    TD_DYNAMIC_SHARED(int, values);
    unsigned i = threadIdx.x;
    values[i] = int(i);
    out[i] = i > 0 ? values[i - 1] : -1;
}

/* uses DEPTH KiB of stack and more */
__device__ int use_stack(int depth, volatile char *above)
{
    volatile char bytes[1024];
    bytes[0] = *above;
    return (depth > 0 ? use_stack(depth - 1, bytes) : 0) + bytes[0];
}

__device__ void wait_at_two_lines()
{
    if (threadIdx.x == 3)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void get_stuck(stuck how, int *out)
{
    const unsigned all = 0xffffffffu;
    bool is_third = threadIdx.x == 3;
    if (how == stuck::two_lines)
        wait_at_two_lines();
    else if (how == stuck::two_intrinsics)
        out[threadIdx.x] = is_third ? __any_sync(all, 1) : __shfl_sync(all, 1, 0);
    else if (how == stuck::two_masks)
        __syncwarp(is_third ? 0xfu : all);
    else if (how == stuck::foreign_mask)
        __syncwarp(0x7u);
    else if (how == stuck::block_and_warp && is_third)
        __syncwarp();
    __syncthreads();
    if (how == stuck::deep_stack && threadIdx.x == 0) {
        volatile char top = 1;
        out[0] = use_stack(400, &top);
    }
}
} // namespace

void sample_sum(const float *x, int n, float *sum, int n_blocks, int n_threads)
{
    TD_LAUNCH(sum_blocks, n_blocks, n_threads, 0, nullptr, x, n, sum);
}

void sample_histogram(const unsigned *x, int n, unsigned *counts, int n_blocks, int n_threads)
{
    TD_LAUNCH((histogram<N_BINS, unsigned>), n_blocks, n_threads, N_BINS * sizeof(unsigned),
              nullptr, x, n, counts);
}

void sample_transpose(const float *in, float *out, int rows, int cols)
{
    dim3 grid((cols + 31) / 32, (rows + 31) / 32);
    TD_LAUNCH(transpose, grid, dim3(32, 8), 0, nullptr, in, out, rows, cols);
}

void sample_reverse(const int *in, int *out, int n, int n_threads)
{
    TD_LAUNCH(reverse_block, 1, n_threads, 0, nullptr, in, out, n);
}

void sample_intrinsics(unsigned *out)
{
    TD_LAUNCH(use_intrinsics, 1, 64, 0, nullptr, out);
}

void sample_order(unsigned *order, unsigned *counter, int n_blocks, int n_threads)
{
    TD_LAUNCH(record_order, n_blocks, n_threads, 0, nullptr, order, counter);
}

void sample_halves(const unsigned short *in, unsigned short *half, unsigned short *bf16, int n,
                   float scale)
{
    TD_LAUNCH(scale_halves, (n + 255) / 256, 256, 0, nullptr, in, half, bf16, n, scale);
}

void sample_launch(int gx, int gy, int gz, int bx, int by, int bz, size_t shared_bytes)
{
    TD_LAUNCH(nothing, dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes, nullptr, 0);
}

void sample_leave(unsigned *out)
{
    TD_LAUNCH(leave_lanes, 1, 20, 0, nullptr, out);
}

void sample_race(int *out, int n)
{
    TD_LAUNCH(forget_barrier, 1, n, size_t(n) * sizeof(int), nullptr, out);
}

void sample_stuck(stuck how)
{
    static int out[64];
    TD_LAUNCH(get_stuck, 2, 64, 0, nullptr, how, out);
}

void sample_shared(int *out, int n, int offset)
{
    TD_LAUNCH(shared_store, 1, 1, size_t(n) * sizeof(int), nullptr, out, offset);
}
