/*
 * half.c -- 16-bit floats by integer arithmetic on their patterns
 *
 *            sign  exponent  fraction
 *   float32    1      8         23
 *   bf16       1      8          7      the upper half of a float32
 *   fp16       1      5         10      exponent bias 15, subnormals below 2^-14
 */
#include "base/half.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* u / 2^shift to nearest, ties to even; 1 <= shift <= 31 */
static uint32_t shift_right_rounded(uint32_t u, int shift)
{
    uint32_t kept = u >> shift, lost = u & ((UINT32_C(1) << shift) - 1);
    uint32_t tie = UINT32_C(1) << (shift - 1);
    return kept + (lost > tie || (lost == tie && (kept & 1)));
}

uint16_t td_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x0040);
    return (uint16_t)((u >> 16 & 0x8000) | shift_right_rounded(u & 0x7fffffff, 16));
}

float td_bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    if ((x & 0x7fff) > 0x7f80)
        u |= 0x00400000;
    return float_of(u);
}

uint16_t td_f32_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;

    if (magnitude > 0x7f800000) /* NaN */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* 2^-14 and above: move the bias from 127 to 15, then round */
        return (uint16_t)(sign | shift_right_rounded(magnitude - (UINT32_C(112) << 23), 13));
    if (magnitude <= 0x33000000) /* 2^-25, a tie, and below round to zero */
        return (uint16_t)sign;

    uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    int shift = 126 - (int)(magnitude >> 23); /* the fraction in units of 2^-24: 14 .. 24 places */
    return (uint16_t)(sign | shift_right_rounded(fraction, shift));
}

float td_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;

    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x00400000 : 0));
    if (exponent > 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f; /* exact */
    return float_of(sign | bits_of(tiny));
}
