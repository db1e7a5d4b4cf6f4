/*
 * indexing.cu -- elements along an axis, by index, and the sums that are its gradient
 *
 * A thread has one element of the result.  For a sum it walks over all indices, so that the order
 * of the additions does not depend on the grid.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem
{
namespace
{

__global__ void gather_kernel(td_gpu_select_rows g)
{
    for (int64_t i = thread_index(); i < g.outer * g.n * g.inner; i += thread_count()) {
        const int64_t c = i % g.inner, o = i / g.inner / g.n;
        const int64_t row = g.index[i / g.inner % g.n];
        if (row >= 0 && row < g.rows)
            copy_bits(g.part, i, g.whole, (o * g.rows + row) * g.inner + c, g.dtype);
        else
            store(g.part, g.dtype, i, 0.0f);
    }
}

__global__ void gather_grad_kernel(td_gpu_select_rows g)
{
    for (int64_t i = thread_index(); i < g.outer * g.rows * g.inner; i += thread_count()) {
        const int64_t c = i % g.inner, row = i / g.inner % g.rows, o = i / g.inner / g.rows;
        float sum = 0;
        for (int64_t k = 0; k < g.n; k++)
            if (g.index[k] == row)
                sum += load(g.part, g.dtype, (o * g.n + k) * g.inner + c);
        store(g.whole, g.dtype, i, sum);
    }
}

} // namespace

const char *select_rows(const td_gpu_select_rows *g)
{
    const int64_t count = g->outer * g->inner * (g->is_grad ? g->rows : g->n);
    if (count > 0 && g->is_grad)
        TD_LAUNCH(gather_grad_kernel, blocks_for(count), THREADS, 0, queue(), *g);
    else if (count > 0)
        TD_LAUNCH(gather_kernel, blocks_for(count), THREADS, 0, queue(), *g);
    return started();
}

} // namespace tandem
