/*
 * backend/cuda/transpose.cuh -- copies between tensors whose fastest dimensions differ
 */
#ifndef TD_BACKEND_CUDA_TRANSPOSE_CUH
#define TD_BACKEND_CUDA_TRANSPOSE_CUH

#include "backend/cuda/walk.cuh"

namespace tandem
{

/** Queue y = x of `size` bytes an element by tiles; false: not a transposition of long rows. */
bool transpose(const td_gpu_map &m, const walk &w, int size);

} // namespace tandem

#endif
