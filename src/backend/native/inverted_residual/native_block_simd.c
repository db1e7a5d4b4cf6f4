/*
 * native_block_simd.c -- the inner loops of inverted residual blocks, of 1x1 convolutions of images
 * times gates and of first convolutions, compiled for AVX-512 and AVX2, and with products of
 * bfloat16; and the choice
 *
 * The first two compute every sum in the same order, so results have the same bits.
 */
#include <math.h>
#include <string.h>

#include "backend/native/inverted_residual/native_gated.h"
#include "backend/native/inverted_residual/native_inverted.h"
#include "backend/native/inverted_residual/native_stem.h"
#include "backend/native/simd/native_simd.h"
#include "base/machine.h"
#include "ops/ops.h"

/* --- the scratch of a job of inverted residual blocks ----------------------------------------- */

static int64_t rows_of_e(const td_inverted *v, int64_t rows)
{
    return (rows - 1) * v->stride + v->side;
}

static int64_t size_of_e(const td_inverted *v, int64_t rows)
{
    return rows_of_e(v, rows) * v->columns * TD_INVERTED_BLOCK;
}

static int64_t size_of_d(const td_inverted *v, int64_t rows)
{
    return v->has_projection ? rows * v->Q * TD_INVERTED_DEPTH : 0;
}

/* e, d, and the place in e of every pixel of x */
int64_t td_inverted_scratch(const td_inverted *v, int64_t rows)
{
    return size_of_e(v, rows) + size_of_d(v, rows) + rows_of_e(v, rows) * v->W;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* the rows of x that a job reads */
typedef struct {
    int64_t first; /* row of x that is row 0 of e, may be negative */
    int64_t from, to;
} input_rows;

static input_rows rows_read(const td_inverted *v, const td_inverted_job *j)
{
    input_rows r = { .first = j->p_from * v->stride - v->pad };
    const int64_t end = r.first + rows_of_e(v, j->p_to - j->p_from);
    r.from = r.first < 0 ? 0 : r.first;
    r.to = end < v->H ? end : v->H;
    if (r.to < r.from)
        r.to = r.from;
    return r;
}

static void places(const td_inverted *v, const input_rows *r, int32_t *at)
{
    for (int64_t h = r->from; h < r->to; h++)
        for (int64_t w = 0; w < v->W; w++)
            *at++ = (int32_t)(((h - r->first) * v->columns + w + v->pad) * TD_INVERTED_BLOCK);
}

/* --- the rows of a first convolution ---------------------------------------------------------- */

static void copy_rows(const td_stem *v, int64_t n, int64_t p, const float *x, float *to)
{
    memset(to, 0, (size_t)(v->C * 3 * v->columns) * sizeof *to);
    for (int64_t c = 0; c < v->C; c++)
        for (int64_t r = 0; r < 3; r++, to += v->columns) {
            const int64_t h = p * 2 + r - v->pad;
            if (h >= 0 && h < v->H)
                memcpy(to + v->pad, x + ((n * v->C + c) * v->H + h) * v->W,
                       (size_t)v->W * sizeof *to);
        }
}

/* --- the loops -------------------------------------------------------------------------------- */

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(id)     PASTE(id, ISA)

#define IS_BF16     0
#define ISA         avx512
#define IS_WIDE     1
#define TARGET      __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define EXPAND_TILE 12
#define STEM_TILE   8
#define WINDOWS     7
#include "backend/native/inverted_residual/native_block.inc"
#include "backend/native/inverted_residual/native_gated.inc"
#include "backend/native/inverted_residual/native_inverted.inc"
#include "backend/native/inverted_residual/native_stem.inc"
#undef WINDOWS
#undef STEM_TILE
#undef EXPAND_TILE
#undef TARGET
#undef IS_WIDE
#undef ISA
#include "backend/native/inverted_residual/native_block_end.inc"

#define ISA         avx2
#define IS_WIDE     0
#define TARGET      __attribute__((target("avx2,fma")))
#define EXPAND_TILE 6
#define STEM_TILE   6
#define WINDOWS     4
#include "backend/native/inverted_residual/native_block.inc"
#include "backend/native/inverted_residual/native_gated.inc"
#include "backend/native/inverted_residual/native_inverted.inc"
#include "backend/native/inverted_residual/native_stem.inc"

#undef WINDOWS
#undef STEM_TILE
#undef EXPAND_TILE
#undef TARGET
#undef IS_WIDE
#undef ISA
#undef IS_BF16
#include "backend/native/inverted_residual/native_block_end.inc"

#define IS_BF16      1
#define ISA          bf16
#define IS_WIDE      1
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define EXPAND_TILE  12
#define PROJECT_SUMS 28
#define STEM_TILE    8
#define WINDOWS      7
#include "backend/native/inverted_residual/native_block.inc"
#include "backend/native/inverted_residual/native_block_bf16.inc"
#include "backend/native/inverted_residual/native_gated.inc"
#include "backend/native/inverted_residual/native_inverted.inc"
#include "backend/native/inverted_residual/native_stem_bf16.inc"

td_inverted_loops *td_inverted_loops_at(int i)
{
    static td_inverted_loops *const all[] = { run_inverted_avx512, run_inverted_avx2 };
    const int at = i + td_native_is_avx2();
    return td_native_has_avx2() && at < 2 ? all[at] : NULL;
}

td_gated_loops *td_gated_loops_at(int i)
{
    static td_gated_loops *const all[] = { run_gated_avx512, run_gated_avx2 };
    const int at = i + td_native_is_avx2();
    return td_native_has_avx2() && at < 2 ? all[at] : NULL;
}

static bool has_loops_bf16(void)
{
    return td_native_has_avx2() && !td_native_is_avx2() && td_cpu_bf16_rate() == TD_BF16_RATE_PAIRS;
}

td_inverted_loops *td_inverted_loops_bf16(void)
{
    return has_loops_bf16() ? run_inverted_bf16 : NULL;
}

td_project_bf16 *td_project_loops_bf16(void)
{
    return has_loops_bf16() ? project_bf16 : NULL;
}

td_gated_loops *td_gated_loops_bf16(void)
{
    return has_loops_bf16() ? run_gated_bf16 : NULL;
}

td_stem_loops_bf16 *td_stem_loops_for_bf16(void)
{
    return has_loops_bf16() ? run_stem_bf16 : NULL;
}

td_stem_loops *td_stem_loops_at(int i)
{
    static td_stem_loops *const all[] = { run_stem_avx512, run_stem_avx2 };
    const int at = i + td_native_is_avx2();
    return td_native_has_avx2() && at < 2 ? all[at] : NULL;
}
#else
td_inverted_loops *td_inverted_loops_at(int i)
{
    (void)i;
    return NULL;
}

td_gated_loops *td_gated_loops_at(int i)
{
    (void)i;
    return NULL;
}

td_inverted_loops *td_inverted_loops_bf16(void)
{
    return NULL;
}

td_project_bf16 *td_project_loops_bf16(void)
{
    return NULL;
}

td_gated_loops *td_gated_loops_bf16(void)
{
    return NULL;
}

td_stem_loops_bf16 *td_stem_loops_for_bf16(void)
{
    return NULL;
}

td_stem_loops *td_stem_loops_at(int i)
{
    (void)i;
    return NULL;
}
#endif
