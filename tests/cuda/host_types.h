/*
 * host_types.h -- for host_grid.h: CUDA's vector types, half floats, bit casts and functions
 *
 * Conversions give the same bits as a GPU: round to nearest even, overflow to infinity, every NaN
 * to one NaN.  __half and __nv_bfloat16 only store; kernels compute in float.
 */
#ifndef TD_TEST_CUDA_HOST_TYPES_H
#define TD_TEST_CUDA_HOST_TYPES_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __align__(n) __attribute__((aligned(n)))

/* --- vectors ------------------------------------------------------------------------------ */

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;

    /* any integers, since nvcc converts them without a warning, too */
    template <typename X = int, typename Y = int, typename Z = int,
              typename = std::enable_if_t<std::is_integral<X>::value &&
                                          std::is_integral<Y>::value && std::is_integral<Z>::value>>
    constexpr dim3(X nx = 1, Y ny = 1, Z nz = 1) : x(unsigned(nx)), y(unsigned(ny)), z(unsigned(nz))
    {
    }
};

#define TD_VECTORS(name, type)                                                                     \
    struct __align__(2 * sizeof(type)) name##2                                                     \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct __align__(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4                             \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name##2 make_##name##2(type x, type y)                                                  \
    {                                                                                              \
        return { x, y };                                                                           \
    }                                                                                              \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                  \
    {                                                                                              \
        return { x, y, z, w };                                                                     \
    }

TD_VECTORS(char, signed char)
TD_VECTORS(uchar, unsigned char)
TD_VECTORS(short, short)
TD_VECTORS(ushort, unsigned short)
TD_VECTORS(int, int)
TD_VECTORS(uint, unsigned)
TD_VECTORS(float, float)
TD_VECTORS(double, double)
#undef TD_VECTORS

/* --- bit casts ---------------------------------------------------------------------------- */

namespace td_grid
{
template <typename To, typename From> To bit_cast(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the sizes differ");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}
} // namespace td_grid

inline int __float_as_int(float x)
{
    return td_grid::bit_cast<int>(x);
}

inline unsigned __float_as_uint(float x)
{
    return td_grid::bit_cast<unsigned>(x);
}

inline float __int_as_float(int x)
{
    return td_grid::bit_cast<float>(x);
}

inline float __uint_as_float(unsigned x)
{
    return td_grid::bit_cast<float>(x);
}

inline long long __double_as_longlong(double x)
{
    return td_grid::bit_cast<long long>(x);
}

inline double __longlong_as_double(long long x)
{
    return td_grid::bit_cast<double>(x);
}

/* --- half floats -------------------------------------------------------------------------- */

struct __align__(2) __half
{
    unsigned short __x;
};

struct __align__(4) __half2
{
    __half x, y;
};

struct __align__(2) __nv_bfloat16
{
    unsigned short __x;
};

struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};

inline __half __ushort_as_half(unsigned short bits)
{
    return { bits };
}

inline unsigned short __half_as_ushort(__half h)
{
    return h.__x;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return { bits };
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.__x;
}

inline float __half2float(__half h)
{
    unsigned sign = (h.__x & 0x8000u) << 16, exponent = h.__x >> 10 & 31, fraction = h.__x & 0x3ffu;
    if (exponent == 31)
        return __uint_as_float(fraction ? 0x7fffffffu : sign | 0x7f800000u);
    if (exponent == 0) { /* fraction * 2^-24 */
        float size = float(fraction) * 5.9604644775390625e-8f;
        return __uint_as_float(sign | __float_as_uint(size));
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

inline __half __float2half_rn(float x)
{
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, out;
    if (size > 0x7f800000u)
        return { 0x7fff };
    if (size >= 0x477ff000u) /* 65520, halfway from the largest half float to 2^16 */
        out = 0x7c00;
    else if (size < 0x38800000u) /* below 2^-14; the floats around 0.5 are multiples of 2^-24 */
        out = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u;
    else
        out = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    return { static_cast<unsigned short>(sign | out) };
}

inline __half __float2half(float x)
{
    return __float2half_rn(x);
}

inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float(unsigned(h.__x) << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return { 0x7fff };
    return { static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16) };
}

inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

inline __half2 __floats2half2_rn(float x, float y)
{
    return { __float2half_rn(x), __float2half_rn(y) };
}

inline float2 __half22float2(__half2 h)
{
    return { __half2float(h.x), __half2float(h.y) };
}

inline float __low2float(__half2 h)
{
    return __half2float(h.x);
}

inline float __high2float(__half2 h)
{
    return __half2float(h.y);
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return { __bfloat162float(h.x), __bfloat162float(h.y) };
}

/* --- integers ----------------------------------------------------------------------------- */

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

inline int __clz(int x)
{
    return x ? __builtin_clz(unsigned(x)) : 32;
}

inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return unsigned(uint64_t(a) * b >> 32);
}

/* --- numbers; of float the value that is no NaN, as on a GPU ------------------------------ */

template <typename A, typename B> std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value)
        return std::fmin(T(a), T(b));
    else
        return T(b) < T(a) ? T(b) : T(a);
}

template <typename A, typename B> std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value)
        return std::fmax(T(a), T(b));
    else
        return T(a) < T(b) ? T(b) : T(a);
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __fsub_rn(float a, float b)
{
    return a - b;
}

inline float __fmul_rn(float a, float b)
{
    volatile float product = a * b; /* not contracted with an addition */
    return product;
}

inline double __dadd_rn(double a, double b)
{
    return a + b;
}

inline double __dmul_rn(double a, double b)
{
    volatile double product = a * b;
    return product;
}

inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}

inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

inline float __frcp_rn(float x)
{
    return 1.0f / x;
}

inline float __fsqrt_rn(float x)
{
    return std::sqrt(x);
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

inline float __saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}

inline float __expf(float x)
{
    return std::exp(x);
}

inline float __logf(float x)
{
    return std::log(x);
}

inline float rsqrtf(float x)
{
    return float(1.0 / std::sqrt(double(x)));
}

inline double rsqrt(double x)
{
    return 1.0 / std::sqrt(x);
}

template <typename T> T __ldg(const T *address)
{
    return *address;
}

template <typename T> void __stwb(T *address, T value)
{
    *address = value;
}

#endif
