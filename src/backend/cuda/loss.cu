/*
 * loss.cu -- softmax, targets, cross-entropy, mixup and cutmix
 *
 * Every exponential is of x - max(x), so that no logit overflows.  A row has a warp, or a block if
 * it is long; softmax reads it once, in vectors of 16 bytes, of which the first and the last may
 * have elements of the neighbouring rows.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"
#include "backend/cuda/tensor.cuh"

namespace tandem
{
namespace
{

/* --- rows of logits --------------------------------------------------------------------------- */

constexpr int64_t LONG_ROW = 256; /* columns from which a row has a block */

/* each function is called by all LANES threads of the row that begins at element `at` */
template <unsigned LANES> __device__ inline void softmax(const td_gpu_rows &r, int64_t at)
{
    const exponentials e = row_exponentials<LANES>(r.x, r.dtype, at, r.columns);
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES)
        store(r.y, r.dtype, at + i, expf(load(r.x, r.dtype, at + i) - e.max) / e.sum);
}

template <unsigned LANES> __device__ inline void softmax_grad(const td_gpu_rows &r, int64_t at)
{
    float dot = 0;
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES)
        dot += load(r.x, r.dtype, at + i) * load(r.z, r.dtype, at + i);
    dot = row_sum<LANES>(dot);
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES) {
        const float y = load(r.x, r.dtype, at + i);
        store(r.y, r.dtype, at + i, y * (load(r.z, r.dtype, at + i) - dot));
    }
}

template <unsigned LANES>
__device__ inline void cross_entropy(const td_gpu_rows &r, int64_t at, int64_t row)
{
    const exponentials e = row_exponentials<LANES>(r.x, r.dtype, at, r.columns);
    const float log_sum = logf(e.sum);
    float loss = 0;
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES) {
        const float q = load(r.z, r.dtype, at + i);
        loss -= q == 0 ? 0 : q * (load(r.x, r.dtype, at + i) - e.max - log_sum);
    }
    loss = row_sum<LANES>(loss);
    if (threadIdx.x % LANES == 0)
        store(r.y, r.dtype, row, loss);
}

template <unsigned LANES>
__device__ inline void cross_entropy_grad(const td_gpu_rows &r, int64_t at, int64_t row)
{
    const exponentials e = row_exponentials<LANES>(r.x, r.dtype, at, r.columns);
    float sum = 0;
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES)
        sum += load(r.z, r.dtype, at + i);
    sum = row_sum<LANES>(sum);
    const float dloss = load(r.dloss, r.dtype, row);
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES) {
        const float p = expf(load(r.x, r.dtype, at + i) - e.max) / e.sum;
        store(r.y, r.dtype, at + i, dloss * (p * sum - load(r.z, r.dtype, at + i)));
    }
}

/* the target of element i by sigmoid_cross_entropy */
__device__ inline float target_of(const td_gpu_rows &r, int64_t i)
{
    const float q = load(r.z, r.dtype, i);
    return r.threshold < 0 ? q : q > r.threshold ? 1.0f : 0.0f;
}

/* the factor of log sigmoid(x) of element i, of `column` */
__device__ inline float factor_of(const td_gpu_rows &r, float target, int64_t column)
{
    return r.weights ? 1 + (load(r.weights, r.dtype, column) - 1) * target : 1.0f;
}

template <unsigned LANES>
__device__ inline void sigmoid_cross_entropy(const td_gpu_rows &r, int64_t at, int64_t row)
{
    float loss = 0;
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES) {
        const float x = load(r.x, r.dtype, at + i), t = target_of(r, at + i);
        loss += (1 - t) * x + factor_of(r, t, i) * (fmaxf(-x, 0) + log1pf(expf(-fabsf(x))));
    }
    loss = row_sum<LANES>(loss);
    if (threadIdx.x % LANES == 0)
        store(r.y, r.dtype, row, loss / (float)r.columns);
}

template <unsigned LANES>
__device__ inline void sigmoid_cross_entropy_grad(const td_gpu_rows &r, int64_t at, int64_t row)
{
    const float dloss = load(r.dloss, r.dtype, row) / (float)r.columns;
    for (int64_t i = threadIdx.x % LANES; i < r.columns; i += LANES) {
        const float rest = 1 / (1 + expf(load(r.x, r.dtype, at + i))), t = target_of(r, at + i);
        store(r.y, r.dtype, at + i, dloss * (1 - t - factor_of(r, t, i) * rest));
    }
}

template <unsigned LANES> __global__ void rows_kernel(td_gpu_rows r)
{
    for (int64_t row = row_index<LANES>(); row < r.rows; row += row_count<LANES>())
        switch (r.f) {
        case TD_GPU_SOFTMAX:
            softmax<LANES>(r, row * r.columns);
            break;
        case TD_GPU_SOFTMAX_GRAD:
            softmax_grad<LANES>(r, row * r.columns);
            break;
        case TD_GPU_CROSS_ENTROPY:
            cross_entropy<LANES>(r, row * r.columns, row);
            break;
        case TD_GPU_CROSS_ENTROPY_GRAD:
            cross_entropy_grad<LANES>(r, row * r.columns, row);
            break;
        case TD_GPU_SIGMOID_CROSS_ENTROPY:
            sigmoid_cross_entropy<LANES>(r, row * r.columns, row);
            break;
        case TD_GPU_SIGMOID_CROSS_ENTROPY_GRAD:
            sigmoid_cross_entropy_grad<LANES>(r, row * r.columns, row);
            break;
        }
}

/* elements i to i + 7 of `count`, 0 after the last */
template <typename T>
__device__ inline void read_vector(const void *data, int64_t i, int64_t count, float (&v)[WIDE])
{
    read_some<T>(data, i, static_cast<int>(count - i < WIDE ? count - i : WIDE), v);
}

/* columns c to c + 7 of the row that begins at element `at`, but for those beyond its ends */
template <typename T>
__device__ inline void write_columns(void *data, int64_t at, int c, int columns,
                                     const float (&v)[WIDE])
{
    if (c >= 0 && c + WIDE <= columns) {
        write<T>(data, at + c, v);
        return;
    }
    TD_UNROLL
    for (int e = 0; e < WIDE; e++)
        if (c + e >= 0 && c + e < columns)
            static_cast<T *>(data)[at + c + e] = from_float<T>(v[e]);
}

template <typename T, typename S> __global__ void softmax_vectors(td_gpu_rows r)
{
    const int columns = static_cast<int>(r.columns);
    for (int64_t row = row_index<S::LANES>(); row < r.rows; row += row_count<S::LANES>()) {
        const int64_t at = row * columns;
        const int skip = static_cast<int>(at % WIDE); /* elements before the row in its vector */
        float v[S::VECTORS][WIDE], max = -INFINITY, sum = 0;
        each_vector<S>(skip + columns, [&](int k, int i) {
            read_vector<T>(r.x, at - skip + i, r.rows * columns, v[k]);
            TD_UNROLL
            for (int e = 0; e < WIDE; e++) {
                if (i + e < skip || i + e >= skip + columns)
                    v[k][e] = -INFINITY;
                max = fmaxf(max, v[k][e]);
            }
        });
        max = row_max<S::LANES>(max);
        each_vector<S>(skip + columns, [&](int k, int) {
            TD_UNROLL
            for (int e = 0; e < WIDE; e++) {
                v[k][e] = expf(v[k][e] - max);
                sum += v[k][e];
            }
        });
        const float by = 1 / row_sum<S::LANES>(sum);
        each_vector<S>(skip + columns, [&](int k, int i) {
            TD_UNROLL
            for (int e = 0; e < WIDE; e++)
                v[k][e] *= by;
            write_columns<T>(r.y, at, i - skip, columns, v[k]);
        });
    }
}

/* with the elements of other rows in the first and last vector */
int64_t vector_columns(const td_gpu_rows &r)
{
    return r.columns % WIDE == 0 ? r.columns : r.columns + WIDE - 1;
}

/* --- targets ---------------------------------------------------------------------------------- */

__global__ void targets_kernel(td_gpu_targets t)
{
    const int64_t count = t.rows * t.columns;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = i / t.columns, label = t.labels[row];
        const bool is_class = label >= 0 && label < t.columns;
        t.q[i] = !is_class ? 0 : i == row * t.columns + label ? t.on : t.off;
    }
}

/* is element i of a sample, [C, H, W], inside of the box of its row? */
__device__ bool is_in_box(const td_gpu_mix &m, int64_t row, int64_t i)
{
    const int64_t *box = m.box + 4 * row;
    const int64_t x = i % m.image_width, y = i / m.image_width % m.image_height;
    return x >= box[0] && x < box[2] && y >= box[1] && y < box[3];
}

/* blockIdx.y: the sample */
__global__ void mix_kernel(td_gpu_mix m)
{
    for (int64_t row = blockIdx.y; row < m.rows; row += gridDim.y) {
        const float lambda = m.box ? 0 : load(m.lambda, m.dtype, row);
        const int64_t wanted = m.partner[row];
        const int64_t partner = wanted >= 0 && wanted < m.rows ? wanted : row;
        for (int64_t i = thread_index(); i < m.width; i += thread_count()) {
            if (m.box) {
                const int64_t from = is_in_box(m, row, i) ? partner : row;
                store(m.y, m.dtype, row * m.width + i, load(m.x, m.dtype, from * m.width + i));
                continue;
            }
            const float x = load(m.x, m.dtype, row * m.width + i);
            const float z = load(m.x, m.dtype, partner * m.width + i);
            store(m.y, m.dtype, row * m.width + i, lambda * x + (1 - lambda) * z);
        }
    }
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *rows(const td_gpu_rows *r)
{
    if (r->f == TD_GPU_SOFTMAX && vector_columns(*r) <= MOST_COLUMNS && is_aligned(r->x) &&
        is_aligned(r->y))
        with_rows(r->dtype, vector_columns(*r), [&](auto type, auto shape) {
            TD_LAUNCH((softmax_vectors<decltype(type), decltype(shape)>),
                      blocks_for(r->rows * shape.LANES), THREADS, 0, queue(), *r);
        });
    else if (r->columns < LONG_ROW)
        TD_LAUNCH(rows_kernel<WARP>, blocks_for(r->rows * WARP), THREADS, 0, queue(), *r);
    else
        TD_LAUNCH(rows_kernel<THREADS>, blocks_for(r->rows * THREADS), THREADS, 0, queue(), *r);
    return started();
}

const char *targets(const td_gpu_targets *t)
{
    TD_LAUNCH(targets_kernel, blocks_for(t->rows * t->columns), THREADS, 0, queue(), *t);
    return started();
}

const char *mix(const td_gpu_mix *m)
{
    const dim3 blocks(blocks_for(m->width), blocks_for(m->rows * THREADS));
    TD_LAUNCH(mix_kernel, blocks, THREADS, 0, queue(), *m);
    return started();
}

} // namespace tandem
