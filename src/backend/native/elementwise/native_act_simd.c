/*
 * native_act_simd.c -- native_act.inc compiled for each instruction set, and the choice
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/native/elementwise/native_act.h"
#include "backend/native/simd/native_erf.h"
#include "base/isa.h"
#include "base/rng.h"

#if defined(__x86_64__)
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

typedef float real;

/* tanh(x) / x - 1 over x^2, for |x| < 0.625 */
#define TANH_0 -0.333333284f
#define TANH_1 0.133327946f
#define TANH_2 -0.0538540706f
#define TANH_3 0.0210100804f
#define TANH_4 -0.00611319067f

#define TEXT2(a)     #a
#define TEXT(a)      TEXT2(a)
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)
#define SIMD         _Pragma("omp simd")

#if HAVE_X86
#define ISA    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#include "backend/native/elementwise/native_act.inc"
#undef TARGET
#undef ISA

#define ISA    avx2
#define TARGET __attribute__((target("avx2")))
#include "backend/native/elementwise/native_act.inc"
#undef TARGET
#undef ISA
#endif

#define ISA plain
#define TARGET
#include "backend/native/elementwise/native_act.inc"

/* best first */
const td_native_act_simd *td_native_act_simd_at(int i)
{
    static const td_native_act_simd *const all[] = {
#if HAVE_X86
        &simd_avx512,
        &simd_avx2,
#endif
        &simd_plain,
    };
    const size_t at = (size_t)(td_isa_loops() + i);
    return at < sizeof all / sizeof all[0] ? all[at] : NULL;
}
