/*
 * backend/native/int8/native_pointwise_int8.h -- the inner loops of 1x1 convolutions of 8-bit
 * integers
 *
 *     x [N, H, W, C]   acdb, u8           w [K / 64, C / 4, 64, 4]   AcdB64a4b, s8
 *     y, residual [N, P, Q, K]   acdb, u8, s8 or float32
 */
#ifndef TD_BACKEND_NATIVE_INT8_NATIVE_POINTWISE_INT8_H
#define TD_BACKEND_NATIVE_INT8_NATIVE_POINTWISE_INT8_H

#include "backend/native/int8/native_int8_conv.h"

enum { TD_POINTWISE_PIXELS = 6 /* pixels of a tile, at most */ };

typedef struct {
    int64_t C, K, H, W, P, Q, stride;
    bool is_signed; /* y is s8 */
    bool is_float;  /* y is float32, and so is the residual */
    bool relu;      /* of float32 results; those of u8 cannot be negative */
    td_int8_residual residual_kind;
    float residual_scale; /* in steps of y */
    bool is_bounded;      /* as in td_int8_scales */
    const uint8_t *x;
    const int8_t *w;
    const float *scale, *bias; /* [K] in steps of y */
    const void *residual;      /* may be y */
    void *y;
} td_pointwise;

/* pixels [from, to) of y, at most TD_POINTWISE_PIXELS, fewer if results are not bounded, and its
   channels from 64 k on; `ahead` as in native_taps_int8.h */
typedef struct {
    int64_t from, to, k;
    const int8_t *ahead;
} td_pointwise_tile;

typedef void td_pointwise_loops(const td_pointwise *v, const td_pointwise_tile *t);

/** The loops of this machine, NULL without VNNI. */
td_pointwise_loops *td_pointwise_loops_here(void);

/** The preferred layouts of the convolutions of native_pointwise_int8.c; false for other nodes. */
bool td_native_pointwise_int8_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
