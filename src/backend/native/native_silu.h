/*
 * backend/native/native_silu.h -- silu of bfloat16 and its gradient: the inner loops
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_SILU_H
#define TD_BACKEND_NATIVE_NATIVE_SILU_H

#include <stdint.h>

/* the result may be an operand */
typedef struct {
    void (*function)(int64_t n, const uint16_t *x, uint16_t *y);
    void (*gradient)(int64_t n, const uint16_t *dy, const uint16_t *x, uint16_t *dx);
} td_native_silu_loops;

/** NULL if this machine lacks the instructions. */
const td_native_silu_loops *td_native_silu_bf16(void);

#endif
