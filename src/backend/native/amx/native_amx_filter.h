/*
 * backend/native/amx/native_amx_filter.h -- float32 filters to the pairs of bfloat16 that
 * native_amx_conv.c reads: the inner loops
 *
 *     from  [K / 16][C / 16][taps][16 of C][16 of K]             ABcd16b16a
 *     to    [K / 32][taps][C / 32][16 pairs of C][32 of K][2]    AcdB16b32a2b
 *     or    [C / 32][taps][K / 32][16 pairs of K][32 of C][2]    BcdA16a32b2a, is_grad_x
 *
 * Values are rounded to nearest even; subnormal numbers and NaN stay.
 */
#ifndef TD_BACKEND_NATIVE_AMX_NATIVE_AMX_FILTER_H
#define TD_BACKEND_NATIVE_AMX_NATIVE_AMX_FILTER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t K, C, taps; /* channels: multiples of 32 */
    bool is_grad_x;
} td_amx_filter;

/* all taps of block k of 32 of K, and block c of 32 of C */
typedef void td_amx_filter_loops(const td_amx_filter *f, int64_t k, int64_t c, const float *from,
                                 uint16_t *to);

/** NULL if this machine has no tiles. */
td_amx_filter_loops *td_amx_filter_loops_here(void);

#endif
