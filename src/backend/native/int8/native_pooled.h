/*
 * backend/native/int8/native_pooled.h -- the inner loops of conv2d_pool_int8
 *
 *     x [N, C, H, W]   plain, float32      y [N, P, Q, K]   acdb, u8
 *     w [K / 16, C, R, taps, 16]           of 4 bytes each: Abcd16a of floats, or AbcD16a2d of
 *                                          pairs of bf16, the last with a zero if S is odd
 *
 * A row of x becomes a row of such elements, too, with zeros for the padding.
 *
 * If S is odd, the last taps of two rows of the filter are a pair: rows 2 i and 2 i + 1 of x, with
 * the padding counted, become a row of pairs of their even pixels.
 */
#ifndef TD_BACKEND_NATIVE_INT8_NATIVE_POOLED_H
#define TD_BACKEND_NATIVE_INT8_NATIVE_POOLED_H

#include "backend/native/common/native_division.h"
#include "ir/graph.h"
#include "ir/target.h"

enum {
    TD_POOLED_LANES = 16,
    TD_POOLED_CHANNELS = 32, /* of a part, at most */
    TD_POOLED_KERNEL_MAX = 15
};

typedef struct {
    int64_t N, C, H, W, K;
    int64_t R, taps;            /* rows and elements of a row of a filter */
    bool is_half;               /* pairs of bf16 */
    bool is_odd;                /* the last pair has a zero */
    int64_t P, Q;               /* of the convolution's result */
    int64_t pooled_P, pooled_Q; /* of y */
    int64_t columns;            /* elements of a row and its padding */
    int64_t step;               /* elements between windows */
    int64_t stride, pad, kernel, pool_stride, pool_pad;
    float y_scale;
    int64_t ring, phases; /* for tiles, from td_pooled_set_ring */
} td_pooled;

/* some rows of y, of one image, and the thread's scratch */
typedef struct {
    int64_t from, to;
    const float *x; /* the image */
    const void *w;
    const float *bias;
    uint8_t *y;      /* the image's, row 0 */
    void *rows;      /* td_pooled_rows: [C, R, columns] of elements; row h is number (h + pad) % R.
                        With is_odd behind them [C, R / 2 + 1, columns] of pairs of two rows, which
                        are number (h + pad) / 2 % (R / 2 + 1), and their filter
                        [K / 16, C, (R + 1) / 2, 16].  Tiles: scratch for one row */
    void *windows;   /* tiles: td_pooled_windows of pairs; td_pooled_filter of pairs */
    bool has_filter; /* tiles: the latter are there, from a call before */
    float *sums;     /* [td_pooled_pixels, TD_POOLED_CHANNELS] of a row of the convolution */
    float *largest;  /* [kernel, pooled_Q, K] of each of the last rows of the convolution */
    float *together; /* [pooled_Q, K] of these rows */
} td_pooled_job;

/*
 * For products in tiles of 16 rows of 64 bytes: a column of elements after the other, each of the
 * last rows of the image, of which the window of a pixel is `taps` columns; and the filter in the
 * same order, once for each place of its first row among those rows, with zeros for the others.
 *
 *     windows [columns, C, ring]      filter [phases, K / 16, taps, C, ring, 16]
 *
 * x has to be finite: some of what is beside a window is multiplied by zero.
 */

/** Sets `ring`, the rows of the image that are kept, of which row h is number (h + pad) % ring, so
    many that windows are whole tiles; and `phases`, the different places of the first of R rows:
    row p of the result has place number p % phases. */
static inline void td_pooled_set_ring(td_pooled *v)
{
    v->ring = v->R;
    while (v->ring * v->C * v->taps % TD_POOLED_LANES)
        v->ring++;
    v->phases = 1;
    while (v->phases * v->stride % v->ring)
        v->phases++;
}

/** Elements of `rows`. */
static inline int64_t td_pooled_rows(const td_pooled *v)
{
    const int64_t n = v->C * v->R * v->columns;
    return v->is_odd ? n + v->C * ((v->R / 2 + 1) * v->columns + (v->R + 1) / 2 * v->K) : n;
}

/** Pixels of a row of the convolution's result, in whole tiles. */
static inline int64_t td_pooled_pixels(const td_pooled *v)
{
    return divide_up(v->Q, TD_POOLED_LANES) * TD_POOLED_LANES;
}

/** Elements of a window. */
static inline int64_t td_pooled_pairs(const td_pooled *v)
{
    return v->taps * v->C * v->ring;
}

/** Elements of all columns. */
static inline int64_t td_pooled_windows(const td_pooled *v)
{
    return (td_pooled_pixels(v) * v->step + v->taps) * v->C * v->ring;
}

/** Elements of the filter. */
static inline int64_t td_pooled_filter(const td_pooled *v)
{
    return v->phases * v->K * td_pooled_pairs(v);
}

typedef void td_pooled_loops(const td_pooled *v, const td_pooled_job *j);

/** The loops number i that this machine has for bf16 or float32, the widest first, or NULL. */
td_pooled_loops *td_pooled_loops_at(bool is_half, int i);

/** The preferred layouts of conv2d_pool_int8; false for other ops. */
bool td_native_pooled_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
