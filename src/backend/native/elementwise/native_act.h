/*
 * native_act.h -- inner loops of activations and of functions of two tensors, the formulas of
 * ops/act_list.h in float32
 *
 * Written once and compiled for AVX-512, AVX2 and the baseline instruction set; all give the same
 * bits, whatever the position of an element.
 */
#ifndef TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_ACT_H
#define TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_ACT_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/act_list.h"

/* The draws of a sample (td_dropout_stream of ops/dropout.c), and what they decide. */
typedef struct {
    uint32_t key[2], ctr[4];
    uint32_t least; /* a draw below it makes 0 */
    float scale;    /* of the others */
} td_native_draws;

typedef struct {
    const char *isa;

    /* by the row's number; the result may be an operand.  `with`: what the row's gradient reads */
    void (*function[TD_ACT_COUNT])(int64_t n, const td_act_attr *attr, const float *x, float *y);
    void (*gradient[TD_ACT_COUNT])(int64_t n, const td_act_attr *attr, const float *dy,
                                   const float *with, float *dx);

    /* by td_binary; an operand with `..._is_one` is one number */
    void (*binary[TD_BINARY_COUNT])(int64_t n, const float *x, bool x_is_one, const float *z,
                                    bool z_is_one, float *y);

    /* elements of a sample from 4 `block` on; the result may be the operand */
    void (*dropout)(int64_t n, const td_native_draws *d, int64_t block, const float *x, float *y);
} td_native_act_simd;

/** Number i of the loops that this machine can run, the best first; NULL past the end. */
const td_native_act_simd *td_native_act_simd_at(int i);

#endif
