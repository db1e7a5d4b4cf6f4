/*
 * native_simd.c -- native_simd.inc compiled for each instruction set, number of lanes and dtype,
 * and the choice
 */
#include <math.h>
#include <string.h>

#include "backend/native/native.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define CHUNK 1024 /* pixels summed in float32 before the sums go to float64 */

#define TEXT2(a)           #a
#define TEXT(a)            TEXT2(a)
#define PASTE2(a, b, c, d) a##_##b##_##c##_##d
#define PASTE(a, b, c, d)  PASTE2(a, b, c, d)
#define NAME(id)           PASTE(id, ISA, LANES, ELEM)

#define BITS_512  3
#define BITS_256  2
#define BITS_128  1
#define BITS_NONE 0

#define KIND_F32  0
#define KIND_BF16 1
#define KIND_F16  2

#define AVX512_TARGETS  "avx512f,avx512bw,avx512dq,avx512vl,f16c"
#define CLASS_SUBNORMAL 0x20 /* of vfpclassps */
#define UPPER_HALVES         /* word i of 16 into the upper half of lane i of 32 bits */           \
    _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, \
                     3, 0, 2, 0, 1, 0, 0, 0)

#if HAVE_X86
#define HAS_BF16_ROUNDING 1
#define ISA               avx512bf16
#define ISA_BITS          BITS_512
#define TARGET            __attribute__((target(AVX512_TARGETS ",avx512bf16")))
#define LANES             16
#define ELEM              bf16
#define ELEM_KIND         KIND_BF16
#include "backend/native/native_simd.inc"
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
#include "backend/native/native_isa.inc"
#undef TARGET
#undef ISA_BITS
#undef ISA

#define ISA      avx2
#define ISA_BITS BITS_256
#define TARGET   __attribute__((target("avx2,f16c")))
#include "backend/native/native_isa.inc"
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
#include "backend/native/native_isa.inc"

#define SIMD_OF(isa)                                                                               \
    &simd_##isa##_16_f32, &simd_##isa##_8_f32, &simd_##isa##_16_bf16, &simd_##isa##_8_bf16,        \
        &simd_##isa##_16_f16, &simd_##isa##_8_f16

/* best first; which of them this machine can run was found out by base/half.c, all but the first */
const td_native_simd *td_native_simd_at(int i)
{
    static const td_native_simd *const all[] = {
#if HAVE_X86
        &simd_avx512bf16_16_bf16,
        SIMD_OF(avx512),
        SIMD_OF(avx2),
#endif
        SIMD_OF(plain),
    };
    const char *best = td_half_simd_at(0)->name;
    const int n = (int)(sizeof all / sizeof all[0]);
    int first = 0;
    while (first < n && strcmp(all[first]->isa, best) != 0)
        first++;
    TD_CHECK(first < n);
#if HAVE_X86
    if (first == 1 && __builtin_cpu_supports("avx512bf16"))
        first = 0;
#endif
    return first + i < n ? all[first + i] : NULL;
}

const td_native_simd *td_native_simd_for(td_dtype dtype, int lanes)
{
    const td_native_simd *f;
    for (int i = 0; (f = td_native_simd_at(i)); i++)
        if (f->dtype == dtype && f->lanes == lanes)
            return f;
    TD_CHECK(false && "no loops for this instruction set");
    return NULL;
}
