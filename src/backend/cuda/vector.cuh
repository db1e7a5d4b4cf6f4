/*
 * backend/cuda/vector.cuh -- one element, or eight consecutive ones, of a dtype known when compiled
 *
 * Eight elements are read and written in 16 bytes at a time, so their address must be a multiple
 * of 16: tensors are aligned, and the index is a multiple of 8.
 */
#ifndef TD_BACKEND_CUDA_VECTOR_CUH
#define TD_BACKEND_CUDA_VECTOR_CUH

#include <cstring>

#include "backend/cuda/tensor.cuh"

namespace tandem
{

constexpr int WIDE = 8;

/** Can whole vectors be read from and written to `p`? */
inline bool is_aligned(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % sizeof(uint4) == 0;
}

/* --- one element ------------------------------------------------------------------------------ */

__device__ inline float to_float(float v)
{
    return v;
}

__device__ inline float to_float(__half v)
{
    return __half2float(v);
}

__device__ inline float to_float(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}

/** Rounds to nearest even. */
template <typename T> __device__ inline T from_float(float v);

template <> __device__ inline float from_float<float>(float v)
{
    return v;
}

template <> __device__ inline __half from_float<__half>(float v)
{
    return __float2half_rn(v);
}

template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v)
{
    return __float2bfloat16_rn(v);
}

/* --- two elements in a word ------------------------------------------------------------------- */

template <typename T> __device__ inline float2 unpack_word(unsigned w);

template <> __device__ inline float2 unpack_word<__half>(unsigned w)
{
    __half2 h;
    memcpy(&h, &w, sizeof h);
    return __half22float2(h);
}

template <> __device__ inline float2 unpack_word<__nv_bfloat16>(unsigned w)
{
    return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}

template <typename T> __device__ inline unsigned pack_word(float x, float y);

template <> __device__ inline unsigned pack_word<__half>(float x, float y)
{
    const __half2 h = __floats2half2_rn(x, y);
    unsigned w;
    memcpy(&w, &h, sizeof w);
    return w;
}

template <> __device__ inline unsigned pack_word<__nv_bfloat16>(float x, float y)
{
    const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
    unsigned w;
    memcpy(&w, &h, sizeof w);
    return w;
}

/* --- N elements, as they are in memory; N is 1 or WIDE ---------------------------------------- */

template <typename T, int N> struct elements {
    uint4 quarter[sizeof(T) / 2];
};

template <typename T> struct elements<T, 1> {
    T one;
};

/** Elements i to i + N - 1. */
template <typename T, int N> __device__ inline elements<T, N> fetch(const void *data, int64_t i)
{
    return *reinterpret_cast<const elements<T, N> *>(static_cast<const T *>(data) + i);
}

template <typename T, int N> __device__ inline void unpack(const elements<T, N> &e, float (&v)[N])
{
    if constexpr (N == 1) {
        v[0] = to_float(e.one);
    } else {
        TD_UNROLL
        for (int i = 0; i < int(sizeof(T) / 2); i++) {
            const unsigned w[4] = { e.quarter[i].x, e.quarter[i].y, e.quarter[i].z,
                                    e.quarter[i].w };
            TD_UNROLL
            for (int k = 0; k < 4; k++) {
                if constexpr (sizeof(T) == 4) {
                    v[4 * i + k] = __uint_as_float(w[k]);
                } else {
                    const float2 two = unpack_word<T>(w[k]);
                    v[2 * k] = two.x;
                    v[2 * k + 1] = two.y;
                }
            }
        }
    }
}

/* a plain assignment was compiled to four stores of 4 bytes by nvcc 13.0 */
__device__ inline void write_words(uint4 *to, unsigned x, unsigned y, unsigned z, unsigned w)
{
    __stwb(to, make_uint4(x, y, z, w));
}

/** Rounds to nearest even, and writes elements i to i + N - 1. */
template <typename T, int N>
__device__ inline void write(void *data, int64_t i, const float (&v)[N])
{
    T *to = static_cast<T *>(data) + i;
    uint4 *quarter = reinterpret_cast<uint4 *>(to);
    if constexpr (N == 1) {
        *to = from_float<T>(v[0]);
    } else if constexpr (sizeof(T) == 4) {
        TD_UNROLL
        for (int k = 0; k < 8; k += 4)
            write_words(quarter + k / 4, __float_as_uint(v[k]), __float_as_uint(v[k + 1]),
                        __float_as_uint(v[k + 2]), __float_as_uint(v[k + 3]));
    } else {
        write_words(quarter, pack_word<T>(v[0], v[1]), pack_word<T>(v[2], v[3]),
                    pack_word<T>(v[4], v[5]), pack_word<T>(v[6], v[7]));
    }
}

/** Elements i to i + n - 1 of at most eight; the others are 0. */
template <typename T>
__device__ inline void read_some(const void *data, int64_t i, int n, float (&v)[WIDE])
{
    if (n == WIDE) {
        unpack(fetch<T, WIDE>(data, i), v);
        return;
    }
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        v[k] = k < n ? to_float(static_cast<const T *>(data)[i + k]) : 0;
}

template <typename T>
__device__ inline void write_some(void *data, int64_t i, int n, const float (&v)[WIDE])
{
    if (n == WIDE) {
        write<T>(data, i, v);
        return;
    }
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        if (k < n)
            static_cast<T *>(data)[i + k] = from_float<T>(v[k]);
}

/** f(T()) with the float type of `d`, f32 or a half. */
template <typename F> void with_type(td_dtype d, F f)
{
    switch (d) {
    case TD_DT_F16:
        f(__half());
        break;
    case TD_DT_BF16:
        f(__nv_bfloat16());
        break;
    default:
        f(float());
    }
}

} // namespace tandem

#endif
