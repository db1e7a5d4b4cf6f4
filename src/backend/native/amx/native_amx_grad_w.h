/*
 * backend/native/amx/native_amx_grad_w.h -- filter gradients of bfloat16 in the tiles of AMX: the
 * inner loops
 *
 *     dw [K / 16][C / 16][taps][16 of C][16 of K]     float32
 *     x [N, H, W, C], dy [N, P, Q, K]                 bfloat16
 *
 * Products are added over pixels, so these have to be adjacent.  x is copied to columns, a row of
 * cells for each channel, and dy to pairs of pixels; native_amx.h describes the cells and the
 * numbers of dy's pixels, which are zero between rows.
 *
 *     columns  [C][planes][cells]          a tap is an offset in cells, at any even address
 *     pairs    [K / 16][numbers / 2][16][2]
 *
 * A strip is computed tap by tap; its sums are added to those of the strips before it in float32.
 */
#ifndef TD_BACKEND_NATIVE_AMX_NATIVE_AMX_GRAD_W_H
#define TD_BACKEND_NATIVE_AMX_NATIVE_AMX_GRAD_W_H

#include "backend/native/amx/native_amx.h"

enum { TD_AMX_TILE = 16 };

/* Rows [p, p + rows) of some images, or pixels of a flat geometry; channels in multiples of 32. */
typedef struct {
    int64_t image, images;
    int64_t p, rows;
    int64_t c, c_to, k, k_to;
    bool is_first;             /* nothing has been added to `sums` */
    uint16_t *columns, *pairs; /* scratch of td_amx_columns, td_amx_pairs elements,
                                  at multiples of 64 bytes */
    float *sums;               /* dw, or another part of it */
} td_amx_grad_strip;

/** Elements of the scratch for `channels` of x, of dy. */
int64_t td_amx_columns(const td_amx_geometry *g, int64_t images, int64_t rows, int64_t channels);
int64_t td_amx_pairs(const td_amx_geometry *g, int64_t images, int64_t rows, int64_t channels);

typedef void td_amx_grad_loops(const td_amx_geometry *g, const uint16_t *x, const uint16_t *dy,
                               const td_amx_grad_strip *s);

/** NULL if this machine has no tiles. */
td_amx_grad_loops *td_amx_grad_loops_here(void);

#endif
