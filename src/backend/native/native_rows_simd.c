/*
 * native_rows_simd.c -- native_rows.inc compiled for each instruction set, and the choice
 */
#include "backend/native/native_rows.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

#define TEXT2(a)     #a
#define TEXT(a)      TEXT2(a)
#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

#if defined(__x86_64__)
#define ISA    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES  16
#include "backend/native/native_rows.inc"
#undef LANES
#undef TARGET
#undef ISA

#define ISA    avx2
#define TARGET __attribute__((target("avx2")))
#define LANES  8
#include "backend/native/native_rows.inc"
#undef LANES
#undef TARGET
#undef ISA
#endif

#define ISA plain
#define TARGET
#define LANES 4
#include "backend/native/native_rows.inc"

/* base/half.c detects what this machine can run */
const td_native_rows *td_native_rows_here(void)
{
#if defined(__x86_64__)
    const char *best = td_half_simd_at(0)->name;
    if (strcmp(best, rows_avx512.isa) == 0)
        return &rows_avx512;
    if (strcmp(best, rows_avx2.isa) == 0)
        return &rows_avx2;
#endif
    return &rows_plain;
}
