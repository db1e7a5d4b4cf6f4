/*
 * native_simd_plain.c -- native_simd.inc compiled for the instructions that every machine has
 *
 * On x86-64 only machines without AVX2 run these loops.  There the build compiles them with -O2,
 * and the compiler decides what to inline: with -O3 and everything inlined, this file alone would
 * take longer to compile than the loops for AVX-512 and AVX2 together.
 */
#include <math.h>
#include <string.h>

#include "backend/native/simd/native_simd_parts.h"
#include "base/half.h"

#define HAS_BF16_ROUNDING 0
#define ISA               plain
#define TARGET
#if HAVE_X86
#include <immintrin.h>
#define ISA_BITS BITS_128
#define INLINE   static inline
#else
#define ISA_BITS BITS_NONE
#endif
#include "backend/native/simd/native_isa.inc"

const td_native_simd *const td_native_simd_plain[N_SIMD_OF_ISA] = SIMD_OF(plain);
