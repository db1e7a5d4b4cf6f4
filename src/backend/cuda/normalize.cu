/*
 * normalize.cu -- bytes of images to normalised floats
 *
 * Images of three channels that stay channels last are the common case: a thread converts eight
 * pixels, 24 bytes in three reads.  Divisions round as the processor's do, so that a float32 result
 * has the same bits.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

constexpr int RGB = 3, PIXELS = 8, GROUP = RGB * PIXELS;

__device__ inline float normalized(uint8_t x, float mean, float std)
{
    return (static_cast<float>(x) - mean) / std;
}

/* c is known when compiled, where a loop over it is unrolled */
__device__ inline float of_channel(const float *v, int64_t c)
{
    return c == 0 ? v[0] : c == 1 ? v[1] : c == 2 ? v[2] : v[3];
}

/* eight values from element i, which is a multiple of eight and the first of channel (8 part) % 3 */
template <typename T>
__device__ inline void normalize_part(const td_gpu_normalize_bytes &a, int64_t i, int part)
{
    const uint2 w = *reinterpret_cast<const uint2 *>(a.x + i);
    float v[WIDE];
    TD_UNROLL
    for (int k = 0; k < WIDE; k++) {
        const unsigned byte = (k < 4 ? w.x : w.y) >> 8 * (k % 4) & 0xff;
        const int c = (WIDE * part + k) % RGB;
        v[k] = normalized(static_cast<uint8_t>(byte), of_channel(a.mean, c), of_channel(a.std, c));
    }
    write<T>(a.to, i, v);
}

template <typename T> __global__ void normalize_rgb(td_gpu_normalize_bytes a, int64_t count)
{
    const int64_t groups = count / GROUP;
    for (int64_t g = thread_index(); g < groups; g += thread_count()) {
        TD_UNROLL
        for (int part = 0; part < RGB; part++)
            normalize_part<T>(a, g * GROUP + WIDE * part, part);
    }
    for (int64_t i = groups * GROUP + thread_index(); i < count; i += thread_count()) {
        const int64_t c = i % RGB;
        const float v = normalized(a.x[i], of_channel(a.mean, c), of_channel(a.std, c));
        store(a.to, a.y.dtype, i, v);
    }
}

/* any channels, in either order of the result */
__global__ void normalize_any(td_gpu_normalize_bytes a, int64_t count)
{
    const int64_t channels = a.y.channels, area = a.y.area;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = i / area; /* the plane */
        const int64_t c = a.y.is_channels_last ? i % channels : row % channels;
        const int64_t from =
            a.y.is_channels_last ? i : (row / channels * area + i % area) * channels + c;
        const float v = normalized(a.x[from], of_channel(a.mean, c), of_channel(a.std, c));
        store(a.to, a.y.dtype, i, v);
    }
}

} // namespace

/* --- the plug-in's function ------------------------------------------------------------------- */

const char *normalize_bytes(const td_gpu_normalize_bytes *a)
{
    const int64_t count = a->y.n * a->y.area * a->y.channels;
    if (a->y.is_channels_last && a->y.channels == RGB)
        with_type(a->y.dtype, [&](auto type) {
            TD_LAUNCH(normalize_rgb<decltype(type)>, blocks_for((count + GROUP - 1) / GROUP),
                      THREADS, 0, queue(), *a, count);
        });
    else
        TD_LAUNCH(normalize_any, blocks_for(count), THREADS, 0, queue(), *a, count);
    return started();
}

} // namespace tandem
