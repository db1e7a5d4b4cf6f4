/*
 * backend/native/elementwise/native_act_bf16.h -- activations and softmax of bfloat16, and their
 * gradients: the inner loops
 */
#ifndef TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_ACT_BF16_H
#define TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_ACT_BF16_H

#include <stdint.h>

#include "ops/act_list.h"

/* the result may be an operand */
typedef struct {
    void (*function)(int64_t n, const uint16_t *x, uint16_t *y);
    void (*gradient)(int64_t n, const uint16_t *dy, const uint16_t *x, uint16_t *dx);
} td_native_act_loops;

/** NULL if there are no such loops for `act`, or this machine lacks the instructions. */
const td_native_act_loops *td_native_act_bf16(td_act act);

/* softmax of one row; `room`: n floats */
typedef struct {
    void (*function)(int64_t n, const uint16_t *x, uint16_t *y, float *room);
    void (*gradient)(int64_t n, const uint16_t *dy, const uint16_t *y, uint16_t *dx);
} td_native_softmax_loops;

/** NULL if this machine lacks the instructions. */
const td_native_softmax_loops *td_native_softmax_bf16(void);

#endif
