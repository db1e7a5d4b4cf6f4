/*
 * backend/native/amx/native_amx.h -- convolutions of bfloat16 and of 8-bit integers in the tiles of
 * AMX: the inner loops
 *
 *     y [N, P, Q, K] = act(x [N, H, W, C] * w + bias + rest)      images with channels last
 *     w [K / 32][taps][C / 32][16 pairs of channels][32][2]       zeros where K or C ends
 *     w [K / 32][taps][C / 64][16 x 4 channels][32][4]            the same of integers
 *
 * A tile of sums is 16 pixels of 16 channels; 4 of them are added up at a time.  Their factors are
 * 16 pixels of 64 bytes of channels, a cell each, and these have to be adjacent, with the same
 * distance from pixel to pixel for every tap.  So a job first copies its pixels to cells, one plane
 * for each remainder of rows and columns by the stride, with cells of zeros for the padding:
 *
 *     a row of x        x0 x1 x2 x3            stride 1, 3 x 3, padding 1
 *     its cells       0 x0 x1 x2 x3 |0 ...     the zero behind a row is the one before the next
 *
 * The result's pixels are then numbered like cells: 16 of them follow each other also where a row
 * ends, and what is computed for the cells between rows is dropped.  Without padding and stride, as
 * in most 1 x 1 convolutions, all pixels of all images are one row, and nothing is copied if their
 * channels fill cells.
 *
 * A result's products are added in the same order wherever jobs begin: the same bits with any
 * number of threads, and in any batch.
 */
#ifndef TD_BACKEND_NATIVE_AMX_NATIVE_AMX_H
#define TD_BACKEND_NATIVE_AMX_NATIVE_AMX_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/target.h"
#include "ops/ops.h"

/* layouts of filters: for results, for gradients of images; of their gradients */
#define TD_AMX_FILTER      "AcdB16b32a2b"
#define TD_AMX_FILTER_BACK "BcdA16a32b2a"
#define TD_AMX_GRADIENT    "ABcd16b16a"
#define TD_AMX_FILTER_INT8 "AcdB16b32a4b"

enum {
    TD_AMX_CELL_BYTES = 64,
    TD_AMX_CHANNELS = 32, /* channels in a cell of bfloat16; output channels in a block */
    TD_AMX_PIXELS = 32,   /* output pixels in a block */
    TD_AMX_TAPS_MAX = 49,
    TD_AMX_STRIDE_MAX = 2
};

typedef struct {
    int plane;
    int64_t row, col; /* of cells, from those of the result's pixel */
} td_amx_tap;

/* one convolution; distances in cells */
typedef struct {
    int64_t N, C, H, W, K, P, Q;
    int64_t channels;  /* channels in a cell: 32 of bfloat16, 64 of 8-bit integers */
    bool is_flat;      /* one row of all pixels: N, H and P are 1 */
    int64_t stride;    /* of the pixels that are read */
    int64_t row;       /* from one row of cells to the next */
    int64_t top, left; /* of zeros, before pixel (0, 0) */
    int64_t tall;      /* rows from the first that a row of the result reads to the last, or to its
                          own */
    int64_t wide;      /* the same of columns */
    int n_planes, n_taps;
    struct {
        int row, col; /* remainders */
    } plane[TD_AMX_STRIDE_MAX * TD_AMX_STRIDE_MAX];
    td_amx_tap tap[TD_AMX_TAPS_MAX];
} td_amx_geometry;

/* results of 8-bit integers: sum scale + bias + rest rest_step, from `low` to `high`, rounded and
   clipped; all in steps of y, which are 1 if it is float32 */
typedef struct {
    const float *scale, *bias; /* [K] */
    float rest_step, low, high;
    bool is_simple;   /* y has 8 bits, and saturation to its type applies both limits */
    td_dtype rest, y; /* u8, s8 or float32 */
} td_amx_int8;

/* One convolution.  If int8 is NULL, x, w, rest and y are bfloat16.  Otherwise x is u8, w is s8,
   int8 gives the types of rest and y, and bias and act are not used. */
typedef struct {
    td_amx_geometry g;
    const void *x, *w;
    const float *bias; /* [K]; NULL: none */
    const void *rest;  /* NULL: none; as y */
    void *y;
    td_block_act act;
    const td_amx_int8 *int8;
} td_amx_conv;

/* Rows [p, p + rows) of each of some images, or pixels [p, p + rows) of a flat one, and blocks
   [block_from, block_to) of TD_AMX_CHANNELS of the result. */
typedef struct {
    int64_t image, images;
    int64_t p, rows;
    int64_t block_from, block_to;
    void *cells; /* scratch of td_amx_cells, at a multiple of 64 bytes */
} td_amx_strip;

/* attributes of a convolution */
typedef struct {
    int stride, pad, pad_extra, dilation, groups;
} td_amx_windows;

/** The attributes of the same ops as td_amx_geometry_of. */
td_amx_windows td_amx_windows_of(const td_node *n);

/** Of conv2d, conv2d_fused, their gradients, or conv2d_int8.  Of a gradient of a filter, x and y
    are those of its convolution, otherwise the node's own.  The stride (1 for a gradient of
    images) and the number of taps have to be within the limits. */
td_amx_geometry td_amx_geometry_of(const td_node *n);

/** The result's pixels, numbered like cells, that `rows` rows of it need. */
int64_t td_amx_numbers(const td_amx_geometry *g, int64_t rows);

/** Cells of a plane of one image for `rows` rows of the result; 32 can be read from each multiple
    of 32 on, for each tap. */
int64_t td_amx_plane_cells(const td_amx_geometry *g, int64_t rows);

/** Cells of `images` images with `rows` rows of the result each. */
int64_t td_amx_cells(const td_amx_geometry *g, int64_t images, int64_t rows);

typedef void td_amx_loops(const td_amx_conv *v, const td_amx_strip *s);

/** NULL if this machine has no tiles. */
td_amx_loops *td_amx_loops_here(void);

/** The preferred layouts of the convolutions of native_amx_conv.c; false for other nodes. */
bool td_native_amx_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
