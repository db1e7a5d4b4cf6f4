/*
 * transpose.cu -- copies between tensors whose fastest dimensions differ
 *
 * A block copies a tile through shared memory, so that neighbouring threads read neighbouring
 * elements of x, and write neighbouring elements of y.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"
#include "backend/cuda/transpose.cuh"

namespace tandem
{
namespace
{

constexpr int64_t LEAST = 16; /* shorter rows would leave most of a tile empty */

/* matrices: x [columns][rows], y [rows][columns], neighbours last; steps in elements */
struct matrices {
    const void *x;
    void *y;
    int64_t rows, columns;
    int64_t x_step, y_step; /* from a column of x to the next, from a row of y to the next */
    int64_t row_tiles, column_tiles;
    walk each; /* the first element of each matrix */
};

/* the side of a tile, which has at most 8 KiB */
template <typename T> constexpr int SIDE = sizeof(T) < 4 ? 64 : 32;

template <typename T> __global__ void transpose_kernel(matrices m)
{
    constexpr int side = SIDE<T>, lanes = int(WARP), step = int(THREADS) / lanes;
    constexpr int gap = sizeof(T) < 4 ? 4 / sizeof(T) : 1; /* no two threads use one bank */
    __shared__ T tile[side][side + gap];
    const int lane = int(threadIdx.x) % lanes, first = int(threadIdx.x) / lanes;
    const int64_t count = m.each.count * m.row_tiles * m.column_tiles;
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const int64_t row = i % m.row_tiles * side;
        const int64_t column = i / m.row_tiles % m.column_tiles * side;
        const places at = places_of(m.each, i / m.row_tiles / m.column_tiles);
        const T *x = static_cast<const T *>(m.x) + at.at[1] + column * m.x_step + row;
        T *y = static_cast<T *>(m.y) + at.at[0] + row * m.y_step + column;
        T v[side / step][side / lanes]; /* all reads before the first is used */
        TD_UNROLL
        for (int k = 0; k < side / step; k++) {
            TD_UNROLL
            for (int n = 0; n < side / lanes; n++) {
                const int c = first + k * step, r = lane + n * lanes;
                const bool is_inside = row + r < m.rows && column + c < m.columns;
                v[k][n] = is_inside ? x[c * m.x_step + r] : T(0);
            }
        }
        TD_UNROLL
        for (int k = 0; k < side / step; k++) {
            TD_UNROLL
            for (int n = 0; n < side / lanes; n++)
                tile[first + k * step][lane + n * lanes] = v[k][n];
        }
        __syncthreads();
        TD_UNROLL
        for (int r = first; r < side; r += step) {
            TD_UNROLL
            for (int c = lane; c < side; c += lanes)
                if (row + r < m.rows && column + c < m.columns)
                    y[r * m.y_step + c] = tile[c][r];
        }
        __syncthreads(); /* the tile is written again */
    }
}

template <typename T> void start(matrices m)
{
    constexpr int64_t side = SIDE<T>;
    m.row_tiles = (m.rows + side - 1) / side;
    m.column_tiles = (m.columns + side - 1) / side;
    const int64_t count = m.each.count * m.row_tiles * m.column_tiles;
    const unsigned blocks = static_cast<unsigned>(count < 65535 ? count : 65535);
    TD_LAUNCH(transpose_kernel<T>, blocks, THREADS, 0, queue(), m);
}

/* the dimension in which neighbours of x are, or -1 */
int fastest_of_x(const walk &w)
{
    for (int d = w.rank - 1; d >= 0; d--)
        if (w.stride[1][d] == 1)
            return d;
    return -1;
}

walk without(const walk &w, int d0, int d1)
{
    walk out = {};
    out.count = 1;
    for (int d = 0; d < w.rank; d++) {
        const int64_t stride[MAX_TENSORS] = { w.stride[0][d], w.stride[1][d], 0 };
        if (d != d0 && d != d1)
            add_dim(out, w.dim[d], stride);
    }
    return finished(out);
}

} // namespace

bool transpose(const td_gpu_map &m, const walk &w, int size)
{
    const int last = w.rank - 1, d = fastest_of_x(w);
    if (d < 0 || d == last || w.stride[0][last] != 1 || w.dim[d] < LEAST || w.dim[last] < LEAST)
        return false;
    matrices all = {};
    all.x = m.x.data;
    all.y = m.y.data;
    all.rows = w.dim[d];
    all.columns = w.dim[last];
    all.x_step = w.stride[1][last];
    all.y_step = w.stride[0][d];
    all.each = without(w, d, last);
    if (size == 8)
        start<uint64_t>(all);
    else if (size == 4)
        start<uint32_t>(all);
    else if (size == 2)
        start<uint16_t>(all);
    else
        start<uint8_t>(all);
    return true;
}

} // namespace tandem
