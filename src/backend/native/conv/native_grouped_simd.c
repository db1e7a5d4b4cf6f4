/*
 * native_grouped_simd.c -- native_grouped.inc compiled for AVX-512, float32 and bf16, and for AVX2,
 * float32; and the choice
 */
#include "backend/native/conv/native_grouped.h"

#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TAPS TD_GROUPED_TAPS

#define PASTE2(a, b)        a##_##b
#define PASTE(a, b)         PASTE2(a, b)
#define NAME(id)            PASTE(id, KIND)
#define PASTE4(a, b, c, d)  a##_##b##_##c##_##d
#define NAME3_(id, k, w, s) PASTE4(id, k, w, s)
#define NAME3(id, w, s)     NAME3_(id, KIND, w, s)

/* the store: image rows prepared for the loops, on the stack; it fills most of an L1 cache */
#define STORE_BYTES 30720

/* how many outputs of a row grad_w takes at once: 4 such rows and one row of inputs fit into the
   store, (56 x 2 + 1) 128 + 4 x 56 x 64 bytes; with AVX2 less */
#define OUTPUTS_MAX 56

/* lanes_W_N[j]: permutation that gives every lane of a group its lane j; W lanes per group in the
   result, N in a pixel */
#define FROM(w, n, j, l) ((l) / (w) * (n) + (j))
#define FOUR(w, n, j, l)                                                                           \
    FROM(w, n, j, l), FROM(w, n, j, l + 1), FROM(w, n, j, l + 2), FROM(w, n, j, l + 3)
#define ROW(w, n, j)                                                                               \
    {                                                                                              \
        FOUR(w, n, j, 0), FOUR(w, n, j, 4), FOUR(w, n, j, 8), FOUR(w, n, j, 12)                    \
    }
#define TABLE static const _Alignas(64) int32_t
/* clang-format off */
TABLE lanes_4_2[][16] = { ROW(4, 2, 0), ROW(4, 2, 1) };
TABLE lanes_4_4[][16] = { ROW(4, 4, 0), ROW(4, 4, 1), ROW(4, 4, 2), ROW(4, 4, 3) };
TABLE lanes_8_4[][16] = { ROW(8, 4, 0), ROW(8, 4, 1), ROW(8, 4, 2), ROW(8, 4, 3) };
TABLE lanes_8_8[][16] = { ROW(8, 8, 0), ROW(8, 8, 1), ROW(8, 8, 2), ROW(8, 8, 3),
                             ROW(8, 8, 4), ROW(8, 8, 5), ROW(8, 8, 6), ROW(8, 8, 7) };
/* clang-format on */

#define KIND    f32
#define IS_HALF 0
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES   16
#include "backend/native/conv/native_grouped.inc"
#undef LANES
#undef TARGET
#undef IS_HALF
#undef KIND

#define KIND    bf16
#define IS_HALF 1
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define LANES   16
#include "backend/native/conv/native_grouped.inc"
#undef LANES
#undef TARGET
#undef IS_HALF
#undef KIND

#define KIND    f32_avx2
#define IS_HALF 0
#define TARGET  __attribute__((target("avx2,fma")))
#define LANES   8
#include "backend/native/conv/native_grouped.inc"
#undef LANES
#undef TARGET
#undef IS_HALF
#undef KIND

const td_grouped_loops *td_grouped_loops_for(td_dtype dtype)
{
    if (dtype == TD_DT_F32)
        return td_isa_has(TD_ISA_AVX512) ? &loops_f32
               : td_isa_has(TD_ISA_AVX2) ? &loops_f32_avx2
                                         : NULL;
    return dtype == TD_DT_BF16 && td_isa_has(TD_ISA_AVX512_BF16) ? &loops_bf16 : NULL;
}
#else
const td_grouped_loops *td_grouped_loops_for(td_dtype dtype)
{
    (void)dtype;
    return NULL;
}
#endif
