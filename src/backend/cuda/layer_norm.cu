/*
 * layer_norm.cu -- rows normalised by their own statistics
 *
 * A row has a warp, or a block if it is long.  The gradients of gamma and beta have a thread for
 * each column, which adds the rows in order.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem
{
namespace
{

constexpr int64_t LONG_ROW = 256; /* columns from which a row has a block */

template <unsigned LANES> __global__ void normalize_rows(td_gpu_norm_rows p)
{
    const float by = 1 / static_cast<float>(p.width);
    for (int64_t row = row_index<LANES>(); row < p.rows; row += row_count<LANES>()) {
        const int64_t at = row * p.width;
        float sum = 0, squares = 0;
        for (int64_t i = threadIdx.x % LANES; i < p.width; i += LANES)
            sum += load(p.x, p.dtype, at + i);
        const float mean = row_sum<LANES>(sum) * by;
        for (int64_t i = threadIdx.x % LANES; i < p.width; i += LANES) {
            const float d = load(p.x, p.dtype, at + i) - mean;
            squares += d * d;
        }
        const float var = row_sum<LANES>(squares) * by;
        const float scale = 1 / sqrtf(var + static_cast<float>(p.eps));
        for (int64_t i = threadIdx.x % LANES; i < p.width; i += LANES) {
            const float xhat = (load(p.x, p.dtype, at + i) - mean) * scale;
            store(p.y, p.dtype, at + i, p.gamma[i] * xhat + p.beta[i]);
        }
        if (threadIdx.x % LANES == 0) {
            p.mean[row] = mean;
            p.scale[row] = scale;
        }
    }
}

template <unsigned LANES> __global__ void gradient_rows(td_gpu_norm_rows_grad p)
{
    const float by = 1 / static_cast<float>(p.width);
    for (int64_t row = row_index<LANES>(); row < p.rows; row += row_count<LANES>()) {
        const int64_t at = row * p.width;
        const float mean = p.mean[row], scale = p.scale[row];
        float sum = 0, dot = 0;
        for (int64_t i = threadIdx.x % LANES; i < p.width; i += LANES) {
            const float g = p.gamma[i] * load(p.dy, p.dtype, at + i);
            sum += g;
            dot += g * ((load(p.x, p.dtype, at + i) - mean) * scale);
        }
        sum = row_sum<LANES>(sum) * by;
        dot = row_sum<LANES>(dot) * by;
        for (int64_t i = threadIdx.x % LANES; i < p.width; i += LANES) {
            const float g = p.gamma[i] * load(p.dy, p.dtype, at + i);
            const float xhat = (load(p.x, p.dtype, at + i) - mean) * scale;
            store(p.dx, p.dtype, at + i, scale * (g - sum - xhat * dot));
        }
    }
}

__global__ void gradient_columns(td_gpu_norm_rows_grad p)
{
    for (int64_t i = thread_index(); i < p.width; i += thread_count()) {
        double dgamma = 0, dbeta = 0;
        for (int64_t row = 0; row < p.rows; row++) {
            const float dy = load(p.dy, p.dtype, row * p.width + i);
            const float x = load(p.x, p.dtype, row * p.width + i);
            dgamma += dy * ((x - p.mean[row]) * p.scale[row]);
            dbeta += dy;
        }
        p.dgamma[i] = static_cast<float>(dgamma);
        p.dbeta[i] = static_cast<float>(dbeta);
    }
}

} // namespace

const char *norm_rows(const td_gpu_norm_rows *p)
{
    if (p->width < LONG_ROW)
        TD_LAUNCH(normalize_rows<WARP>, blocks_for(p->rows * WARP), THREADS, 0, queue(), *p);
    else
        TD_LAUNCH(normalize_rows<THREADS>, blocks_for(p->rows * THREADS), THREADS, 0, queue(), *p);
    return started();
}

const char *norm_rows_grad(const td_gpu_norm_rows_grad *p)
{
    if (p->width < LONG_ROW)
        TD_LAUNCH(gradient_rows<WARP>, blocks_for(p->rows * WARP), THREADS, 0, queue(), *p);
    else
        TD_LAUNCH(gradient_rows<THREADS>, blocks_for(p->rows * THREADS), THREADS, 0, queue(), *p);
    TD_LAUNCH(gradient_columns, blocks_for(p->width), THREADS, 0, queue(), *p);
    return started();
}

} // namespace tandem
