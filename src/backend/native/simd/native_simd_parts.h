/*
 * backend/native/simd/native_simd_parts.h -- what the files that compile native_simd.inc
 * share, and the tables they define
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_SIMD_PARTS_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_SIMD_PARTS_H

#include "backend/native/simd/native_isa.h"
#include "backend/native/simd/native_simd.h"

#define CHUNK TD_NATIVE_CHUNK

/* 16 and 8 lanes of every dtype */
#define N_SIMD_OF_ISA 6
#define SIMD_OF(isa)                                                                               \
    {                                                                                              \
        &simd_##isa##_16_f32, &simd_##isa##_8_f32, &simd_##isa##_16_bf16, &simd_##isa##_8_bf16,    \
            &simd_##isa##_16_f16, &simd_##isa##_8_f16                                              \
    }

#if HAVE_X86
extern const td_native_simd *const td_native_simd_avx512bf16; /* 16 lanes of bf16 */
extern const td_native_simd *const td_native_simd_avx512[N_SIMD_OF_ISA];
extern const td_native_simd *const td_native_simd_avx2[N_SIMD_OF_ISA];
#endif
extern const td_native_simd *const td_native_simd_plain[N_SIMD_OF_ISA];

#endif
