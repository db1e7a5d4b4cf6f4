/*
 * native_depthwise_simd.c -- native_depthwise.inc compiled for float32 and bf16, and the choice
 */
#include "backend/native/conv/native_depthwise.h"

#include <string.h>

#include "backend/native/simd/native_simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES TD_DEPTHWISE_LANES

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, KIND)
#define TARGET       __attribute__((target("avx2,fma")))

/* floats in the store, image rows prepared for the loops on the stack: most of an L1 cache */
#define STORE 7680

/* outputs of a row that are computed at once, and taps of grad_w: their sums are in registers */
#define TILE 7
#define SUMS 9

#define KIND    f32
#define IS_HALF 0
#include "backend/native/conv/native_depthwise.inc"
#undef IS_HALF
#undef KIND

#define KIND    bf16
#define IS_HALF 1
#include "backend/native/conv/native_depthwise.inc"
#undef IS_HALF
#undef KIND

/* with AVX-512 oneDNN computes them, in blocks of 16 */
const td_depthwise_loops *td_depthwise_loops_for(td_dtype dtype)
{
    if (!td_native_is_avx2())
        return NULL;
    return dtype == TD_DT_F32 ? &loops_f32 : dtype == TD_DT_BF16 ? &loops_bf16 : NULL;
}
#else
const td_depthwise_loops *td_depthwise_loops_for(td_dtype dtype)
{
    (void)dtype;
    return NULL;
}
#endif
