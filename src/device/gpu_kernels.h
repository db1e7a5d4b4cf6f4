/*
 * device/gpu_kernels.h -- what the kernels of a GPU plug-in are given
 *
 * TD_GPU_KERNELS lists the functions of the plug-in, and td_gpu_X is what function X is given.  No
 * function reads memory of the host but the struct itself.
 */
#ifndef TD_DEVICE_GPU_KERNELS_H
#define TD_DEVICE_GPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/resize_taps.h"
#include "tandem/types.h"

/* clang-format off */
#define TD_GPU_KERNELS(K)                                                                          \
    K(map) K(reduce) K(pixel_sums) K(pixel_map) K(gated_sum) K(gated_grad)                         \
    K(conv_plan) K(conv_run) K(conv_free)                                                          \
    K(gemm_plan) K(gemm_run) K(gemm_free) K(products)                                              \
    K(norm) K(norm_grad) K(norm_scale) K(norm_update) K(norm_statistics)                           \
    K(norm_rows) K(norm_rows_grad)                                                                 \
    K(pool)                                                                                        \
    K(step) K(finite_test) K(norm_of) K(carry_sum) K(average) K(commit_step)                       \
    K(multi_new) K(multi_run) K(multi_free)                                                        \
    K(select_rows) K(rows) K(targets) K(mix) K(drop) K(normalize_bytes)                            \
    K(focal_loss) K(huber_loss) K(multibox_loss)                                                   \
    K(ranks_id) K(ranks_join) K(ranks_leave)                                                       \
    K(sum_new) K(sum_begin) K(sum_wait) K(sum_free)
/* clang-format on */

enum { TD_GPU_RANK = 5 };

/** A tensor of rank 5, dimensions of 1 first: element i is data[sum of i[d] * stride[d]]. */
typedef struct {
    void *data;
    td_dtype dtype;
    int64_t dim[TD_GPU_RANK];
    int64_t stride[TD_GPU_RANK]; /* in elements; 0: repeated */
} td_gpu_tensor;

/* --- element by element ----------------------------------------------------------------------- */

typedef enum {
    TD_GPU_SCALE,      /* by x; a plain copy if by is 1 */
    TD_GPU_ACT,        /* activation `act` of x, with its attributes `by` and `also` */
    TD_GPU_ACT_GRAD,   /* its gradient, of x: the result's gradient, and z: what the row reads */
    TD_GPU_ADD,        /* x + z */
    TD_GPU_BINARY,     /* function `act`, a td_binary, of x and z */
    TD_GPU_CLIP,       /* x z, at most `by` and at least -by */
    TD_GPU_ROUND_TF32, /* x with 10 bits of fraction, to nearest even */
    TD_GPU_CONSTANT    /* by */
} td_gpu_function;

/**
 * y = f(x, z), computed in float32; conversion to an integer truncates and saturates.
 * x and z have y's dimensions, with strides of 0 where they are repeated.  A scale by 1 from a
 * dtype to itself copies bits.
 */
typedef struct {
    td_gpu_function f;
    int act; /* td_act or td_binary of ops/act_list.h */
    double by, also;
    td_gpu_tensor y, x, z; /* constant: no x; unary: no z */
} td_gpu_map;

/* --- sums ------------------------------------------------------------------------------------- */

/**
 * y = by * sum of x z over the dimensions in which y is 1 and x is not, in float64 in an order that
 * depends on the shape only.
 */
typedef struct {
    double by;
    td_gpu_tensor y, x, z; /* z.data NULL: sum of x */
} td_gpu_reduce;

/* --- pixels whose channels are last ----------------------------------------------------------- */

/**
 * y = by * sum of x z over the pixels of each image, or of all: y [n, channels] or [channels].
 * An image [area, channels] of x and z begins `step` elements after the one before.  kept, with z:
 * x + x2 where `where` is above 0, otherwise 0, takes the place of x.
 */
typedef struct {
    td_dtype dtype, result; /* x and z are f32, f16 or bf16; y is that or f32 */
    int width;              /* 1, 2, 4 or 8, which divides channels and step; aligned so */
    double by;
    int64_t n, area, channels, step;
    bool is_total;          /* over all images */
    const void *x, *z;      /* z NULL: sum of x */
    const void *x2, *where; /* x2 NULL: 0; with kept only */
    void *kept;             /* may be x, x2, where or z; NULL: none */
    void *y;
    int64_t n_parts; /* that an image's pixels are divided in */
    double *sums;    /* [n, n_parts, channels]; not used if a result has one part */
} td_gpu_pixel_sums;

/**
 * y = x gate + by z, then relu if it is set, of images [n, area, channels] or, plain,
 * [n, channels, area].  gate and, if z_is_vector, z have a number for each channel of each image.
 */
typedef struct {
    td_dtype dtype, vector; /* dtype: x, gate and y; vector: z, the same, or f32 if z is a vector */
    bool is_channels_last, z_is_vector, relu;
    float by;
    int64_t n, area, channels;
    const void *x, *gate, *z;
    void *y; /* may be x or z */
} td_gpu_gated_sum;

/** dz = dy + dy2 where y is above 0, otherwise 0; dgate = the sum over pixels of dz x. Plain. */
typedef struct {
    td_dtype dtype, result; /* result: dtype of dgate, the same or f32 */
    int64_t planes, area;
    const void *dy, *dy2, *y, *x; /* dy2 NULL: 0 */
    void *dz, *dgate;             /* dz may be any operand */
} td_gpu_gated_grad;

/** y = x + by v, with one of v's numbers for each channel; x NULL or v NULL: 0. */
typedef struct {
    td_dtype dtype, result, vector; /* of x, y and v: one, or f32 */
    int width;                      /* as above, and divides all steps */
    float by;
    int64_t n, area, channels;      /* area * channels < 2^31 */
    int64_t x_step, y_step, v_step; /* from an image to the next; v_step 0: one vector */
    const void *x, *v;
    void *y;
} td_gpu_pixel_map;

/* --- convolutions ----------------------------------------------------------------------------- */

typedef enum {
    TD_GPU_FORWARD,         /* x, w -> y */
    TD_GPU_DATA_GRADIENT,   /* y, w -> x */
    TD_GPU_FILTER_GRADIENT, /* x, y -> w */
} td_gpu_direction;

typedef struct {
    void *plan;
    size_t scratch_bytes;
    char impl[64]; /* which engine of the library */
} td_gpu_planned;

/**
 * Choose an engine for a convolution or its gradient.  x [n,h,w,c], y [n,p,q,k] and
 * w [k,r,s,c/groups] have one dtype; a bias [k] and a residual like y are added and relu follows,
 * clipped at six with relu6, forward only.  has_scale_relu: relu(scale x + shift) takes the place
 * of x, forward and in the filter's gradient; wide_vectors: scale [c] and shift [c] are float32.
 * has_statistics: float32 sums [k] of y and of its square, forward only.
 */
typedef struct {
    td_gpu_direction direction;
    td_dtype dtype;
    bool has_bias, has_residual, relu, relu6;
    bool has_scale_relu, wide_vectors, has_statistics;
    bool allow_tf32; /* float32 only: products of TF32 */
    int choice;      /* engines to pass over, of those that the library's heuristics prefer */
    int64_t n, c, h, w, k, r, s, groups;
    int64_t pad_before[2], pad_after[2], stride[2], dilation[2]; /* height, width */
    td_gpu_planned *made; /* NULL: only answer whether there is an engine, and remember that */
} td_gpu_conv_plan;

/** Run it; `scratch` has scratch_bytes. */
typedef struct {
    void *plan;
    void *x, *w, *y, *bias, *residual, *scratch;
    void *scale, *shift, *sum, *squares;
} td_gpu_conv_run;

/** plan NULL: forget all answers, and plans that nobody uses. */
typedef struct {
    void *plan;
} td_gpu_conv_free;

/* --- products of matrices --------------------------------------------------------------------- */

/**
 * Choose an algorithm of the library for y = a b + bias, of `batch` products of matrices in row
 * order without gaps: a [m,k], b [k,n], y [m,n]; transposed: a [k,m], b [n,k].  Steps lead from a
 * matrix to the next, in elements; 0: all products read this one.  Sums are float32.  Nothing is
 * chosen for a GPU that is not here.
 */
typedef struct {
    td_dtype dtype;  /* of a and b: f32, f16 or bf16 */
    bool wide;       /* y is float32 */
    bool has_bias;   /* [n] of y's dtype, for each row */
    bool allow_tf32; /* float32 only: products of TF32 */
    bool transpose_a, transpose_b;
    int choice; /* algorithms to pass over, of those that the library's heuristics prefer */
    int64_t m, n, k;
    int64_t batch, a_step, b_step, y_step;
    td_gpu_planned *made;
} td_gpu_gemm_plan;

enum { TD_GPU_WORKSPACE_ALIGN = 256 };

/**
 * Run it; tensors are aligned to 16 bytes, and `scratch`, of scratch_bytes, to
 * TD_GPU_WORKSPACE_ALIGN.
 */
typedef struct {
    void *plan;
    const void *a, *b, *bias;
    void *y, *scratch;
} td_gpu_gemm_run;

typedef struct {
    void *plan;
} td_gpu_gemm_free;

/**
 * The same by a kernel of our own, for any strides: y = a b + bias of the last two dimensions, for
 * each of y's first three; there a and b have y's dimensions, with strides of 0 where they are
 * repeated.
 */
typedef struct {
    td_gpu_tensor a, b, y; /* f32, f16 or bf16 */
    const void *bias;      /* one for each column, or NULL */
    td_dtype bias_dtype;
} td_gpu_products;

/* --- normalisation of rows -------------------------------------------------------------------- */

/**
 * y = gamma (x - mean) scale + beta with each row's mean, and scale = 1 / sqrt(var + eps).  Tensors
 * are aligned to 16 bytes.
 */
typedef struct {
    td_dtype dtype; /* of x and y: f32, f16 or bf16 */
    int64_t rows, width;
    double eps;
    const void *x;
    const float *gamma, *beta; /* [width] */
    void *y;
    float *mean, *scale; /* [rows] */
} td_gpu_norm_rows;

/** Its gradients.  Those of gamma and beta are sums over rows, which are divided in parts. */
typedef struct {
    td_dtype dtype; /* of dy, x and dx */
    int64_t rows, width;
    const void *dy, *x;
    const float *gamma, *mean, *scale;
    void *dx;
    float *dgamma, *dbeta;
    int64_t n_parts; /* td_gpu_norm_rows_parts */
    float *sums;     /* [n_parts][2][width] memory to work in, aligned to 16 bytes */
} td_gpu_norm_rows_grad;

/**
 * Eight rows of each part at a time, enough parts for the processors of large GPUs, and little
 * memory for them.
 */
static inline int64_t td_gpu_norm_rows_parts(int64_t rows, int64_t width)
{
    const int64_t parts = (rows + 7) / 8, most = width < 4096 ? 264 : (1 << 20) / width;
    return parts < most ? parts : most > 0 ? most : 1;
}

/* --- batch normalisation ---------------------------------------------------------------------- */

/** Images [n, channels, area] in one of two orders; aligned to 16 bytes. */
typedef struct {
    td_dtype dtype; /* f32, f16 or bf16 */
    bool is_channels_last;
    int64_t n, channels, area;
} td_gpu_images;

enum { TD_GPU_NORM_COEFS = 4 };

/** Memory that a normalisation works in, aligned to 16 bytes. */
typedef struct {
    int64_t n_parts; /* that the pixels of all images are divided in, for sums */
    double *sums;    /* [n_parts][channels][2]; NULL with given statistics, forward */
    float *coefs;    /* [TD_GPU_NORM_COEFS][channels] */
} td_gpu_norm_work;

/**
 * y = gamma (x - mean) / sqrt(var + eps) + beta + z, then clipped to [0, cap].
 * Bit i of byte j of the mask: element 8 j + i in memory order was between 0 and cap.
 */
typedef struct {
    td_gpu_images images;
    td_gpu_norm_work work;
    double eps;
    float cap;         /* 0: not clipped; INFINITY: relu */
    bool is_given;     /* mean and var are operands; else results, of x: var is biased */
    const void *x, *z; /* z NULL: 0 */
    const float *gamma, *beta;
    float *mean, *var;
    void *y;       /* may be x or z */
    uint8_t *mask; /* or NULL; else the number of elements is a multiple of 8 */
} td_gpu_norm;

/**
 * With g = dy + dy2 where the mask is set, otherwise 0 (scale not NULL: instead of the mask, where
 * scale x + shift is between 0 and cap), and xhat = (x - mean) / sqrt(var + eps):
 * dz = g, dbeta = sum of g, dgamma = sum of g xhat, dx = the gradient of x by g; with given
 * statistics those are constants.
 */
typedef struct {
    td_gpu_images images;
    td_gpu_norm_work work;
    double eps;
    bool is_given;
    const void *dy, *dy2; /* dy2 NULL: 0; else dz is a result */
    const uint8_t *mask;  /* NULL: all set */
    const void *x;
    const float *gamma, *mean, *var;
    const void *scale, *shift; /* [channels] or NULL, which excludes mask, dy2 and dz */
    td_dtype vectors;          /* the dtype of scale and shift */
    float cap;                 /* INFINITY: relu */
    void *dx, *dz;             /* either may be dy or dy2; dz may be NULL */
    float *dgamma, *dbeta;
} td_gpu_norm_grad;

/** scale[c] = gamma[c] / sqrt(var[c] + eps) */
typedef struct {
    int64_t channels;
    double eps;
    const float *gamma, *var;
    float *scale;
} td_gpu_norm_scale;

/**
 * mean = sum / count, var = squares / count - mean mean, at least 0,
 * scale = gamma / sqrt(var + eps), shift = beta - mean scale.
 */
typedef struct {
    int64_t channels;
    double eps, count;
    const float *sum, *squares, *gamma, *beta;
    float *mean, *var;
    void *scale, *shift;
    td_dtype vectors; /* their dtype: f32, f16 or bf16 */
} td_gpu_norm_statistics;

/** r <- (1 - momentum) r + momentum s, unless *finite is 0; s of the variance times `unbiased`. */
typedef struct {
    int64_t channels;
    double momentum, unbiased;
    const float *finite; /* NULL: 1 */
    const float *mean, *var;
    float *running_mean, *running_var;
} td_gpu_norm_update;

/* --- windows of images ------------------------------------------------------------------------ */

typedef enum {
    TD_GPU_MAX_POOL,
    TD_GPU_MAX_POOL_GRAD,
    TD_GPU_AVG_POOL,
    TD_GPU_AVG_POOL_GRAD,
    TD_GPU_RESIZE, /* each window is the pixel that is nearest */
    TD_GPU_RESIZE_GRAD,
    TD_GPU_INTERPOLATE, /* bilinear or bicubic */
    TD_GPU_INTERPOLATE_GRAD
} td_gpu_window_function;

/**
 * Forward, windows = f(image); of gradients, image = the sum over the windows that contain a pixel.
 * where: the place in its window, r * width + s, of each maximum.  Data aligned to 16 bytes.
 */
typedef struct {
    td_gpu_window_function f;
    int kernel, width;            /* rows and columns of a window; not for resize */
    int stride, pad;              /* not for resize */
    bool count_include_pad;       /* an average is divided by kernel * width */
    td_gpu_tensor image, windows; /* [1, N, C, H, W] and [1, N, C, P, Q] of f32, f16 or bf16 */
    td_gpu_tensor where;          /* u8, of max pooling only */
    td_resize_axis rows, columns; /* used by interpolation only */
} td_gpu_pool;

/* --- steps of an optimiser -------------------------------------------------------------------- */

enum { TD_GPU_COPIES = 2 };

typedef enum { TD_GPU_SGD, TD_GPU_RMSPROP, TD_GPU_ADAM, TD_GPU_LAMB } td_gpu_optimizer;

/**
 * A step (ops/update.c).  Nothing is written where *finite is 0.  Copies are w rounded to their
 * dtype; one that is absent has w's strides.  adam and lamb: v is m, square is v, momentum beta1
 * and alpha beta2.  reads_momentum: lr[1] replaces momentum (and 1 - lr[1] first).
 */
typedef struct {
    td_gpu_optimizer rule;
    td_gpu_tensor w; /* float32, as v, square and g, which have its layout; square NULL: sgd */
    float *v, *square;
    const float *g;
    const float *lr, *inverse, *finite; /* inverse NULL: 1; finite NULL: always */
    int n_copies;
    td_gpu_tensor copy[TD_GPU_COPIES];
    float momentum, decay, alpha, rest, eps; /* rest: 1 - alpha */
    bool nesterov, reads_momentum;
    /* adam, lamb */
    const float *rest1, *rest2; /* 1 - beta1^t, 1 - beta2^t */
    float first;                /* 1 - beta1 */
    double decoupled;           /* adam: decay of the weight itself */
    void *scratch;              /* lamb: td_gpu_squares_bytes */
} td_gpu_step;

enum { TD_GPU_SUMMED = 16384 }; /* elements that a block sums */

/** Partial sums of squares, two for each block, and a ratio or the sum of all. */
static inline int64_t td_gpu_squares_bytes(int64_t count)
{
    return 16 * ((count + TD_GPU_SUMMED - 1) / TD_GPU_SUMMED + 1);
}

/** *y = 1 if all of x is finite and *before is not 0, otherwise 0; before NULL: of x only. */
typedef struct {
    const void *x;
    td_dtype dtype;
    int64_t count;
    const float *before;
    float *y;
} td_gpu_finite_test;

/** *y = the root of *before^2 + the sum of (*inverse x)^2; before NULL: 0. */
typedef struct {
    const void *x;
    td_dtype dtype;
    int64_t count;
    const float *inverse, *before;
    float *y;
    void *scratch; /* td_gpu_squares_bytes */
} td_gpu_norm_of;

/** sum = *last ? 0 : s */
typedef struct {
    void *sum;
    const void *s;
    td_dtype dtype;
    int64_t count;
    const float *last;
} td_gpu_carry_sum;

/** average = *keep average + *share value, three roundings; not where *finite is 0. */
typedef struct {
    const void *value;
    void *average;
    td_dtype dtype;
    int64_t count;
    const float *keep, *share, *finite; /* finite NULL: always */
} td_gpu_average;

/** Where *last is not 0:  to = pending, or pending = to if *finite is 0. */
typedef struct {
    void *to, *pending;
    td_dtype dtype;
    int64_t count;
    const float *last, *finite;
} td_gpu_commit_step;

/* --- many tensors in one launch --------------------------------------------------------------- */

typedef enum {
    TD_GPU_MULTI_STEP,   /* td_gpu_step, not of lamb */
    TD_GPU_MULTI_LAMB,   /* td_gpu_step of lamb; scratch is not used */
    TD_GPU_MULTI_NORM,   /* td_gpu_norm_of, as of tests; scratch is not used */
    TD_GPU_MULTI_FINITE, /* td_gpu_finite_test: y of the last, for all and `before` of the first */
    TD_GPU_MULTI_CARRY,  /* td_gpu_carry_sum */
    TD_GPU_MULTI_AVERAGE,
    TD_GPU_MULTI_COMMIT, /* td_gpu_commit_step */
    TD_GPU_MULTI_MAP,    /* td_gpu_map: y = x or x + z */
    TD_GPU_MULTI_NORM_UPDATE
} td_gpu_multi_kind;

/**
 * Write a table of `n` > 0 structs of a kind, whose results and operands do not overlap, to the
 * memory of the GPU; it may be run any number of times, also in a captured graph.
 */
typedef struct {
    td_gpu_multi_kind kind;
    int n;
    const void *each; /* [n] structs */
    void **made;
    size_t *bytes; /* receives the size of its table in the memory of the GPU */
} td_gpu_multi_new;

/** The same results as n calls, but for the y of finite tests and norms before the last. */
typedef struct {
    void *multi;
} td_gpu_multi_run;

/** When it runs no more. */
typedef struct {
    void *multi;
    size_t *bytes; /* receives the size of the table that is freed */
} td_gpu_multi_free;

/* --- losses ----------------------------------------------------------------------------------- */

typedef enum {
    TD_GPU_SOFTMAX,            /* y = softmax(x) */
    TD_GPU_SOFTMAX_GRAD,       /* y = x (z - sum(z x)), x softmax's result and z its gradient */
    TD_GPU_CROSS_ENTROPY,      /* y[row] = -sum(z log softmax(x)) */
    TD_GPU_CROSS_ENTROPY_GRAD, /* y = dloss[row] (softmax(x) sum(z) - z) */
    /* y[row] = mean((1 - t) x + u softplus(-x)), t = z, or z > threshold if that is not negative,
       u = 1 + (weights - 1) t */
    TD_GPU_SIGMOID_CROSS_ENTROPY,
    TD_GPU_SIGMOID_CROSS_ENTROPY_GRAD /* y = dloss[row] (1 - t - u sigmoid(-x)) / columns */
} td_gpu_row_function;

/** Functions of rows, computed in float32 in an order that depends on `columns` only. */
typedef struct {
    td_gpu_row_function f;
    td_dtype dtype; /* of all tensors */
    int64_t rows, columns;
    const void *x, *z;
    const void *dloss;
    const void *weights; /* [columns]; NULL: 1 */
    float threshold;
    void *y;
} td_gpu_rows;

/** q[row] = `on` in column labels[row], `off` in others; zeros if there is no such column. */
typedef struct {
    int64_t rows, columns;
    const int64_t *labels;
    float on, off;
    float *q;
} td_gpu_targets;

/**
 * y[row] = lambda[row] x[row] + (1 - lambda[row]) x[partner[row]]; x[row] without a partner.  With
 * `box`, of images in rows: x[partner[row]] inside of box[row], x[row] outside.
 */
typedef struct {
    td_dtype dtype; /* of x, lambda and y */
    int64_t rows, width;
    const void *x, *lambda;
    const int64_t *partner;
    const int64_t *box; /* [rows, 4]: left, top, right, bottom; NULL: none */
    int64_t image_height, image_width;
    void *y;
} td_gpu_mix;

/**
 * Elements by index: part [outer, n, inner] = whole [outer, rows, inner] at index[n]; zeros where
 * there is no such row.  is_grad: whole = the sums of the elements of part with this index, in
 * float32, in the order of part.
 */
typedef struct {
    td_dtype dtype;
    int64_t outer, rows, inner, n;
    void *whole, *part;
    const int64_t *index;
    bool is_grad;
} td_gpu_select_rows;

/**
 * y = scale x where a draw is at least `least`, otherwise 0: one draw for an element of a sample,
 * for a sample or, per_batch, for all.  random: as the op's operand (ops/dropout.c).
 */
typedef struct {
    td_dtype dtype;      /* of x and y: f32, f16 or bf16 */
    int64_t rows, width; /* samples and their elements */
    uint32_t purpose, id, least;
    float scale;
    bool per_element, per_batch;
    const void *x;
    const int64_t *random;
    void *y;
} td_gpu_drop;

/* --- images ----------------------------------------------------------------------------------- */

enum { TD_GPU_CHANNELS = 4 };

/** to = (x - mean[c]) / std[c] in float32, of x [n, area, channels]; both aligned to 16 bytes. */
typedef struct {
    td_gpu_images y; /* `to`, of at most TD_GPU_CHANNELS channels */
    const uint8_t *x;
    void *to;
    float mean[TD_GPU_CHANNELS], std[TD_GPU_CHANNELS];
} td_gpu_normalize_bytes;

/* --- losses of detectors ---------------------------------------------------------------------- */

enum { TD_GPU_PARTS = 64 };

/**
 * A loss of ops/detection.c, or its gradient for x if dloss is not NULL: summed in float64 in an
 * order that depends on the shape only.  scratch: td_gpu_anchors_bytes.
 */
typedef struct {
    td_dtype dtype;                   /* of all tensors but labels */
    int64_t images, anchors, columns; /* anchors below 2^32 */
    const void *x;                    /* [images, anchors, columns] */
    const int64_t *labels;            /* [images, anchors] */
    const void *dloss;                /* one number */
    void *y, *scratch;
} td_gpu_anchors;

/** Enough for any of the losses: 8 bytes for each image and each part of it, or each anchor's 4. */
static inline int64_t td_gpu_anchors_bytes(int64_t images, int64_t anchors)
{
    return images * (24 + (anchors > 2 * TD_GPU_PARTS ? 4 * anchors : 8 * TD_GPU_PARTS));
}

typedef struct {
    td_gpu_anchors a;
    float alpha, rest, gamma; /* rest: 1 - alpha */
    bool per_image;
} td_gpu_focal_loss;

typedef struct {
    td_gpu_anchors a;   /* 4 columns */
    const void *target; /* as x; it may be y */
    float delta;
    bool per_image;
} td_gpu_huber_loss;

typedef struct {
    td_gpu_anchors a;
    int64_t ratio;
    bool whole_batch;
} td_gpu_multibox_loss;

/* --- sums over ranks, one GPU each ------------------------------------------------------------ */

enum { TD_GPU_RANKS_ID = 128 };

/** Make the id of a new group of ranks, on one of them.  id NULL: only load the library. */
typedef struct {
    char *id; /* [TD_GPU_RANKS_ID] a result */
} td_gpu_ranks_id;

/**
 * Join the group, which waits for the others.  From then on, whenever this rank waits, for others
 * or for its GPU, `check` is called: NULL, or why it must give up.  ctx outlives the group.
 */
typedef struct {
    const char *id;
    int rank, size;
    const char *(*check)(void *ctx);
    void *ctx;
} td_gpu_ranks_join;

/** Leave it: with the others, or at once, ending sums that have begun.  Nothing without a group. */
typedef struct {
    bool with_others;
} td_gpu_ranks_leave;

/** One that is begun and waited for in turn, any number of times. */
typedef struct {
    void **made;
} td_gpu_sum_new;

/**
 * Add the ranks' numbers on a queue of its own, after all that was queued before.  In order:
 * ((start + data of rank 0) + data of rank 1) + ..., of float32.  Every rank begins the same sums
 * in the same order.
 */
typedef struct {
    void *sum;
    td_dtype dtype; /* f32, f16 or bf16 */
    int64_t count;  /* in order: a multiple of the number of ranks */
    void *data;     /* [count]; becomes the sum */
    bool in_order;
    const float *start; /* [count]; NULL: 0 */
    float *others;      /* [count] memory to work in; only in order */
} td_gpu_sum_begin;

/** What is queued from now on follows the sum; the caller does not wait. */
typedef struct {
    void *sum;
} td_gpu_sum_wait;

typedef struct {
    void *sum;
} td_gpu_sum_free;

#endif
