/*
 * native_gated_simd.c -- the inner loops of 1x1 convolutions of images times gates, for AVX2
 */
#include "backend/native/native_gated.h"

#include "backend/native/native.h"
#include "backend/native/native_block_product.h"

#define LANES TD_GATED_LANES
#define DEPTH TD_GATED_DEPTH

#if defined(__x86_64__)
/* scaled [pixels, DEPTH] = `depth` channels of x gate, from c on */
static TARGET void scale(const td_gated *v, const td_gated_in *in, int64_t from, int64_t to,
                         int64_t c, int64_t depth, float *scaled)
{
    for (int64_t i = from; i < to; i++) {
        const float *x = in->x + i * v->C + c, *gate = in->gate + i / v->area * v->C + c;
        float *s = scaled + (i - from) * DEPTH;
        for (int64_t k = 0; k < depth; k += LANES)
            _mm256_storeu_ps(s + k,
                             _mm256_mul_ps(_mm256_loadu_ps(x + k), _mm256_loadu_ps(gate + k)));
    }
}

static TARGET void run(const td_gated *v, const td_gated_in *in, int64_t from, int64_t to, float *y,
                       float *scratch)
{
    for (int64_t c = 0; c < v->C; c += DEPTH) {
        const int64_t depth = v->C - c < DEPTH ? v->C - c : DEPTH;
        scale(v, in, from, to, c, depth, scratch);
        td_block_project(&(td_block_projection){
            .n = to - from,
            .depth = depth,
            .row = DEPTH,
            .M = v->C,
            .K = v->K,
            .d = scratch,
            .w = in->w + c * LANES,
            .b = in->bias,
            .rest = c == 0 && in->residual ? in->residual + from * v->K : NULL,
            .is_first = c == 0,
            .y = y + from * v->K });
    }
}

td_gated_loops *td_gated_loops_here(void)
{
    return td_native_has_avx2() ? run : NULL;
}
#else
td_gated_loops *td_gated_loops_here(void)
{
    return NULL;
}
#endif
