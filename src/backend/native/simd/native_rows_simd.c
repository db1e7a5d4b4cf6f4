/*
 * native_rows_simd.c -- native_rows.inc compiled for each instruction set, and the choice
 */
#include "backend/native/simd/native_rows.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/isa.h"

#define TEXT2(a)     #a
#define TEXT(a)      TEXT2(a)
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

/* clang-format off */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
/* clang-format on */
#define QUAD_AT(p) (*(const quad *)(p))

#if defined(__x86_64__)
#define ISA    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES  16
#include "backend/native/simd/native_rows.inc"
#undef LANES
#undef TARGET
#undef ISA

#define ISA    avx2
#define TARGET __attribute__((target("avx2")))
#define LANES  8
#include "backend/native/simd/native_rows.inc"
#undef LANES
#undef TARGET
#undef ISA
#endif

#define ISA plain
#define TARGET
#define LANES 4
#include "backend/native/simd/native_rows.inc"

/* best first */
const td_native_rows *td_native_rows_at(int i)
{
    static const td_native_rows *const all[] = {
#if defined(__x86_64__)
        &rows_avx512,
        &rows_avx2,
#endif
        &rows_plain,
    };
    const size_t at = (size_t)(td_isa_loops() + i);
    return at < sizeof all / sizeof all[0] ? all[at] : NULL;
}

const td_native_rows *td_native_rows_here(void)
{
    return td_native_rows_at(0);
}
