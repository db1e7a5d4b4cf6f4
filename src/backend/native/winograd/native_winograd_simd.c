/*
 * native_winograd_simd.c -- native_winograd.inc compiled for each instruction set and type of
 * images, and the choice
 *
 * AVX-512: a product of 14 tiles and 32 filters keeps 28 sums in its 32 registers; AVX2: 6 tiles
 * and 16 filters, 12 sums in 16.
 */
#include <string.h>

#include "backend/native/simd/native_isa.h"
#include "backend/native/winograd/native_winograd.h"
#include "base/isa.h"

#if HAVE_X86
#include <immintrin.h>
#endif

#define WINO_P (float)TD_WINO_P
#define WINO_Q (float)TD_WINO_Q

#define STRIDED_P (float)TD_WINO_STRIDED_P
#define STRIDED_Q (float)TD_WINO_STRIDED_Q

/* the loops that float32 images have compiled */
#define LOOPS(id) PASTE(id, LOOPS_ISA, LANES, f32)

#define AVX512_TARGETS "avx512f,avx512bw,avx512dq,avx512vl,f16c"

#define HAS_BF16_ROUNDING 0

#if HAVE_X86
#define LOOPS_ISA avx512
#define ISA       avx512
#define ISA_BITS  BITS_512
#define TARGET    __attribute__((target(AVX512_TARGETS)))
#define LANES     16
#define TILES     14
#define BLOCKS    2
#define ROWS      16
#define ELEM      f32
#define ELEM_KIND KIND_F32
#include "backend/native/winograd/native_winograd.inc"
#undef ELEM_KIND
#undef ELEM
#define ELEM      bf16
#define ELEM_KIND KIND_BF16
#include "backend/native/winograd/native_winograd.inc"
#undef TARGET
#undef ISA
#undef HAS_BF16_ROUNDING
#define HAS_BF16_ROUNDING 1
#define ISA               avx512bf16
#define TARGET            __attribute__((target(AVX512_TARGETS ",avx512bf16")))
#include "backend/native/winograd/native_winograd.inc"
#undef HAS_BF16_ROUNDING
#define HAS_BF16_ROUNDING 0
#undef ELEM_KIND
#undef ELEM
#undef ROWS
#undef BLOCKS
#undef TILES
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA
#undef LOOPS_ISA

#define LOOPS_ISA avx2
#define ISA       avx2
#define ISA_BITS  BITS_256
#define TARGET    __attribute__((target("avx2,fma,f16c")))
#define LANES     8
#define TILES     6
#define BLOCKS    1
#define ROWS      4
#define ELEM      f32
#define ELEM_KIND KIND_F32
#include "backend/native/winograd/native_winograd.inc"
#undef ELEM_KIND
#undef ELEM
#define ELEM      bf16
#define ELEM_KIND KIND_BF16
#include "backend/native/winograd/native_winograd.inc"
#undef ELEM_KIND
#undef ELEM
#undef ROWS
#undef BLOCKS
#undef TILES
#undef LANES
#undef TARGET
#undef ISA_BITS
#undef ISA
#undef LOOPS_ISA
#endif

#define LOOPS_ISA plain
#define ISA       plain
#define ISA_BITS  BITS_NONE
#define TARGET
#define LANES     4
#define TILES     2
#define BLOCKS    1
#define ROWS      4
#define ELEM      f32
#define ELEM_KIND KIND_F32
#include "backend/native/winograd/native_winograd.inc"
#undef ELEM_KIND
#undef ELEM
#define ELEM      bf16
#define ELEM_KIND KIND_BF16
#include "backend/native/winograd/native_winograd.inc"

static bool can_run(const td_native_wino_simd *simd)
{
#if HAVE_X86
    if (simd == &simd_avx512bf16_16_bf16)
        return td_isa_has(TD_ISA_AVX512_BF16);
    if (simd == &simd_avx512_16_f32 || simd == &simd_avx512_16_bf16)
        return td_isa_has(TD_ISA_AVX512);
    if (simd == &simd_avx2_8_f32 || simd == &simd_avx2_8_bf16)
        return td_isa_has(TD_ISA_AVX2);
#endif
    (void)simd; /* plain */
    return true;
}

const td_native_wino_simd *td_native_wino_simd_at(td_dtype dtype, int i)
{
    static const td_native_wino_simd *const all[] = { /* best first */
#if HAVE_X86
                                                      &simd_avx512_16_f32,
                                                      &simd_avx512bf16_16_bf16,
                                                      &simd_avx512_16_bf16,
                                                      &simd_avx2_8_f32,
                                                      &simd_avx2_8_bf16,
#endif
                                                      &simd_plain_4_f32,
                                                      &simd_plain_4_bf16
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (all[k]->dtype == dtype && can_run(all[k]) && i-- == 0)
            return all[k];
    return NULL;
}
