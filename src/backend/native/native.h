/*
 * backend/native/native.h -- our own kernels, for ops that memory bounds: norm, pooling, sums,
 * updates
 *
 * f32, bf16 and f16, on tensors with channels in vector lanes: aBcd16b and aBcd8b (and acdb with C
 * a multiple of 8). Such a tensor is N x CB planes; a plane is H W pixels of `lanes` adjacent
 * channels.
 *
 *     plane (n, cb)      pixel 0          pixel 1                each lane is a channel of its own:
 *                     [c0 c1 ... c15]  [c0 c1 ... c15]  ...      no sum ever crosses lanes
 *
 * The inner loops (native_simd.inc) are written once with vector types and compiled for AVX-512,
 * AVX2 and the plain machine, and there for each dtype: elements are widened to float32 when they
 * are loaded and rounded to nearest even when they are stored, all arithmetic between is float32,
 * sums are float64. td_native_simd_for picks one at run time.  No two of them fuse a
 * multiplication with an addition, and each sum has a fixed tree, so all give the same bits, with
 * any number of threads.
 */
#ifndef TD_BACKEND_NATIVE_NATIVE_H
#define TD_BACKEND_NATIVE_NATIVE_H

#include "ops/ops.h"
#include "runtime/kernel.h"

#define TD_NATIVE_LANES_MAX 16

/* One plane, or planes of several tensors with the same layout. */
typedef struct {
    int64_t n_pixels;
    int64_t stride;   /* elements from one pixel to the next: lanes, or C in acdb */
    bool is_streamed; /* write around the caches: too large to be reused from them */
} td_native_plane;

/* The coefficients of a plane's channels; float, one per lane. */
typedef struct {
    float mean[TD_NATIVE_LANES_MAX];
    float scale[TD_NATIVE_LANES_MAX]; /* gamma / sqrt(var + eps) */
    float shift[TD_NATIVE_LANES_MAX]; /* forward: beta; backward: mean of dy */
    float slope[TD_NATIVE_LANES_MAX]; /* backward: share of (x - mean) taken off */
} td_native_coefs;

typedef struct {
    int64_t H, W, P, Q, kernel, stride, pad; /* below 2^31, as graphs are checked */
    bool is_streamed;                        /* dx, as in td_native_plane */
} td_native_window;

typedef struct {
    double momentum, decay;
    float lr, inverse; /* inverse: what g is multiplied by first */
    bool nesterov;
    double alpha, eps; /* rmsprop */
} td_native_step;

/* Inner loops for one instruction set, dtype and number of lanes; void is an element of that dtype.
   `n` elements may be in any order, their results may be operands. */
typedef struct {
    const char *isa;
    td_dtype dtype;
    int lanes;

    /* mean[lanes] and sum of squared deviations m2[lanes] of a plane */
    void (*norm_stats)(const td_native_plane *v, const void *x, double *mean, double *m2);

    /* y = (x - mean) scale + shift (+ z), unless cap is 0 clipped to 0 .. cap (INFINITY: relu);
       `mask`, NULL or where it was within */
    void (*norm_apply)(const td_native_plane *v, const td_native_coefs *c, const void *x,
                       const void *z, void *y, float cap, uint8_t *mask);

    /* with g = dy where the mask is set (mask NULL: all): sum of g, dot = sum of g (x - mean) */
    void (*norm_grad_sums)(const td_native_plane *v, const td_native_coefs *c, const void *dy,
                           const uint8_t *mask, const void *x, double *sum, double *dot);

    /* dx = scale (g - shift - slope (x - mean)); dz = g where dz is not NULL */
    void (*norm_grad_apply)(const td_native_plane *v, const td_native_coefs *c, const void *dy,
                            const uint8_t *mask, const void *x, void *dx, void *dz);

    /* z = x + y where the pixel's bits of `mask` are set, otherwise 0; z may be x or y. */
    void (*add_masked)(const td_native_plane *v, const void *x, const void *y, const uint8_t *mask,
                       void *z);

    void (*sum)(const td_native_plane *v, const void *x, double by, void *y);     /* y[lanes] */
    void (*dot)(const td_native_plane *v, const void *x, const void *y, void *z); /* z[lanes] */
    void (*mul)(const td_native_plane *v, const void *x, const void *gate,
                void *y);                                                         /* gate[lanes] */
    void (*fill)(const td_native_plane *v, const void *value, float by, void *y); /* value[lanes] */

    /* one row p of the result; `where` in bytes, lanes to a pixel */
    void (*max_pool_row)(const td_native_window *v, const void *x, int64_t p, void *y,
                         uint8_t *where);
    /* one row h of dx */
    void (*max_pool_grad_row)(const td_native_window *v, const void *dy, const uint8_t *where,
                              int64_t h, void *dx);

    void (*add)(int64_t n, const void *x, const void *y, void *z, bool is_streamed);
    void (*relu)(int64_t n, const void *x, void *y, bool is_streamed);
    void (*relu_grad)(int64_t n, const void *dy, const void *y, void *dx, bool is_streamed);

    /* `copy` gets w rounded; may be NULL */
    void (*sgd)(int64_t n, const td_native_step *a, float *w, float *v, const float *g, void *copy);
    bool (*all_finite)(int64_t n, const void *x);

    /* NULL where dtype is not f32 */
    void (*rmsprop)(int64_t n, const td_native_step *a, float *w, float *u, const float *g,
                    float *square);
    void (*ema)(int64_t n, float keep, float share, const float *value, float *average);
    void (*blend)(int64_t n, float l, const float *x, const float *z, float *y); /* l x + (1-l) z */

    /* to and from float32; NULL where dtype is that */
    void (*widen)(int64_t n, const void *x, float *y, bool is_streamed);
    void (*narrow)(int64_t n, const float *x, void *y, bool is_streamed);
} td_native_simd;

/** The inner loops for this machine; `lanes` is 16 or 8, `dtype` one of f32, bf16, f16. */
const td_native_simd *td_native_simd_for(td_dtype dtype, int lanes);

/** All that this machine can run, the best instruction set first; NULL past the end. */
const td_native_simd *td_native_simd_at(int i);

/* --- tensors as planes ------------------------------------------------------------------------ */

typedef struct {
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    int64_t N, C, CB, H, W;
    int lanes;
    int channels; /* of a block: one per lane, or 1 where the lanes are pixels (native_norm.c) */
    td_native_plane plane;
    int64_t image, block; /* elements from one image, one channel block to the next */
} td_native_shape;

/** Is it f32, bf16 or f16? */
bool td_native_knows(td_dtype dtype);

/**
 * TD_ENOKERNEL if `t` does not consist of planes: dtype, layout, or C not a multiple of the lanes.
 */
td_status td_native_shape_of(const td_type *t, td_native_shape *out) TD_CHECKED;

/**
 * Every other tensor of `n` that is read lies like t or is plain, and is of t's dtype where it is a
 * float, but that those of rank 1 (gamma, mean, ...) are f32.
 */
td_status td_native_check_alike(const td_node *n, const td_type *t) TD_CHECKED;

/** td_native_shape_of t and td_native_check_alike. */
td_status td_native_accepts(const td_node *n, const td_type *t) TD_CHECKED;

/** Elements before plane (n, cb). */
static inline int64_t td_native_offset(const td_native_shape *s, int64_t n, int64_t cb)
{
    return n * s->image + cb * s->block;
}

/** Address of plane (n, cb) of `tensor`, or of that block's channels in a tensor [N, C]. */
static inline const void *td_native_plane_at(const td_native_shape *s, const void *tensor,
                                             int64_t n, int64_t cb)
{
    return (const char *)tensor + td_native_offset(s, n, cb) * s->each;
}

static inline const void *td_native_lanes_at(const td_native_shape *s, const void *tensor,
                                             int64_t n, int64_t cb)
{
    return (const char *)tensor + (n * s->C + cb * s->lanes) * s->each;
}

/** The same, writable. */
static inline void *td_native_plane_to(const td_native_shape *s, void *tensor, int64_t n,
                                       int64_t cb)
{
    return (char *)tensor + td_native_offset(s, n, cb) * s->each;
}

static inline void *td_native_lanes_to(const td_native_shape *s, void *tensor, int64_t n,
                                       int64_t cb)
{
    return (char *)tensor + (n * s->C + cb * s->lanes) * s->each;
}

/** Should a result of this size be written around the caches? */
bool td_native_is_streamed(int64_t n_bytes);

/** The same for a result of planes: not where a pixel is only a part of a cache line. */
bool td_native_is_plane_streamed(const td_native_shape *s);

/* The positions of one blocked layout's tiles in another: native_tiles.c. */
typedef struct {
    int tile; /* elements */
    int64_t n_tiles;
    int32_t *place;                    /* [n_tiles] offset of a tile, in elements */
    uint16_t *order;                   /* [tile] offset of an element within it */
    struct td_native_shuffle *shuffle; /* the same for AVX-512, or NULL */
} td_native_tiles;

/** TD_ENOKERNEL: one of them has padding, or they have no tiles in common. */
td_status td_native_tiles_check(const td_type *from, const td_type *to) TD_CHECKED;

/** For layouts that passed the check; dtypes do not matter. */
td_status td_native_tiles_make(const td_type *from, const td_type *to,
                               td_native_tiles *out) TD_CHECKED;
void td_native_tiles_release(td_native_tiles *t);

/** n tiles from tile `first` on: `from` is where that one lies, `to` the other tensor. */
void td_native_tiles_put(const td_native_tiles *t, int64_t first, int64_t n, const uint16_t *from,
                         uint16_t *to);

/* Elements of one job: long enough to stream, short enough to share out evenly. */
#define TD_NATIVE_PIECE 16384

/** Elements of the job that begins at `from` of `count`. */
static inline int64_t td_native_piece(int64_t from, int64_t count)
{
    return count - from < TD_NATIVE_PIECE ? count - from : TD_NATIVE_PIECE;
}

/** Layouts of conv2d_winograd; false for other ops. */
bool td_native_winograd_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same of native_grouped.c; false for other ops, and where it has no loops. */
bool td_native_grouped_preferred_layout(const td_node *n, td_node_layouts *out);

/* clang-format off */
#define TD_NATIVE_LIST(K)                                                                          \
    K(batch_norm) K(batch_norm_relu) K(batch_norm_add_relu)                                        \
    K(batch_norm_grad) K(batch_norm_relu_grad) K(batch_norm_add_relu_grad)                         \
    K(batch_norm_infer) K(batch_norm_relu_infer) K(batch_norm_add_relu_infer)                      \
    K(max_pool2d) K(max_pool2d_grad) K(global_avg_pool) K(global_avg_pool_grad)                    \
    K(add) K(mul) K(mul_reduce) K(relu) K(relu_grad) K(cast) K(reorder) K(sgd) K(sgd_copies)       \
    K(rmsprop) K(rmsprop_copies)                                                                   \
    K(accumulate) K(carry) K(ema) K(mixup)                                                         \
    K(all_finite) K(mul_rows) K(winograd_filter) K(conv2d_winograd)                                \
    K(grouped_conv) K(grouped_conv_fused) K(grouped_conv_grad_x) K(grouped_conv_grad_w)            \
    K(sigmoid_focal_loss) K(sigmoid_focal_loss_grad) K(huber_box_loss) K(huber_box_loss_grad)      \
    K(multibox_class_loss) K(multibox_class_loss_grad) \
    K(bias_add) K(bias_add_grad) K(resize_nearest) K(resize_nearest_grad)                          \
    K(join_heads) K(join_heads_grad)
/* clang-format on */

#define TD_NATIVE_DECLARE(name) extern const td_kernel td_native_##name;
TD_NATIVE_LIST(TD_NATIVE_DECLARE)
#undef TD_NATIVE_DECLARE

/* The kernel of an op of that name. */
#define TD_NATIVE_KERNEL(op_, accepts_, prepare_, run_)                                            \
    const td_kernel td_native_##op_ = { .name = "native_" #op_,                                    \
                                        .op = &td_op_##op_,                                        \
                                        .accepts = accepts_,                                       \
                                        .prepare = prepare_,                                       \
                                        .run = run_ }

#endif
