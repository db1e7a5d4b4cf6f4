/*
 * backend/native/simd/native_transpose_16.h -- 16 rows of 16 cells of 32 bits as 16 columns, for
 * AVX-512
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_TRANSPOSE_16_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_TRANSPOSE_16_H

#include <immintrin.h>

/* the 4 x 4 blocks of 16 rows of 16 are transposed, then exchanged */
static inline __attribute__((always_inline, target("avx512f"))) void
td_transpose_16(const __m512 *row, __m512 *column)
{
    __m512 t[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        const __m512 a = _mm512_unpacklo_ps(row[i], row[i + 1]);
        const __m512 b = _mm512_unpackhi_ps(row[i], row[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(row[i + 2], row[i + 3]);
        const __m512 d = _mm512_unpackhi_ps(row[i + 2], row[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* columns i, i + 4, i + 8, i + 12 */
        const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        column[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        column[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        column[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        column[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#endif
