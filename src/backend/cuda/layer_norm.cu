/*
 * layer_norm.cu -- rows normalised by their own statistics
 *
 * A row of whole vectors of eight stays in the registers of a warp, or of a block if it is long;
 * other rows are read again for each sum.  The gradients of gamma and beta are sums over rows: each
 * of n_parts blocks adds its own rows, and a second kernel adds the parts, in an order that depends
 * on the shape only.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"

namespace tandem
{
namespace
{

/* --- rows of whole vectors -------------------------------------------------------------------- */

bool has_vectors(int64_t width)
{
    return width % WIDE == 0 && width <= MOST_COLUMNS;
}

/* zeros beyond the row */
template <typename T, typename S>
__device__ inline void fetch_row(const void *data, int64_t at, int width,
                                 elements<T, WIDE> (&v)[S::VECTORS])
{
    TD_UNROLL
    for (int k = 0; k < S::VECTORS; k++)
        v[k] = column_of<S>(k) < width ? fetch<T, WIDE>(data, at + column_of<S>(k))
                                       : elements<T, WIDE>{};
}

template <typename T, typename S> __global__ void normalize_vectors(td_gpu_norm_rows p)
{
    const int width = int(p.width);
    const float by = 1 / static_cast<float>(width);
    for (int64_t row = row_index<S::LANES>(); row < p.rows; row += row_count<S::LANES>()) {
        elements<T, WIDE> x[S::VECTORS];
        float v[WIDE], sum = 0, squares = 0;
        fetch_row<T, S>(p.x, row * width, width, x);
        each_vector<S>(width, [&](int k, int) {
            unpack(x[k], v);
            for (int e = 0; e < WIDE; e++)
                sum += v[e];
        });
        const float mean = row_sum<S::LANES>(sum) * by;
        each_vector<S>(width, [&](int k, int) {
            unpack(x[k], v);
            for (int e = 0; e < WIDE; e++)
                squares += (v[e] - mean) * (v[e] - mean);
        });
        const float var = row_sum<S::LANES>(squares) * by;
        const float scale = 1 / sqrtf(var + static_cast<float>(p.eps));
        each_vector<S>(width, [&](int k, int column) {
            float gamma[WIDE], beta[WIDE];
            unpack(x[k], v);
            unpack(fetch<float, WIDE>(p.gamma, column), gamma);
            unpack(fetch<float, WIDE>(p.beta, column), beta);
            for (int e = 0; e < WIDE; e++)
                v[e] = gamma[e] * ((v[e] - mean) * scale) + beta[e];
            write<T>(p.y, row * width + column, v);
        });
        if (threadIdx.x % S::LANES == 0) {
            p.mean[row] = mean;
            p.scale[row] = scale;
        }
    }
}

/* the block's sums of `v`, of each thread's columns, to `to`; several warps have the same columns */
template <typename S>
__device__ inline void write_part(const float (&v)[S::VECTORS][WIDE], int width, float *to)
{
    if constexpr (S::LANES == THREADS) {
        each_vector<S>(width, [&](int k, int column) { write<float>(to, column, v[k]); });
    } else {
        constexpr int warps = THREADS / WARP, gap = WARP + 4; /* no two threads use one bank */
        __shared__ float part[warps][WIDE * gap];
        const int t = int(threadIdx.x), lane = t % int(WARP);
        TD_UNROLL
        for (int k = 0; k < S::VECTORS; k++) {
            __syncthreads();
            TD_UNROLL
            for (int e = 0; e < WIDE; e++)
                part[t / int(WARP)][e * gap + lane] = v[k][e];
            __syncthreads();
            float sum = 0;
            for (int w = 0; w < warps; w++)
                sum += part[w][t % WIDE * gap + t / WIDE];
            if (k * int(THREADS) + t < width)
                to[k * int(THREADS) + t] = sum;
        }
    }
}

template <typename T, typename S> __global__ void gradient_vectors(td_gpu_norm_rows_grad p)
{
    const int width = int(p.width);
    const float by = 1 / static_cast<float>(width);
    float dgamma[S::VECTORS][WIDE] = {}, dbeta[S::VECTORS][WIDE] = {};
    for (int64_t row = row_index<S::LANES>(); row < p.rows; row += row_count<S::LANES>()) {
        elements<T, WIDE> x[S::VECTORS], dy[S::VECTORS];
        float h[WIDE], g[WIDE], gamma[WIDE], sum = 0, dot = 0;
        fetch_row<T, S>(p.x, row * width, width, x);
        fetch_row<T, S>(p.dy, row * width, width, dy);
        const float mean = p.mean[row], scale = p.scale[row];
        each_vector<S>(width, [&](int k, int column) {
            unpack(x[k], h);
            unpack(dy[k], g);
            unpack(fetch<float, WIDE>(p.gamma, column), gamma);
            TD_UNROLL
            for (int e = 0; e < WIDE; e++) {
                const float xhat = (h[e] - mean) * scale;
                dgamma[k][e] += g[e] * xhat;
                dbeta[k][e] += g[e];
                sum += gamma[e] * g[e];
                dot += gamma[e] * g[e] * xhat;
            }
        });
        sum = row_sum<S::LANES>(sum) * by;
        dot = row_sum<S::LANES>(dot) * by;
        each_vector<S>(width, [&](int k, int column) {
            unpack(x[k], h);
            unpack(dy[k], g);
            unpack(fetch<float, WIDE>(p.gamma, column), gamma);
            for (int e = 0; e < WIDE; e++)
                h[e] = scale * (gamma[e] * g[e] - sum - (h[e] - mean) * scale * dot);
            write<T>(p.dx, row * width + column, h);
        });
    }
    float *to = p.sums + blockIdx.x * 2 * p.width;
    write_part<S>(dgamma, width, to);
    write_part<S>(dbeta, width, to + width);
}

/* --- other rows ------------------------------------------------------------------------------- */

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

/* blockIdx.y: the part */
__global__ void gradient_columns(td_gpu_norm_rows_grad p)
{
    for (int64_t i = thread_index(); i < p.width; i += thread_count()) {
        double dgamma = 0, dbeta = 0;
        for (int64_t row = blockIdx.y; row < p.rows; row += p.n_parts) {
            const float dy = load(p.dy, p.dtype, row * p.width + i);
            const float x = load(p.x, p.dtype, row * p.width + i);
            dgamma += dy * ((x - p.mean[row]) * p.scale[row]);
            dbeta += dy;
        }
        float *to = p.sums + blockIdx.y * 2 * p.width;
        to[i] = static_cast<float>(dgamma);
        to[p.width + i] = static_cast<float>(dbeta);
    }
}

/* --- sums of parts ---------------------------------------------------------------------------- */

constexpr unsigned COLUMNS = 16; /* a block adds so many columns */

/* column i of dgamma, then of dbeta, is the sum of column i of all parts */
__global__ void add_parts(td_gpu_norm_rows_grad p)
{
    const unsigned t = threadIdx.x;
    const int64_t i = int64_t(blockIdx.x) * COLUMNS + t % COLUMNS;
    double sum = 0;
    if (i < 2 * p.width)
        for (int64_t k = t / COLUMNS; k < p.n_parts; k += THREADS / COLUMNS)
            sum += p.sums[k * 2 * p.width + i];
    sum = lane_sum<COLUMNS>(sum);
    if (t < COLUMNS && i < 2 * p.width)
        (i < p.width ? p.dgamma + i : p.dbeta + (i - p.width))[0] = static_cast<float>(sum);
}

} // namespace

const char *norm_rows(const td_gpu_norm_rows *p)
{
    if (has_vectors(p->width))
        with_rows(p->dtype, p->width, [&](auto type, auto shape) {
            TD_LAUNCH((normalize_vectors<decltype(type), decltype(shape)>),
                      blocks_for(p->rows * shape.LANES), THREADS, 0, queue(), *p);
        });
    else if (p->width < LONG_ROW)
        TD_LAUNCH(normalize_rows<WARP>, blocks_for(p->rows * WARP), THREADS, 0, queue(), *p);
    else
        TD_LAUNCH(normalize_rows<THREADS>, blocks_for(p->rows * THREADS), THREADS, 0, queue(), *p);
    return started();
}

const char *norm_rows_grad(const td_gpu_norm_rows_grad *p)
{
    const unsigned n_parts = static_cast<unsigned>(p->n_parts);
    if (has_vectors(p->width)) {
        with_rows(p->dtype, p->width, [&](auto type, auto shape) {
            TD_LAUNCH((gradient_vectors<decltype(type), decltype(shape)>), n_parts, THREADS, 0,
                      queue(), *p);
        });
    } else {
        if (p->width < LONG_ROW)
            TD_LAUNCH(gradient_rows<WARP>, blocks_for(p->rows * WARP), THREADS, 0, queue(), *p);
        else
            TD_LAUNCH(gradient_rows<THREADS>, blocks_for(p->rows * THREADS), THREADS, 0, queue(),
                      *p);
        const dim3 blocks(blocks_for(p->width), n_parts);
        TD_LAUNCH(gradient_columns, blocks, THREADS, 0, queue(), *p);
    }
    const int64_t tiles = (2 * p->width + COLUMNS - 1) / COLUMNS;
    TD_LAUNCH(add_parts, static_cast<unsigned>(tiles), THREADS, 0, queue(), *p);
    return started();
}

} // namespace tandem
