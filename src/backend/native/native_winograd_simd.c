/*
 * native_winograd_simd.c -- native_winograd.inc compiled for each instruction set, and the choice
 *
 * AVX-512: a product of 14 tiles and 32 filters keeps 28 sums in its 32 registers; AVX2: 6 tiles
 * and 16 filters, 12 sums in 16.
 */
#include <string.h>

#include "backend/native/native_winograd.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define WINO_P (float)TD_WINO_P
#define WINO_Q (float)TD_WINO_Q

#define TEXT2(a)     #a
#define TEXT(a)      TEXT2(a)
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

#define BITS_512  2
#define BITS_256  1
#define BITS_NONE 0

#if HAVE_X86
#define ISA      avx512
#define ISA_BITS BITS_512
#define TARGET   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES    16
#define TILES    14
#define BLOCKS   2
#define ROWS     8
#include "backend/native/native_winograd.inc"
#undef ROWS
#undef BLOCKS
#undef TILES
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA

#define ISA      avx2
#define ISA_BITS BITS_256
#define TARGET   __attribute__((target("avx2,fma")))
#define LANES    8
#define TILES    6
#define BLOCKS   1
#define ROWS     4
#include "backend/native/native_winograd.inc"
#undef ROWS
#undef BLOCKS
#undef TILES
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA
#endif

#define ISA      plain
#define ISA_BITS BITS_NONE
#define TARGET
#define LANES  4
#define TILES  2
#define BLOCKS 1
#define ROWS   4
#include "backend/native/native_winograd.inc"

/* best first; base/half.c detects the instruction sets, except FMA, which simd_avx2 needs too */
const td_native_wino_simd *td_native_wino_simd_at(int i)
{
    static const td_native_wino_simd *const all[] = {
#if HAVE_X86
        &simd_avx512,
        &simd_avx2,
#endif
        &simd_plain,
    };
    const int n = (int)(sizeof all / sizeof all[0]);
    const char *best = td_half_simd_at(0)->name;
    int first = 0;
    while (first < n && strcmp(all[first]->isa, best) != 0)
        first++;
#if HAVE_X86
    if (first < n && all[first] != &simd_plain && !__builtin_cpu_supports("fma"))
        first = n - 1;
#endif
    return first + i < n ? all[first + i] : NULL;
}
