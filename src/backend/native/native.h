/*
 * backend/native/native.h -- our own kernels for memory-bound ops: norm, pooling, sums, updates
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
#ifndef TD_BACKEND_NATIVE_NATIVE_H
#define TD_BACKEND_NATIVE_NATIVE_H

#include <string.h>

#include "backend/native/native_division.h"
#include "ops/ops.h"
#include "runtime/kernel.h"

#define TD_NATIVE_LANES_MAX 16

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

/* --- tensors as planes ------------------------------------------------------------------------ */

typedef struct {
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    int64_t N, C, CB, H, W;
    int lanes;
    int channels; /* in a block: `lanes`, or 1 if the lanes are pixels (native_norm.c) */
    td_native_plane plane;
    int64_t image, block; /* elements from one image (channel block) to the next */
} td_native_shape;

/** Do the kernels support the dtype: is it f32, bf16 or f16? */
bool td_native_knows(td_dtype dtype);

/**
 * TD_ENOKERNEL if `t` does not consist of planes: dtype, layout, or C not a multiple of the lanes.
 */
td_status td_native_shape_of(const td_type *t, td_native_shape *out) TD_CHECKED;

/**
 * TD_ENOKERNEL unless every other tensor that `n` reads has t's layout or plain order, and every
 * float tensor has t's dtype, except that those of rank 1 (gamma, mean, ...) are f32.
 */
td_status td_native_check_alike(const td_node *n, const td_type *t) TD_CHECKED;

/** TD_ENOKERNEL on a processor with AMX, for products that oneDNN computes faster there. */
td_status td_native_check_no_amx(void) TD_CHECKED;

/** td_native_shape_of, then td_native_check_alike. */
td_status td_native_accepts(const td_node *n, const td_type *t) TD_CHECKED;

/** The offset of plane (n, cb) in elements. */
static inline int64_t td_native_offset(const td_native_shape *s, int64_t n, int64_t cb)
{
    return n * s->image + cb * s->block;
}

/** TD_ENOKERNEL unless all tensors of `n` have one type and layout, f32 or a half type. */
td_status td_native_accepts_flat(const td_node *n) TD_CHECKED;

/** The share of kernels that divide such tensors by td_native_divide_tensor. */
td_work_share td_native_share_flat(const td_node *n, int threads);

/** All elements of a tensor in pieces of whole cache lines, padding included. */
td_native_pieces td_native_divide_tensor(const td_type *t, int threads);

/** All planes, in the order of images and blocks, divided among the threads; `grain` in pixels. */
td_native_planes td_native_planes_of(const td_native_shape *s, int64_t grain, int threads);

/** The same division's share in elements. */
td_work_share td_native_shape_share(const td_native_shape *s, int64_t grain, int threads);

/* A part of plane (n, cb). */
typedef struct {
    int64_t n, cb;
    int64_t at;            /* offset in elements */
    td_native_plane plane; /* its pixels */
} td_native_part;

/** The part that `span` of td_native_planes_of describes. */
td_native_part td_native_part_of(const td_native_shape *s, const td_native_span *span);

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

/** Should a result of this size be written with non-temporal stores, which bypass the caches? */
bool td_native_is_streamed(int64_t n_bytes);

/** The same for a result of planes: false if a pixel is smaller than a cache line. */
bool td_native_is_plane_streamed(const td_native_shape *s);

/* Where the tiles of one blocked layout are in another: native_tiles.c. */
typedef struct {
    int tile; /* elements */
    int64_t n_tiles;
    int32_t *place;                    /* [n_tiles] offset of a tile, in elements */
    uint16_t *order;                   /* [tile] offset of an element within it */
    struct td_native_shuffle *shuffle; /* the same for AVX-512, or NULL */
} td_native_tiles;

/** TD_ENOKERNEL: one of them has padding, or their tiles differ. */
td_status td_native_tiles_check(const td_type *from, const td_type *to) TD_CHECKED;

/** Make the tables for layouts that passed the check; dtypes do not matter. */
td_status td_native_tiles_make(const td_type *from, const td_type *to,
                               td_native_tiles *out) TD_CHECKED;
void td_native_tiles_release(td_native_tiles *t);

/** Elements of a tile of a type that passed the check. */
int td_native_tile_of(const td_type *t);

/** The tensor's elements in pieces of whole tiles. */
td_native_pieces td_native_tiles_divide(int64_t tile, const td_type *t, int threads);

/** Copy n tiles from tile `first` on: `from` points to tile `first`, `to` to the whole other
    tensor. */
void td_native_tiles_put(const td_native_tiles *t, int64_t first, int64_t n, const uint16_t *from,
                         uint16_t *to);

/** The preferred layouts of conv2d_winograd[_scaled]; false for other ops. */
bool td_native_winograd_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for the convolutions of native_amx_conv.c. */
bool td_native_amx_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for the convolutions of native_stem.c. */
bool td_native_stem_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for the convolutions of native_pointwise_int8.c and native_taps_int8.c. */
bool td_native_pointwise_int8_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_taps_int8_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for conv2d_pool_int8. */
bool td_native_pooled_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for inverted_residual and expand_depthwise, and for conv2d_gated; false if this machine
    has no loops for them. */
bool td_native_inverted_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_inverted_bf16_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_gated_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for linear_fused: of a few rows, and of more in float32 and bf16. */
bool td_native_linear_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_panels_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_panels_bf16_preferred_layout(const td_node *n, td_node_layouts *out);

/** The same for the convolutions of native_grouped.c and native_depthwise*.c; false for other ops,
    and if this machine has no loops for them. */
bool td_native_grouped_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_depthwise_preferred_layout(const td_node *n, td_node_layouts *out);
bool td_native_depthwise_tiles_preferred_layout(const td_node *n, td_node_layouts *out);

#define TD_NATIVE_TWO(K, name, ...) K(two_##name)

/** y[k] = the sum over the groups of parts[group][k] in float64, in order; parts `step` apart. */
void td_native_add_groups(int64_t groups, int64_t step, int64_t width, const float *parts,
                          float *y);

/* clang-format off */
#define TD_NATIVE_LIST(K)                                                                          \
    K(batch_norm) K(batch_norm_relu) K(batch_norm_add_relu)                                        \
    K(batch_norm_grad) K(batch_norm_relu_grad) K(batch_norm_add_relu_grad)                         \
    K(batch_norm_infer) K(batch_norm_relu_infer) K(batch_norm_add_relu_infer)                      \
    K(batch_norm_any) K(batch_norm_relu_any) K(batch_norm_add_relu_any)                            \
    K(batch_norm_grad_any) K(batch_norm_relu_grad_any) K(batch_norm_add_relu_grad_any)             \
    K(batch_norm_infer_any) K(batch_norm_relu_infer_any) K(batch_norm_add_relu_infer_any)          \
    K(global_avg_pool_plain) K(global_avg_pool_grad_plain) K(bias_add_plain)                       \
    K(max_pool2d) K(max_pool2d_grad) K(global_avg_pool) K(global_avg_pool_grad)                    \
    K(add) K(mul) K(mul_reduce) K(relu) K(relu_grad) K(cast) K(reorder) K(amx_filter) K(rgb)       \
    K(sgd) K(sgd_copies)                                                                           \
    K(rmsprop) K(rmsprop_copies) K(adam) K(adam_copies) K(lamb) K(lamb_copies)                     \
    K(accumulate) K(carry) K(ema) K(mixup) K(cutmix) K(dropout)                                    \
    K(all_finite) K(grad_norm) K(limit_grad) K(winograd_filter) K(conv2d_winograd)                 \
    K(conv2d_winograd_scaled) K(inverted_residual) K(expand_depthwise) K(conv2d_gated)             \
    K(inverted_residual_bf16) K(expand_depthwise_bf16) K(stem_conv_fused)                          \
    K(linear) K(linear_fused) K(linear_panels) K(linear_panels_bf16) K(attention_bf16)             \
    K(linear_packed) K(linear_grad_x) K(linear_grad_w)                                             \
    K(amx_conv) K(amx_conv_fused) K(amx_conv_int8) K(amx_conv_grad_x) K(amx_conv_grad_w)           \
    K(pointwise_conv) K(conv2d_winograd_grad_w)                                                    \
    K(grouped_conv) K(grouped_conv_fused) K(grouped_conv_grad_x) K(grouped_conv_grad_w)            \
    K(conv_grad_w)                                                                                 \
    K(depthwise_conv) K(depthwise_conv_fused) K(depthwise_conv_grad_x) K(depthwise_tiles_grad_w)   \
    K(depthwise_conv_grad_w)                                                                       \
    K(sigmoid_focal_loss) K(sigmoid_focal_loss_grad) K(huber_box_loss) K(huber_box_loss_grad)      \
    K(multibox_class_loss) K(multibox_class_loss_grad) \
    K(bias_add) K(bias_add_grad) K(resize_nearest) K(resize_nearest_grad)                          \
    K(resize) K(resize_grad)                                                                       \
    TD_ACT_OTHERS(TD_ACT_BOTH, K) TD_BINARY_LIST(TD_NATIVE_TWO, K) K(scale)                        \
    K(transpose) K(layer_norm) K(layer_norm_grad) K(softmax) K(softmax_grad) K(sum_to)             \
    K(mul_rows) K(mul_channels) K(mul_reduce_channels)                                             \
    K(add_repeated) K(mul_repeated) K(mul_reduce_rows) K(sum_to_rows)                              \
    K(bias_add_grad_rows) K(join_heads) K(join_heads_grad) K(concat) K(slice) K(slice_grad)        \
    K(quantize) K(dequantize)                                                                      \
    K(quantize_weights) K(shift_int8) K(conv2d_pool_int8) K(pointwise_int8) K(taps_int8)
/* clang-format on */

#define TD_NATIVE_DECLARE(name) extern const td_kernel td_native_##name;
TD_NATIVE_LIST(TD_NATIVE_DECLARE)
#undef TD_NATIVE_DECLARE

/* Define the kernel of the op td_op_<op_>. */
#define TD_NATIVE_KERNEL(op_, accepts_, prepare_, run_, share_)                                    \
    const td_kernel td_native_##op_ = { .name = "native_" #op_,                                    \
                                        .op = &td_op_##op_,                                        \
                                        .accepts = accepts_,                                       \
                                        .prepare = prepare_,                                       \
                                        .run = run_,                                               \
                                        .share = share_ }

#endif
