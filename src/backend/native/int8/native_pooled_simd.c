/*
 * native_pooled_simd.c -- the inner loops of conv2d_pool_int8, compiled for AMX, AVX-512 with bf16,
 * AVX-512 and AVX2; and the choice
 *
 * Those of float32 compute every sum in the same order, so results have the same bits.
 */
#include <string.h>

#include "backend/native/int8/native_int8.h"
#include "backend/native/int8/native_pooled.h"
#include "backend/native/simd/native_simd.h"
#include "base/isa.h"

#if defined(__x86_64__)
#include "backend/native/simd/native_tile.h"

/* --- the rows of the image -------------------------------------------------------------------- */

static void copy_floats(const float *x, int64_t n, float *to, int64_t pad)
{
    memcpy(to + pad, x, (size_t)n * sizeof *to);
}

static inline int32_t pair_at(const float *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* n numbers rounded to bf16 */
static __attribute__((target(HALVES))) void copy_halves(const float *x, int64_t n, float *to,
                                                        int64_t pad)
{
    enum { LANES = 16 };
    uint16_t *y = (uint16_t *)(void *)to + pad;
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 rest = n - i < LANES ? (__mmask16)((1U << (n - i)) - 1) : 0xffff;
        const __m256bh each = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, x + i));
        _mm256_mask_storeu_epi16(y + i, rest, (__m256i)each);
    }
}

/* --- the loops -------------------------------------------------------------------------------- */

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

#define LANES               16
#define TILE                14
#define vec                 __m512
#define LOAD(p)             _mm512_loadu_ps(p)
#define STORE(p, x)         _mm512_storeu_ps(p, x)
#define ZERO()              _mm512_setzero_ps()
#define BITS(x)             _mm512_castps_si512(x)
#define FLOAT(x)            _mm512_castsi512_ps(x)
#define LARGEST(a, b)       FLOAT(_mm512_max_epi32(BITS(a), BITS(b)))
#define RELU(x)             _mm512_abs_ps(_mm512_max_ps(ZERO(), x)) /* NaN stays */
#define FILTER_AT(k, block) ((k) * (block))
#define IS_TILES            0

#define ISA                 avx512
#define TARGET              __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define IS_HALF             0
#define COPY_ROW            copy_floats
#define BROADCAST(p)        _mm512_set1_ps(*(p))
#define MULTIPLY(sum, x, w) _mm512_fmadd_ps(x, w, sum)
#include "backend/native/int8/native_pooled.inc"
#undef MULTIPLY
#undef BROADCAST
#undef COPY_ROW
#undef IS_HALF
#undef TARGET
#undef ISA

/* pairs of bf16 */
#define ISA                 avx512bf16
#define TARGET              __attribute__((target(HALVES)))
#define IS_HALF             1
#define COPY_ROW            copy_halves
#define BROADCAST(p)        FLOAT(_mm512_set1_epi32(pair_at(p)))
#define MULTIPLY(sum, x, w) _mm512_dpbf16_ps(sum, (__m512bh)BITS(x), (__m512bh)BITS(w))
#include "backend/native/int8/native_pooled.inc"
#undef MULTIPLY
#undef BROADCAST
#undef IS_TILES
#undef TARGET
#undef ISA

/* the same in tiles */
#define ISA      amx
#define TARGET   __attribute__((target(TILES)))
#define IS_TILES 1
#include "backend/native/int8/native_pooled.inc"
#undef COPY_ROW
#undef IS_HALF
#undef TARGET
#undef IS_TILES
#undef ISA
#define IS_TILES 0

#undef FILTER_AT
#undef RELU
#undef LARGEST
#undef FLOAT
#undef BITS
#undef ZERO
#undef STORE
#undef LOAD
#undef vec
#undef TILE
#undef LANES

/* two vectors are a block of 16 channels */
#define ISA                 avx2
#define TARGET              __attribute__((target("avx2,fma")))
#define LANES               8
#define TILE                6
#define IS_HALF             0
#define vec                 __m256
#define LOAD(p)             _mm256_loadu_ps(p)
#define STORE(p, x)         _mm256_storeu_ps(p, x)
#define ZERO()              _mm256_setzero_ps()
#define BITS(x)             _mm256_castps_si256(x)
#define FLOAT(x)            _mm256_castsi256_ps(x)
#define LARGEST(a, b)       FLOAT(_mm256_max_epi32(BITS(a), BITS(b)))
#define RELU(x)             _mm256_andnot_ps(_mm256_set1_ps(-0.0F), _mm256_max_ps(ZERO(), x))
#define FILTER_AT(k, block) ((k) / 2 * (block) + (k) % 2 * 8)
#define COPY_ROW            copy_floats
#define BROADCAST(p)        _mm256_set1_ps(*(p))
#define MULTIPLY(sum, x, w) _mm256_fmadd_ps(x, w, sum)
#include "backend/native/int8/native_pooled.inc"

td_pooled_loops *td_pooled_loops_at(bool is_half, int i)
{
    static td_pooled_loops *const wide[] = { run_pooled_avx512, run_pooled_avx2 };
    static td_pooled_loops *const half[] = { run_pooled_amx, run_pooled_avx512bf16 };
    const int at = i + td_native_is_avx2(), half_at = i + !td_isa_has_tiles();
    if (is_half)
        return half_at < 2 && td_isa_has(TD_ISA_AVX512_BF16) ? half[half_at] : NULL;
    return td_native_has_avx2() && at < 2 ? wide[at] : NULL;
}
#else
td_pooled_loops *td_pooled_loops_at(bool is_half, int i)
{
    (void)is_half;
    (void)i;
    return NULL;
}
#endif
