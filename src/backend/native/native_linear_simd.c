/*
 * native_linear_simd.c -- native_linear.inc compiled for AVX-512, float32 and bf16; and the choice
 */
#include "backend/native/native_linear.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, KIND)

#define KIND    f32
#define IS_BF16 0
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#include "backend/native/native_linear.inc"
#undef TARGET
#undef IS_BF16
#undef KIND

#define KIND    bf16
#define IS_BF16 1
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#include "backend/native/native_linear.inc"

td_linear_loops *td_linear_loops_for(td_dtype dtype)
{
    if (dtype == TD_DT_F32)
        return td_isa_has(TD_ISA_AVX512) ? run_f32 : NULL;
    return dtype == TD_DT_BF16 && td_isa_has(TD_ISA_AVX512_BF16) ? run_bf16 : NULL;
}
#else
td_linear_loops *td_linear_loops_for(td_dtype dtype)
{
    (void)dtype;
    return NULL;
}
#endif
