/*
 * native_act_bf16_simd.c -- silu, gelu, softmax and their gradients of bfloat16, for AVX-512 with
 * its conversions
 *
 * The general loops (native_act.inc) widen to a buffer, compute an exponential good to float32's
 * last places, and round.  These compute as many digits as bfloat16 needs, in registers
 * (native_bf16_math.h).
 */
#include "backend/native/elementwise/native_act_bf16.h"

#include <math.h>
#include <stddef.h>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/native/simd/native_bf16_math.h"

/* --- silu ------------------------------------------------------------------------------------- */

static TARGET void silu(int64_t n, const uint16_t *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which);
        put(y + i, _mm512_mul_ps(v, sigmoid(v)), which);
    }
}

/* dx = dy s (1 + x (1 - s)) */
static TARGET void silu_grad(int64_t n, const uint16_t *dy, const uint16_t *x, uint16_t *dx)
{
    const __m512 one = _mm512_set1_ps(1);
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which), s = sigmoid(v);
        const __m512 slope = _mm512_mul_ps(s, _mm512_fmadd_ps(v, _mm512_sub_ps(one, s), one));
        put(dx + i, _mm512_mul_ps(load(dy + i, which), slope), which);
    }
}

/* --- gelu ------------------------------------------------------------------------------------- */

static TARGET void gelu(int64_t n, const uint16_t *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which);
        put(y + i, gelu_of(v), which);
    }
}

/* dx = dy (below + x e / sqrt(2 pi)) */
static TARGET void gelu_grad(int64_t n, const uint16_t *dy, const uint16_t *x, uint16_t *dx)
{
    const __m512 density = _mm512_set1_ps(0.39894228f);
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 v = load(x + i, which);
        const normal f = normal_of(v);
        const __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(v, density), f.e, f.below);
        put(dx + i, _mm512_mul_ps(load(dy + i, which), slope), which);
    }
}

const td_native_act_loops *td_native_act_bf16(td_act act)
{
    static const td_native_act_loops silu_loops = { silu, silu_grad };
    static const td_native_act_loops gelu_loops = { gelu, gelu_grad };
    if (!td_isa_has(TD_ISA_AVX512_BF16))
        return NULL;
    return act == TD_ACT_silu ? &silu_loops : act == TD_ACT_gelu ? &gelu_loops : NULL;
}

/* --- softmax ---------------------------------------------------------------------------------- */

/* minus infinity in lanes past the row's end */
INLINE __m512 load_row(const uint16_t *x, __mmask16 which)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), which, load(x, which));
}

static TARGET void softmax(int64_t n, const uint16_t *x, uint16_t *y, float *room)
{
    __m512 most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += LANES)
        most = _mm512_max_ps(load_row(x + i, lanes_of(n - i)), most); /* passes over NaN */
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        const __m512 d = _mm512_sub_ps(load_row(x + i, which), largest);
        const __m512 e = power_of_2(_mm512_mul_ps(d, _mm512_set1_ps(LOG2_E)));
        _mm512_mask_storeu_ps(room + i, which, e);
        sum = _mm512_mask_add_ps(sum, which, sum, e);
    }
    const __m512 by = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sum));
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        put(y + i, _mm512_mul_ps(_mm512_maskz_loadu_ps(which, room + i), by), which);
    }
}

/* dx = y (dy - sum of dy y) */
static TARGET void softmax_grad(int64_t n, const uint16_t *dy, const uint16_t *y, uint16_t *dx)
{
    __m512 dots = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        dots = _mm512_fmadd_ps(load(dy + i, which), load(y + i, which), dots);
    }
    const __m512 dot = _mm512_set1_ps(_mm512_reduce_add_ps(dots));
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 which = lanes_of(n - i);
        put(dx + i, _mm512_mul_ps(load(y + i, which), _mm512_sub_ps(load(dy + i, which), dot)),
            which);
    }
}

const td_native_softmax_loops *td_native_softmax_bf16(void)
{
    static const td_native_softmax_loops loops = { softmax, softmax_grad };
    return td_isa_has(TD_ISA_AVX512_BF16) ? &loops : NULL;
}
#else
const td_native_act_loops *td_native_act_bf16(td_act act)
{
    (void)act;
    return NULL;
}

const td_native_softmax_loops *td_native_softmax_bf16(void)
{
    return NULL;
}
#endif
