/*
 * backend/native/int8/native_taps_int8.h -- the inner loops of 3x3 convolutions of 8-bit integers
 *
 *     x [N, H, W, C]   acdb, u8           w [K / 64, 3, 3, C / 4, 64, 4]   AcdB64a4b, s8
 *     y [N, P, Q, K]   acdb, u8 or s8
 */
#ifndef TD_BACKEND_NATIVE_INT8_NATIVE_TAPS_INT8_H
#define TD_BACKEND_NATIVE_INT8_NATIVE_TAPS_INT8_H

#include "backend/native/int8/native_int8_conv.h"

enum { TD_TAPS_PIXELS = 7 /* pixels of a tile, of one row */ };

typedef struct {
    int64_t N, C, K, H, W, P, Q, stride; /* padded by one pixel; Q is a multiple of 7 */
    bool is_signed;                      /* y is s8 */
    const uint8_t *x;
    const int8_t *w;
    const float *scale, *bias; /* [K] in steps of y */
    void *y;
} td_taps;

/* tile i of y, in the order of its pixels, and its channels from 64 k on; meanwhile the cache lines
   from `ahead` on are fetched, one for each 4 channels of a pixel, if not NULL */
typedef void td_taps_loops(const td_taps *v, int64_t i, int64_t k, const int8_t *ahead);

/** The loops of this machine, NULL without VNNI. */
td_taps_loops *td_taps_loops_here(void);

/** The preferred layouts of the convolutions of native_taps_int8.c; false for other nodes. */
bool td_native_taps_int8_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
