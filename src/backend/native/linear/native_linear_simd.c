/*
 * native_linear_simd.c -- native_linear.inc compiled for AVX-512: float32, its weights
 * in bf16, all in bf16; and the choice
 */
#include "backend/native/linear/native_linear.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, KIND)

enum { ROWS = 4 }; /* computed together: 16 sums */

#define TARGET         __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define IS_BF16        0
#define KIND           f32
#define IS_WEIGHT_BF16 0
#include "backend/native/linear/native_linear.inc"
#undef IS_WEIGHT_BF16
#undef KIND

#define KIND           half_weight
#define IS_WEIGHT_BF16 1
#include "backend/native/linear/native_linear.inc"
#undef KIND
#undef IS_BF16
#undef TARGET

#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define IS_BF16 1
#define KIND    bf16
#include "backend/native/linear/native_linear.inc"

td_linear_loops *td_linear_loops_for(td_dtype x, td_dtype w)
{
    if (x == TD_DT_F32 && td_isa_has(TD_ISA_AVX512))
        return w == TD_DT_F32 ? run_f32 : w == TD_DT_BF16 ? run_half_weight : NULL;
    return x == TD_DT_BF16 && w == x && td_isa_has(TD_ISA_AVX512_BF16) ? run_bf16 : NULL;
}
#else
td_linear_loops *td_linear_loops_for(td_dtype x, td_dtype w)
{
    (void)x;
    (void)w;
    return NULL;
}
#endif
