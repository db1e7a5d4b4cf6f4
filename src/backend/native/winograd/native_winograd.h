/*
 * native_winograd.h -- 3 x 3 convolutions by Winograd's algorithm: geometry and inner loops
 *
 * An image is cut into tiles of 4 x 4 results, each of which needs 6 x 6 inputs: F(4 x 4, 3 x 3).
 * One call works on a run of tiles:
 *
 *     input     x, in an image's layout    ->  v [36][C/16][room][16]
 *     product   v, u [K/16][36][C][16]     ->  m [36][blocks][room][16]      36 matrix products
 *     output    m, scale, bias, residual   ->  y, in x's layout
 *
 * The gradient of the filters is a sum over tiles:
 *
 *     input     x                          ->  v
 *     gradient  dy, in x's layout          ->  d [36][K/16][room][16]
 *     product   v, d                       ->  m [K/16][C/16][36][16][16]    36 matrix products
 *     end       m                          ->  dw, in blocks as x
 *
 * Where 4 does not divide the results, the last rows and columns of tiles have 3 results, of 5
 * inputs: 14 are 4 + 4 + 3 + 3.  Only the fourth depends on the last point, so these tiles have 30
 * or 25 of the 36 products, with the same filters.  Tiles are numbered kind by kind through all
 * images, in an order in which the tiles that have a point are next to each other.
 *
 * With stride 2 a tile has 9 x 9 inputs and points, v, d and m 81 of them, and u 36: along a side
 * the points from 5 on, the middle tap's, have one filter (ops/conv_winograd.c).  Tiles of 3
 * results lack points 4 and 8.  The gradient of the image is another such transform, from 5 x 5
 * pixels of dy, here called x, to 8 x 8 of dx, called y, of which some at the edge may be outside.
 *
 * `room` is the number of tiles that v, m and d have room for.  The points of v and d are an odd
 * number of 16s apart, so that the 36 cache lines of a tile are in different sets of a cache: at
 * multiples of 4 KB, 128 to 512 channels were transformed at a third of the speed.
 *
 * Images have layout aBcd16b, acdb or aBcd8b, filters' gradients ABcd16b16a or ABcd8b8a: oneDNN's
 * direct kernels use blocks of 16 channels with AVX-512 and of 8 without.  The loops work on blocks
 * of 16 channels in all of them; in blocks of 8 lanes 8 to 15 are in the next block, so registers
 * must not be longer than 8 lanes.  The arithmetic is the same in every layout.
 *
 * Images are float32 or bfloat16, which is widened when it is loaded and rounded once when results
 * are stored.  All else is float32.
 *
 * F(2 x 2, 3 x 3), with {tile=2}, is for images in bfloat16: 16 points, 4 x 4 inputs, and v and u
 * are bfloat16, u with pairs of channels [K/16][16][C/2][16][2].  Sums are float32.
 */
#ifndef TD_BACKEND_NATIVE_WINOGRAD_NATIVE_WINOGRAD_H
#define TD_BACKEND_NATIVE_WINOGRAD_NATIVE_WINOGRAD_H

#include "ir/target.h"
#include "ops/ops.h"

#define TD_WINO_HALF 8 /* lanes that are adjacent in memory in every layout */

/* The strides of an image, in elements: from one pixel, one block of 16 channels to the next; from
   lane 0 of a block to lane 8. */
typedef struct {
    int64_t pixel, block, half;
} td_native_wino_image;

/* The strides of a filter's gradient, in elements: from one of the 9 taps, one channel to the next;
   from channel or filter 0 of a block of 16 to number 8. */
typedef struct {
    int64_t tap, channel, channel_half, filter_half;
} td_native_wino_dw;

/* Kinds of tiles, in the order of their numbers.  Tiles in short rows have one row of results less
   (of TD_WINO_TRANSPOSED two), and lack the products of the points of td_winograd_is_last in that
   direction; those in short columns likewise. */
enum { TD_WINO_SHORT_COLS, TD_WINO_WHOLE, TD_WINO_SHORT_ROWS, TD_WINO_SHORT, TD_WINO_KINDS };

typedef struct {
    int64_t N, C, H, W, K, P, Q, pad;
    td_winograd_form form;
    int side, filters;           /* points of tiles and of filters along a side */
    int64_t in_step, out_step;   /* inputs and results from one unit of a tile to the next */
    td_winograd_side rows, cols; /* rows and columns of tiles in an image */
    int64_t ends[TD_WINO_KINDS]; /* number of the first tile after each kind */
    int64_t room;
    int64_t piece;          /* tiles that m has room for */
    int64_t v_step, d_step; /* elements of v and d from one point to the next */
    td_native_wino_image x, y;
    bool relu;
    float cap; /* with relu: upper bound of results */
} td_native_wino;

/* The destination of the results of one block of 16 channels. */
typedef struct {
    const float *scale;   /* [16], or NULL */
    const float *bias;    /* [16], or NULL */
    const void *residual; /* as y, or NULL */
    void *y;
    int64_t block; /* index of the block, below K/16 */
} td_native_wino_end;

/* The transforms of one form; NULL where it has none. */
typedef struct {
    /* G g G' of 16 filters: their taps are g_step elements apart, the 36 results u_step */
    void (*filter)(const td_winograd *m, const float *g, int64_t g_step, float *u, int64_t u_step);

    /* transforms `n` tiles from tile `first` on, all channels; v: float, with TD_WINO_SMALL
       bfloat16 */
    void (*input)(const td_native_wino *w, int64_t first, int64_t n, const void *x, void *v);

    /* transforms m of one block to results; points in m are m_step elements apart */
    void (*output)(const td_native_wino *w, int64_t first, int64_t n, const float *m,
                   int64_t m_step, const td_native_wino_end *end);

    /* filter gradients: transforms `n` tiles of dy, all filters */
    void (*gradient)(const td_native_wino *w, int64_t first, int64_t n, const void *dy, float *d);

    /* dw of 16 filters and 16 channels, of m [36][16][16] */
    void (*gradient_end)(const td_winograd *w, const float *m, const td_native_wino_dw *to,
                         float *dw);
} td_native_wino_transforms;

/* Inner loops for one instruction set and one type of images. */
typedef struct {
    const char *isa;
    td_dtype dtype; /* of x, dy, residual and y; all else is float32 */
    int lanes;      /* of a register */
    int tiles;      /* maximum tiles per product */
    int blocks;     /* maximum blocks of 16 filters */

    td_native_wino_transforms forms[TD_WINO_FORMS];

    /* TD_WINO_SMALL: of 16 filters and two channels -> 16 lines of 32 bfloat16 */
    void (*filter_pair)(const float *even, const float *odd, int64_t g_step, uint16_t *u,
                        int64_t u_step);

    /* one of the 36, 16 or 81 products: v and m are for one point; `blocks` blocks of u, u_step
       elements apart */
    void (*product)(const td_native_wino *w, int tiles, int blocks, const void *v, const void *u,
                    int64_t u_step, float *m);

    /* m [16 channels][16 filters] = sum over n tiles, for one point, a block of channels, and one
       or two blocks of filters, whose d and m are d_step and m_step elements apart; or added to
       m */
    void (*gradient_product)(int64_t n, int blocks, const float *v, const float *d, int64_t d_step,
                             float *m, int64_t m_step, bool add);
} td_native_wino_simd;

/* A tile: its image, row and column, and its first result, of TD_WINO_TRANSPOSED pixel of dy. */
typedef struct {
    int kind;
    int64_t n, row, col, p, q;
} td_native_wino_place;

/* Tiles [from, to). */
typedef struct {
    int64_t from, to;
} td_native_wino_range;

static inline bool td_native_wino_is_short_row(int kind)
{
    return kind == TD_WINO_SHORT_ROWS || kind == TD_WINO_SHORT;
}

static inline bool td_native_wino_is_short_col(int kind)
{
    return kind == TD_WINO_SHORT_COLS || kind == TD_WINO_SHORT;
}

/* the rows, or columns, of tiles of a kind */
static inline td_native_wino_range td_native_wino_along(const td_winograd_side *s, bool is_short)
{
    return is_short ? (td_native_wino_range){ s->whole, s->tiles }
                    : (td_native_wino_range){ 0, s->whole };
}

static inline void td_native_wino_locate(const td_native_wino *w, td_native_wino_place *at)
{
    at->p = td_winograd_first(&w->rows, w->form, at->row);
    at->q = td_winograd_first(&w->cols, w->form, at->col);
}

static inline td_native_wino_place td_native_wino_place_of(const td_native_wino *w, int64_t tile)
{
    td_native_wino_place at = { .kind = 0 };
    while (at.kind < TD_WINO_KINDS - 1 && tile >= w->ends[at.kind])
        at.kind++;
    const td_native_wino_range rows = td_native_wino_along(&w->rows,
                                                           td_native_wino_is_short_row(at.kind)),
                               cols = td_native_wino_along(&w->cols,
                                                           td_native_wino_is_short_col(at.kind));
    const int64_t n_cols = cols.to - cols.from, area = (rows.to - rows.from) * n_cols;
    tile -= at.kind > 0 ? w->ends[at.kind - 1] : 0;
    if (area > 0) {
        at.n = tile / area;
        at.row = rows.from + tile % area / n_cols;
        at.col = cols.from + tile % n_cols;
    }
    td_native_wino_locate(w, &at);
    return at;
}

/* Goes on by n tiles, which are in one row. */
static inline void td_native_wino_go_on(const td_native_wino *w, int64_t n,
                                        td_native_wino_place *at)
{
    const td_native_wino_range rows = td_native_wino_along(&w->rows,
                                                           td_native_wino_is_short_row(at->kind)),
                               cols = td_native_wino_along(&w->cols,
                                                           td_native_wino_is_short_col(at->kind));
    at->col += n;
    if (at->col == cols.to) {
        at->col = cols.from;
        if (++at->row == rows.to) {
            at->row = rows.from;
            at->n++;
        }
    }
    if (at->n == w->N)
        *at = td_native_wino_place_of(w, w->ends[at->kind]);
    else
        td_native_wino_locate(w, at);
}

/* the points [from, to) along a side that have point f of a filter */
static inline td_native_wino_range td_native_wino_points(const td_native_wino *w, int64_t f)
{
    return (td_native_wino_range){ f, f < w->filters - 1 ? f + 1 : w->side };
}

/** The sizes, strides and tiles of a node that goes from images x to results y: x and dx to dy and
    y, but dy to dx with TD_WINO_TRANSPOSED. */
td_native_wino td_native_wino_geometry(const td_node *n, const td_type *x, const td_type *y);

/** The points, steps and tiles of w, of its N, H, W, P, Q and form. */
void td_native_wino_divide(td_native_wino *w);

/** The products of tiles [0, tile), for one channel and filter. */
int64_t td_native_wino_products(const td_native_wino *w, int64_t tile);

/** The first tile of part i of n, which have about as many products. */
int64_t td_native_wino_part(const td_native_wino *w, int64_t i, int64_t n);

/** The tiles of a run that have point p, counted from its first. */
td_native_wino_range td_native_wino_with_point(const td_native_wino *w, int64_t first, int64_t n,
                                               int64_t p);

/** Elements of v, or of d, from one point to the next, for `channels` channels and `room` tiles. */
int64_t td_native_wino_step(int64_t channels, int64_t room);

/** The strides of an image of this type, whose layout is aBcd16b, acdb or aBcd8b. */
td_native_wino_image td_native_wino_image_of(const td_type *t);

/** Images in aBcd8b: TD_ENOKERNEL if this machine's registers are longer than 8 lanes. */
TD_CHECKED td_status td_native_wino_check_halves(void);

/** Is aBcd8b preferred to aBcd16b: are registers short, and does `t` not have the other layout? */
bool td_native_wino_prefers_halves(const td_type *t);

/** The preferred layouts of conv2d_winograd_grad_w, and of winograd_filter. */
bool td_native_winograd_grad_w_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_winograd_filter_preferred_layout(const td_node *n, td_node_layouts *out);

/** The loops for F(2 x 2, 3 x 3), which have no gradients; NULL if this machine has no fast
    products of bfloat16. */
const td_native_wino_simd *td_native_wino_pairs(void);

/** Number i of the loops for images of type `dtype` that this machine can run, the best first; NULL
    past the end. */
const td_native_wino_simd *td_native_wino_simd_at(td_dtype dtype, int i);

/** The preferred layouts of winograd_filter and conv2d_winograd*; false for other ops. */
bool td_native_winograd_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
