/*
 * gated.cu -- images times a gate for each channel, plus images or vectors, and relu
 *
 * Where channels are last and a multiple of eight, a thread has eight of them; blockIdx.y is an
 * image.  Otherwise, and in plain order, a thread has one element.  The gradient in plain order has
 * a block for each channel of each image; with channels last pixel_sums makes it (pixels.cu).
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

constexpr int AT_ONCE = 2; /* vectors of a thread that are read before one is used */

__device__ inline float gated(const td_gpu_gated_sum &s, float x, float gate, float z)
{
    const float y = x * gate + s.by * z;
    return s.relu && y < 0 ? 0 : y;
}

/* numbers i to i + WIDE - 1 of z as a vector, of dtype T or float32 */
template <typename T>
__device__ inline void read_addend(const td_gpu_gated_sum &s, int64_t i, float (&v)[WIDE])
{
    if (s.vector == TD_DT_F32)
        unpack(fetch<float, WIDE>(s.z, i), v);
    else
        unpack(fetch<T, WIDE>(s.z, i), v);
}

template <typename T, bool IS_VECTOR> __global__ void gate_wide(td_gpu_gated_sum s)
{
    const auto vectors = static_cast<unsigned>(s.channels / WIDE);
    const auto count = static_cast<unsigned>(s.area) * vectors;
    for (int64_t image = blockIdx.y; image < s.n; image += gridDim.y) {
        const int64_t pixels = image * s.area * s.channels, numbers = image * s.channels;
        for (unsigned i = blockIdx.x * THREADS * AT_ONCE + threadIdx.x; i < count;
             i += gridDim.x * THREADS * AT_ONCE) {
            elements<T, WIDE> x[AT_ONCE], z[AT_ONCE] = {};
            TD_UNROLL
            for (int u = 0; u < AT_ONCE; u++) {
                const unsigned at = i + u * THREADS < count ? i + u * THREADS : i;
                x[u] = fetch<T, WIDE>(s.x, pixels + static_cast<int64_t>(at) * WIDE);
                if constexpr (!IS_VECTOR)
                    z[u] = fetch<T, WIDE>(s.z, pixels + static_cast<int64_t>(at) * WIDE);
            }
            TD_UNROLL
            for (int u = 0; u < AT_ONCE; u++) {
                const unsigned at = i + u * THREADS;
                if (at >= count)
                    continue;
                const int64_t c = numbers + static_cast<int64_t>(at % vectors) * WIDE;
                float v[WIDE], gate[WIDE], plus[WIDE], y[WIDE];
                unpack(x[u], v);
                unpack(fetch<T, WIDE>(s.gate, c), gate);
                if constexpr (IS_VECTOR)
                    read_addend<T>(s, c, plus);
                else
                    unpack(z[u], plus);
                TD_UNROLL
                for (int k = 0; k < WIDE; k++)
                    y[k] = gated(s, v[k], gate[k], plus[k]);
                write<T>(s.y, pixels + static_cast<int64_t>(at) * WIDE, y);
            }
        }
    }
}

__global__ void gate_any(td_gpu_gated_sum s)
{
    const int64_t each = s.area * s.channels;
    for (int64_t i = thread_index(); i < s.n * each; i += thread_count()) {
        const int64_t c = s.is_channels_last ? i / each * s.channels + i % s.channels : i / s.area;
        const float x = load(s.x, s.dtype, i), gate = load(s.gate, s.dtype, c);
        const float z = s.z_is_vector ? load(s.z, s.vector, c) : load(s.z, s.dtype, i);
        store(s.y, s.dtype, i, gated(s, x, gate, z));
    }
}

/* one block for each channel of each image */
__global__ void gated_grad_kernel(td_gpu_gated_grad g)
{
    for (int64_t plane = blockIdx.x; plane < g.planes; plane += gridDim.x) {
        double sum = 0;
        for (int64_t k = threadIdx.x; k < g.area; k += blockDim.x) {
            const int64_t i = plane * g.area + k;
            float dy = load(g.dy, g.dtype, i);
            const float x = load(g.x, g.dtype, i);
            if (g.dy2)
                dy += load(g.dy2, g.dtype, i);
            if (!(load(g.y, g.dtype, i) > 0))
                dy = 0;
            store(g.dz, g.dtype, i, dy);
            sum += static_cast<double>(dy) * x;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            store(g.dgate, g.result, plane, static_cast<float>(sum));
    }
}

bool is_wide(const td_gpu_gated_sum &s)
{
    return s.is_channels_last && s.channels % WIDE == 0 && s.area * s.channels <= INT32_MAX &&
           is_aligned(s.x) && is_aligned(s.gate) && is_aligned(s.z) && is_aligned(s.y);
}

unsigned at_most_65535(int64_t n)
{
    return static_cast<unsigned>(n < 65535 ? n : 65535);
}

template <typename T> void start_wide(const td_gpu_gated_sum &s)
{
    const int64_t each = THREADS * AT_ONCE, count = s.area * (s.channels / WIDE);
    const dim3 blocks(at_most_65535((count + each - 1) / each), at_most_65535(s.n));
    if (s.z_is_vector)
        TD_LAUNCH((gate_wide<T, true>), blocks, THREADS, 0, queue(), s);
    else
        TD_LAUNCH((gate_wide<T, false>), blocks, THREADS, 0, queue(), s);
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *gated_sum(const td_gpu_gated_sum *s)
{
    if (is_wide(*s))
        with_type(s->dtype, [=](auto zero) { start_wide<decltype(zero)>(*s); });
    else
        TD_LAUNCH(gate_any, blocks_for(s->n * s->area * s->channels), THREADS, 0, queue(), *s);
    return started();
}

const char *gated_grad(const td_gpu_gated_grad *g)
{
    TD_LAUNCH(gated_grad_kernel, at_most_65535(g->planes), THREADS, 0, queue(), *g);
    return started();
}

} // namespace tandem
