/*
 * elements.h -- numbers of device memory, for stand-ins of libraries that compute with plain loops
 */
#ifndef TD_TESTS_CUDA_STAND_IN_ELEMENTS_H
#define TD_TESTS_CUDA_STAND_IN_ELEMENTS_H

#include <cstdint>
#include <cstring>

#include "cuda/host_types.h"

namespace stand_in
{

enum class element { f32, f16, bf16 };

inline size_t bytes_of(element e)
{
    return e == element::f32 ? 4 : 2;
}

inline float read(const void *p, element e, int64_t i)
{
    if (e == element::f16)
        return __half2float(static_cast<const __half *>(p)[i]);
    if (e == element::bf16)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
    return static_cast<const float *>(p)[i];
}

inline void write(void *p, element e, int64_t i, float v)
{
    if (e == element::f16)
        static_cast<__half *>(p)[i] = __float2half_rn(v);
    else if (e == element::bf16)
        static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(v);
    else
        static_cast<float *>(p)[i] = v;
}

/* with 10 bits of fraction, to nearest even */
inline float to_tf32(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    u = (u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Inner loops over a stand-in's own arrays: without checks by sanitizers, which keep them from
 * being vectors.  Reads and writes of device memory are checked. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#else
#define VECTORS
#endif
#define FAST VECTORS UNCHECKED

inline __attribute__((always_inline)) UNCHECKED float dot(const float *a, const float *b, int64_t n)
{
    enum { LANES = 16 };
    float sum[LANES] = { 0 }, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        total += a[i] * b[i];
    for (float s : sum)
        total += s;
    return total;
}

/* a kernel may leave anything in its workspace */
inline void spoil(void *workspace, size_t n)
{
    if (n > 0)
        memset(workspace, 0xff, n);
}

} // namespace stand_in

#endif
