/*
 * matmul.cu -- products of batches of matrices, of any strides, in tiles of SIDE x SIDE results
 *
 * A block has a thread for each result of a tile.  All read SIDE columns of a and SIDE rows of b at
 * a time; sums are float32, in the order of k.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem
{
namespace
{

constexpr unsigned SIDE = 16;
static_assert(SIDE * SIDE == THREADS, "a thread for each result of a tile");

constexpr int ROW = TD_GPU_RANK - 2, COLUMN = TD_GPU_RANK - 1;

/* the offset of matrix `i` of the batch `y` in `t`, whose strides are 0 where it is repeated */
__device__ inline int64_t matrix_at(const td_gpu_tensor &t, const td_gpu_tensor &y, int64_t i)
{
    int64_t at = 0;
    for (int d = ROW - 1; d >= 0; d--) {
        at += i % y.dim[d] * t.stride[d];
        i /= y.dim[d];
    }
    return at;
}

__device__ inline float element(const td_gpu_tensor &t, int64_t from, int64_t row, int64_t column)
{
    const bool is_inside = row < t.dim[ROW] && column < t.dim[COLUMN];
    return is_inside ? load(t.data, t.dtype, from + row * t.stride[ROW] + column * t.stride[COLUMN])
                     : 0;
}

__global__ void matmul_kernel(td_gpu_products p, int64_t batches)
{
    __shared__ float left[SIDE][SIDE], right[SIDE][SIDE + 1];
    const unsigned r = threadIdx.x / SIDE, c = threadIdx.x % SIDE;
    const int64_t down = (p.y.dim[ROW] + SIDE - 1) / SIDE;
    const int64_t across = (p.y.dim[COLUMN] + SIDE - 1) / SIDE;
    for (int64_t t = blockIdx.x; t < batches * down * across; t += gridDim.x) {
        const int64_t i = t / (down * across);
        const int64_t a = matrix_at(p.a, p.y, i), b = matrix_at(p.b, p.y, i);
        const int64_t row = t / across % down * SIDE + r, column = t % across * SIDE + c;
        float sum = 0;
        for (int64_t k = 0; k < p.a.dim[COLUMN]; k += SIDE) {
            left[r][c] = element(p.a, a, row, k + c);
            right[r][c] = element(p.b, b, k + r, column);
            __syncthreads();
            for (unsigned l = 0; l < SIDE; l++)
                sum += left[r][l] * right[l][c];
            __syncthreads();
        }
        if (row < p.y.dim[ROW] && column < p.y.dim[COLUMN]) {
            sum += p.bias ? load(p.bias, p.bias_dtype, column) : 0;
            store(p.y.data, p.y.dtype,
                  matrix_at(p.y, p.y, i) + row * p.y.stride[ROW] + column * p.y.stride[COLUMN], sum);
        }
    }
}

} // namespace

const char *products(const td_gpu_products *p)
{
    const td_gpu_tensor &y = p->y;
    const int64_t batches = y.dim[0] * y.dim[1] * y.dim[2];
    const int64_t tiles = batches * ((y.dim[ROW] + SIDE - 1) / SIDE) *
                          ((y.dim[COLUMN] + SIDE - 1) / SIDE);
    TD_LAUNCH(matmul_kernel, blocks_for(tiles * THREADS), THREADS, 0, queue(), *p, batches);
    return started();
}

} // namespace tandem
