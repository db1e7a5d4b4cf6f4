/*
 * native_simd.c -- chooses the loops that this machine can run
 */
#include "backend/native/simd/native_simd.h"

#include <string.h>

#include "backend/native/simd/native_simd_parts.h"
#include "base/half.h"
#include "base/isa.h"
#include "base/status.h"

enum {
    N_ISA = HAVE_X86 ? 3 : 1,
    N_ALL = (HAVE_X86 ? 1 : 0) + N_ISA * N_SIMD_OF_ISA,
};

/* the i-th of all loops, best first */
static const td_native_simd *simd_at(int i)
{
#if HAVE_X86
    static const td_native_simd *const *const isas[N_ISA] = { td_native_simd_avx512,
                                                              td_native_simd_avx2,
                                                              td_native_simd_plain };
    if (i-- == 0)
        return td_native_simd_avx512bf16;
#else
    static const td_native_simd *const *const isas[N_ISA] = { td_native_simd_plain };
#endif
    return isas[i / N_SIMD_OF_ISA][i % N_SIMD_OF_ISA];
}

/* base/half.c has found the instruction set; AVX-512 BF16 is asked for here */
const td_native_simd *td_native_simd_at(int i)
{
    const char *best = td_half_simd_at(0)->name;
    int first = 0;
    while (first < N_ALL && strcmp(simd_at(first)->isa, best) != 0)
        first++;
    TD_CHECK(first < N_ALL);
#if HAVE_X86
    if (first == 1 && td_isa_has(TD_ISA_AVX512_BF16))
        first = 0;
#endif
    return first + i < N_ALL ? simd_at(first + i) : NULL;
}

bool td_native_is_avx2(void)
{
    return td_isa_best() == TD_ISA_AVX2;
}

bool td_native_has_avx2(void)
{
    return td_isa_has(TD_ISA_AVX2);
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
