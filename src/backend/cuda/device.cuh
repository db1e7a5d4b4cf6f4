/*
 * device.cuh -- what every own kernel source (.cu) includes first
 *
 * A .cu file is compiled twice: by nvcc for GPUs, and as host C++17 against tests/cuda/host_grid.h,
 * which runs the grid on the CPU.  These macros hide what the two cannot write in the same way:
 *
 *   TD_LAUNCH(kernel, grid, block, shared_bytes, stream, args...)
 *           starts a grid of blocks; a kernel with a comma in its template arguments is written in
 *           parentheses: TD_LAUNCH((scale<float, 4>), ...)
 *   TD_DYNAMIC_SHARED(type, name)
 *           in a kernel: declares `type *name`, its shared_bytes of dynamic shared memory, aligned
 *           to 16 bytes
 *   TD_UNROLL
 *           before a loop: nvcc unrolls it
 *
 * td_launch_error() returns NULL or why a launch failed since the last call.  Both compute the same
 * bits only if nvcc has -fmad=false; otherwise it compiles a*b+c to one fma.
 */
#ifndef TD_BACKEND_CUDA_DEVICE_CUH
#define TD_BACKEND_CUDA_DEVICE_CUH

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define TD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define TD_DYNAMIC_SHARED(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char td_shared[];                                     \
    type *name = reinterpret_cast<type *>(td_shared)
#define TD_UNROLL _Pragma("unroll")

static inline const char *td_launch_error(void)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#else

#include "cuda/host_grid.h"

#define TD_LAUNCH(kernel, grid, block, shared_bytes, ...)                                          \
    td_grid::launch(#kernel, td_grid::site(), kernel, grid, block, shared_bytes, __VA_ARGS__)
#define TD_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(td_grid::dynamic_shared())
#define TD_UNROLL

static inline const char *td_launch_error(void)
{
    return host_grid_error();
}

#endif

#endif
