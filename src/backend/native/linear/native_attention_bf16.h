/*
 * backend/native/linear/native_attention_bf16.h -- attention in bfloat16: one head of one image
 *
 *     y [T, D] = softmax(scale q kT) v      q, k, v [T, D]
 *
 * Keys and values are packed into panels of 32 first.  Then 6 rows at a time: their products with
 * all keys in float32, the softmax, rounded to bfloat16, and the sum of the values by it.
 */
#ifndef TD_BACKEND_NATIVE_LINEAR_NATIVE_ATTENTION_BF16_H
#define TD_BACKEND_NATIVE_LINEAR_NATIVE_ATTENTION_BF16_H

#include <stddef.h>
#include <stdint.h>

/* distances in elements */
typedef struct {
    int64_t T, D; /* D: a multiple of 32 */
    int64_t x_row, y_row;
    const uint16_t *q, *k, *v; /* rows x_row apart */
    uint16_t *y;
    float scale;
    void *scratch; /* as many bytes as td_half_head_scratch says, aligned to a cache line */
} td_half_head;

size_t td_half_head_scratch(int64_t T, int64_t D);

typedef void td_half_head_loops(const td_half_head *h);

/** NULL if this machine lacks the instructions. */
td_half_head_loops *td_half_head_loops_here(void);

#endif
