/*
 * native_detection_simd.c -- native_detection.inc compiled for each instruction set, and the choice
 */
#include <math.h>
#include <string.h>

#include "backend/native/detection/native_detection.h"
#include "base/isa.h"

#if defined(__x86_64__)
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define TEXT2(a)     #a
#define TEXT(a)      TEXT2(a)
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

#if HAVE_X86
#define ISA    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES  16
#include "backend/native/detection/native_detection.inc"
#undef LANES
#undef TARGET
#undef ISA

#define ISA    avx2
#define TARGET __attribute__((target("avx2")))
#define LANES  8
#include "backend/native/detection/native_detection.inc"
#undef LANES
#undef TARGET
#undef ISA
#endif

#define ISA plain
#define TARGET
#define LANES 4
#include "backend/native/detection/native_detection.inc"

/* best first */
const td_native_detection_simd *td_native_detection_simd_at(int i)
{
    static const td_native_detection_simd *const all[] = {
#if HAVE_X86
        &simd_avx512,
        &simd_avx2,
#endif
        &simd_plain,
    };
    const size_t at = (size_t)(td_isa_loops() + i);
    return at < sizeof all / sizeof all[0] ? all[at] : NULL;
}
