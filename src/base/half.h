/*
 * base/half.h -- bf16 and fp16 as 16-bit patterns, converted with correct rounding
 *
 * To nearest, ties to even; subnormals, infinities and signed zeros kept; every NaN becomes a quiet
 * NaN with the sign kept and the upper payload bits kept where they fit.
 */
#ifndef TD_BASE_HALF_H
#define TD_BASE_HALF_H

#include <stdint.h>

uint16_t td_f32_to_bf16(float x);
float td_bf16_to_f32(uint16_t x);
uint16_t td_f32_to_f16(float x);
float td_f16_to_f32(uint16_t x);

#endif
