/*
 * native_simd_x86.c -- native_simd.inc compiled for AVX-512 and AVX2
 */
#include "backend/native/simd/native_simd_parts.h"

#if HAVE_X86
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/half.h"

#define AVX512_TARGETS "avx512f,avx512bw,avx512dq,avx512vl,f16c"

#define HAS_BF16_ROUNDING 1
#define ISA               avx512bf16
#define ISA_BITS          BITS_512
#define TARGET            __attribute__((target(AVX512_TARGETS ",avx512bf16")))
#define LANES             16
#define ELEM              bf16
#define ELEM_KIND         KIND_BF16
#include "backend/native/simd/native_simd.inc"
#undef ELEM_KIND
#undef ELEM
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA
#undef HAS_BF16_ROUNDING
#define HAS_BF16_ROUNDING 0

#define ISA      avx512
#define ISA_BITS BITS_512
#define TARGET   __attribute__((target(AVX512_TARGETS)))
#include "backend/native/simd/native_isa.inc"
#undef TARGET
#undef ISA_BITS
#undef ISA

#define ISA      avx2
#define ISA_BITS BITS_256
#define TARGET   __attribute__((target("avx2,f16c")))
#include "backend/native/simd/native_isa.inc"
#undef TARGET
#undef ISA_BITS
#undef ISA

const td_native_simd *const td_native_simd_avx512bf16 = &simd_avx512bf16_16_bf16;
const td_native_simd *const td_native_simd_avx512[N_SIMD_OF_ISA] = SIMD_OF(avx512);
const td_native_simd *const td_native_simd_avx2[N_SIMD_OF_ISA] = SIMD_OF(avx2);
#endif
