/*
 * backend/native/simd/native_simd.h -- inner loops of memory-bound kernels: norms,
 * pooling, sums, updates
 *
 * f32, bf16 and f16, on tensors with channels in vector lanes: aBcd16b and aBcd8b (and acdb with C
 * a multiple of 8). Such a tensor is N x CB planes; a plane is H W pixels of `lanes` adjacent
 * channels.
 *
 *     plane (n, cb)      pixel 0          pixel 1                each lane is one channel:
 *                     [c0 c1 ... c15]  [c0 c1 ... c15]  ...      no sum ever crosses lanes
 *
 * The inner loops (native_simd.inc) are written once with vector types and compiled for AVX-512,
 * AVX2 and the baseline instruction set, for each dtype: elements are widened to float32 when they
 * are loaded and rounded to nearest even when they are stored, all arithmetic in between is
 * float32, sums are float64. td_native_simd_for picks one at run time.  None of them fuses a
 * multiplication with an addition, and each sum is added in a fixed order, so all give the same
 * bits, with any number of threads.
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_SIMD_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tandem/types.h"

#define TD_NATIVE_LANES_MAX 16

/* Pixels that are summed in float32 before the sums go to float64. */
#define TD_NATIVE_CHUNK 1024

/* One plane, or planes of several tensors with the same layout; in the loops of norms, the same
   plane of some images. */
typedef struct {
    int64_t n_pixels;
    int64_t stride;     /* elements from one pixel to the next: lanes, or C in acdb */
    bool is_streamed;   /* non-temporal stores: too large for the caches */
    int64_t more, next; /* images after the first; elements from one image to the next */
    int64_t ahead;      /* norm_apply, norm_grad_apply: elements from a pixel of x (and z, dy) to
                           the one to prefetch; 0: none */
} td_native_plane;

/* Pixels with channels last, of some blocks that are next to each other. */
typedef struct {
    int64_t n_pixels; /* for sums at most TD_NATIVE_CHUNK */
    int64_t blocks;
    int64_t stride;   /* elements from one pixel to the next: C */
    bool is_streamed; /* non-temporal stores, of whole cache lines */
    int64_t piece;    /* sums: pixels of all blocks that are read before the next, in fours */
    double *sums;     /* sums: of block b, from b `step` on, TD_NATIVE_LANES_MAX of each kind */
    int64_t step;
    float *room; /* sums: scratch, blocks TD_NATIVE_NORM_ROOM */
} td_native_norm_rows;

#define TD_NATIVE_NORM_ROOM (9 * TD_NATIVE_LANES_MAX)

/* The coefficients of a plane's channels; float, one per lane. */
typedef struct {
    float mean[TD_NATIVE_LANES_MAX];
    float scale[TD_NATIVE_LANES_MAX]; /* gamma / sqrt(var + eps) */
    float shift[TD_NATIVE_LANES_MAX]; /* forward: beta; backward: mean of dy */
    float slope[TD_NATIVE_LANES_MAX]; /* backward: factor of (x - mean) */
} td_native_coefs;

typedef struct {
    int64_t H, W, P, Q, kernel, stride, pad; /* below 2^31: checked with the graph */
    bool is_streamed;                        /* dx, as in td_native_plane */
} td_native_window;

#define TD_NATIVE_TILE_PIXELS  512
#define TD_NATIVE_TAPS_AT_ONCE 10

/* The filter gradient of a depthwise convolution on one channel block. */
typedef struct {
    int64_t H, W, P, Q;       /* height and width of x, then of dy */
    int64_t pixel;            /* elements from one pixel to the next: lanes, or C in acdb */
    int64_t x_image, y_image; /* elements from one image to the next */
    int side, stride, pad;    /* side: 3, 5 or 7 */
    int first_row, rows;      /* the rows of taps that meet a pixel; the others' sums are 0 */
    int first_col, cols;      /* the same for columns, of which there are 1, 2, 3, 5 or 7 */
    int64_t images;           /* images in a tile */
    int64_t tile_P, tile_Q;   /* outputs of a tile, whose inputs are TD_NATIVE_TILE_PIXELS */
} td_native_depthwise;

typedef struct {
    double momentum, decay;
    float lr, inverse; /* inverse: 1 / loss scale */
    bool nesterov;
    double alpha, eps; /* rmsprop */

    /* adam, lamb: momentum is beta1, alpha is beta2 */
    float rest1, root2; /* 1 - beta1^t, sqrt(1 - beta2^t) */
    float ratio;        /* lamb: |w| / |u| */
    bool decoupled;
} td_native_step;

/* Inner loops for one instruction set, dtype and number of lanes; void is an element of that dtype.
   The `n` elements are independent, and a result may be an operand. */
typedef struct {
    const char *isa;
    td_dtype dtype;
    int lanes;

    /* mean[lanes] and sum of squared deviations m2[lanes] of a plane; of several images: of at most
       TD_NATIVE_CHUNK pixels */
    void (*norm_stats)(const td_native_plane *v, const void *x, double *mean, double *m2);

    /* the same of each block of some rows */
    void (*norm_stats_rows)(const td_native_norm_rows *v, const void *x);

    /* y = (x - mean) scale + shift (+ z), clipped to 0 .. cap unless cap is 0 (INFINITY: relu);
       `mask`, unless NULL, has a bit for each element: set where the value was within the range */
    void (*norm_apply)(const td_native_plane *v, const td_native_coefs *c, const void *x,
                       const void *z, void *y, float cap, uint8_t *mask);

    /* the same of rows, with coefficients that are c_step bytes apart */
    void (*norm_apply_rows)(const td_native_norm_rows *v, const td_native_coefs *c, int64_t c_step,
                            const void *x, const void *z, void *y, float cap, uint8_t *mask);

    /* with g = dy where the mask is set, otherwise 0 (mask NULL: g = dy): sum of g, dot = sum of g
       (x - mean) */
    void (*norm_grad_sums)(const td_native_plane *v, const td_native_coefs *c, const void *dy,
                           const uint8_t *mask, const void *x, double *sum, double *dot);

    /* the same of each block of some rows; mean[blocks lanes].  Unless dy2 is NULL, dz = dy + dy2
       where the mask is set, otherwise 0, takes the place of dy; dz may be one of them. */
    void (*norm_grad_sums_rows)(const td_native_norm_rows *v, const float *mean, const void *dy,
                                const void *dy2, const uint8_t *mask, const void *x, void *dz);

    /* dx = scale (g - shift - slope (x - mean)); dz = g unless dz is NULL */
    void (*norm_grad_apply)(const td_native_plane *v, const td_native_coefs *c, const void *dy,
                            const uint8_t *mask, const void *x, void *dx, void *dz);

    /* the same of rows, with coefficients that are c_step bytes apart */
    void (*norm_grad_apply_rows)(const td_native_norm_rows *v, const td_native_coefs *c,
                                 int64_t c_step, const void *dy, const uint8_t *mask, const void *x,
                                 void *dx, void *dz);

    /* z = x + y where the pixel's bits of `mask` are set, otherwise 0; z may be x or y. */
    void (*add_masked)(const td_native_plane *v, const void *x, const void *y, const uint8_t *mask,
                       void *z);

    void (*sum)(const td_native_plane *v, const void *x, double by, void *y);     /* y[lanes] */
    void (*dot)(const td_native_plane *v, const void *x, const void *y, void *z); /* z[lanes] */
    void (*mul)(const td_native_plane *v, const void *x, const void *gate,
                void *y);                                                         /* gate[lanes] */
    void (*fill)(const td_native_plane *v, const void *value, float by, void *y); /* value[lanes] */

    /* adds the gradients of n images to dw[side side lanes] */
    void (*depthwise_grad_w)(const td_native_depthwise *v, int64_t n, const void *dy, const void *x,
                             float *dw);

    /* row p of the result; `where` has one byte for each lane of a pixel */
    void (*max_pool_row)(const td_native_window *v, const void *x, int64_t p, void *y,
                         uint8_t *where);
    /* row h of dx */
    void (*max_pool_grad_row)(const td_native_window *v, const void *dy, const uint8_t *where,
                              int64_t h, void *dx);

    void (*add)(int64_t n, const void *x, const void *y, void *z, bool is_streamed);
    void (*relu)(int64_t n, const void *x, void *y, bool is_streamed);
    void (*relu_grad)(int64_t n, const void *dy, const void *y, void *dx, bool is_streamed);

    /* `copy`, unless NULL, receives w rounded to dtype */
    void (*sgd)(int64_t n, const td_native_step *a, float *w, float *v, const float *g, void *copy);
    bool (*all_finite)(int64_t n, const void *x);
    double (*squares)(int64_t n, float by, const void *x); /* the sum of (by x)^2 */

    /* NULL if dtype is not f32 */
    void (*rmsprop)(int64_t n, const td_native_step *a, float *w, float *u, const float *g,
                    float *square);
    void (*adam)(int64_t n, const td_native_step *a, float *w, float *m, const float *g, float *v);
    /* lamb: new m and v, and sums of squares: of w, and of u; then w */
    void (*lamb_moments)(int64_t n, const td_native_step *a, const float *w, float *m,
                         const float *g, float *v, double sums[2]);
    void (*lamb_apply)(int64_t n, const td_native_step *a, float *w, const float *m,
                       const float *v);
    void (*limit_grad)(int64_t n, float by, float limit, const float *x, float *y);
    void (*ema)(int64_t n, float keep, float share, const float *value, float *average);
    void (*blend)(int64_t n, float l, const float *x, const float *z, float *y); /* l x + (1-l) z */

    /* to and from float32; NULL if dtype is f32 */
    void (*widen)(int64_t n, const void *x, float *y, bool is_streamed);
    void (*narrow)(int64_t n, const float *x, void *y, bool is_streamed);
} td_native_simd;

/** The inner loops for this machine; `lanes` is 16 or 8, `dtype` one of f32, bf16, f16. */
const td_native_simd *td_native_simd_for(td_dtype dtype, int lanes);

/** Is the best instruction set of this machine AVX2, with FMA? */
bool td_native_is_avx2(void);

/** Has this machine AVX2 and FMA, with or without AVX-512? */
bool td_native_has_avx2(void);

/** Number i of the loops that this machine can run, the best instruction set first; NULL past the
    end. */
const td_native_simd *td_native_simd_at(int i);

/** n elements of s's dtype as float32: x itself, or `room`. */
static inline const float *td_native_floats(const td_native_simd *s, int64_t n, const void *x,
                                            float *room)
{
    if (s->dtype == TD_DT_F32)
        return x;
    s->widen(n, x, room, false);
    return room;
}

/** n numbers to elements of s's dtype; x may be y. */
static inline void td_native_put(const td_native_simd *s, int64_t n, const float *x, void *y)
{
    if (s->dtype != TD_DT_F32)
        s->narrow(n, x, y, false);
    else if (x != y)
        memcpy(y, x, (size_t)n * sizeof *x);
}

#endif
