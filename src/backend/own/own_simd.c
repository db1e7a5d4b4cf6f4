/*
 * own_simd.c -- own_simd.inc compiled for each instruction set and number of lanes, and the choice
 */
#include <string.h>

#include "backend/own/own.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define CHUNK 1024 /* pixels summed in float32 before the sums go to float64 */

#define TEXT2(a)        #a
#define TEXT(a)         TEXT2(a)
#define PASTE2(a, b, c) a##_##b##_##c
#define PASTE(a, b, c)  PASTE2(a, b, c)
#define NAME(id)        PASTE(id, ISA, LANES)

#define BITS_512  3
#define BITS_256  2
#define BITS_128  1
#define BITS_NONE 0

#if HAVE_X86
#define ISA      avx512
#define ISA_BITS BITS_512
#define TARGET   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES    16
#include "backend/own/own_simd.inc"
#undef LANES
#define LANES 8
#include "backend/own/own_simd.inc"
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA

#define ISA      avx2
#define ISA_BITS BITS_256
#define TARGET   __attribute__((target("avx2")))
#define LANES    16
#include "backend/own/own_simd.inc"
#undef LANES
#define LANES 8
#include "backend/own/own_simd.inc"
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA
#endif

#define ISA plain
#if HAVE_X86
#define ISA_BITS BITS_128
#else
#define ISA_BITS BITS_NONE
#endif
#define TARGET
#define LANES 16
#include "backend/own/own_simd.inc"
#undef LANES
#define LANES 8
#include "backend/own/own_simd.inc"
#undef LANES

/* what this machine can run, best first: 16 lanes, then 8 */
const td_own_simd *td_own_simd_at(int i)
{
    const td_own_simd *have[7] = { NULL };
    int n = 0;
#if HAVE_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        have[n++] = &simd_avx512_16;
        have[n++] = &simd_avx512_8;
    }
    if (__builtin_cpu_supports("avx2")) {
        have[n++] = &simd_avx2_16;
        have[n++] = &simd_avx2_8;
    }
#endif
    have[n++] = &simd_plain_16;
    have[n++] = &simd_plain_8;
    return i < n ? have[i] : NULL;
}

const td_own_simd *td_own_simd_for(int lanes)
{
    return td_own_simd_at(lanes == 16 ? 0 : 1);
}
