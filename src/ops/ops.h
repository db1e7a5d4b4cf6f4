/*
 * ops/ops.h -- declarations of all ops, and the attribute structs that kernels and passes read
 */
#ifndef TD_OPS_OPS_H
#define TD_OPS_OPS_H

#include "base/rng.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "ops/act_list.h"

#define OP(name) extern const td_op td_op_##name;
#include "ops/ops.def"
#undef OP

/** The op with this name, or NULL. */
const td_op *td_op_find(const char *name);

/** All ops, in the order of ops.def. */
const td_op *const *td_op_all(int *n);

/* what follows a fused convolution instead of relu; TD_CONV_LINEAR: nothing */
typedef enum { TD_CONV_LINEAR, TD_CONV_SILU, TD_CONV_HARDSWISH } td_conv_act;

/* conv2d and all ops whose names begin with it */
typedef struct {
    int stride, pad, dilation, groups;
    int pad_extra; /* below and to the right there are pad + pad_extra zeros */
    bool relu;     /* conv2d_fused only */
    bool relu6;    /* conv2d_fused only, with relu: clipped at 6 too */
    int act;       /* conv2d_fused only, without relu: td_conv_act */
    bool wide;     /* conv2d_grad_w only: float32 result */
    bool tf32;     /* factors may be rounded to TF32 first, as ref does; float32 only */
} td_conv_attr;

typedef struct {
    int stride, pad, dilation, groups, pad_extra;
    int output_pad; /* below and to the right, less than stride */
} td_conv_transpose_attr;

/* what follows the first two convolutions of an inverted residual block */
typedef enum {
    TD_BLOCK_LINEAR,
    TD_BLOCK_RELU,
    TD_BLOCK_RELU6,
    TD_BLOCK_SILU,
    TD_BLOCK_HARDSWISH
} td_block_act;

/* of the depthwise convolution, but for `act` and `residual` */
typedef struct {
    int stride, pad, pad_extra;
    int act; /* td_block_act */
    bool expand, residual;
} td_inverted_residual_attr;

/** The td_block_act of a fused convolution. */
int td_block_act_of(const td_conv_attr *a);

/** TD_ESHAPE unless a block's operands have the dtype of its input, and biases that or float32. */
td_status td_block_check_dtypes(const td_node *n) TD_CHECKED;

/** Which operand of inverted_residual and expand_depthwise is the depthwise filter. */
static inline int td_block_depthwise(const td_inverted_residual_attr *a)
{
    return a->expand ? 3 : 1;
}

/** The op that this member `act` stands for; NULL: none. */
const td_op *td_conv_act_op(int act);

/** The names of td_conv_act. */
extern const char *const td_conv_act_names[];

/* conv2d_winograd: results come in tiles of 4 x 4 or, with {tile=2}, of 2 x 2
   (ops/conv_winograd.c) */
#define TD_WINO_TILE           4
#define TD_WINO_SIDE           6
#define TD_WINO_POINTS         36 /* points of a filter in all forms but TD_WINO_SMALL */
#define TD_WINO_SMALL_TILE     2
#define TD_WINO_SMALL_SIDE     4
#define TD_WINO_SMALL_POINTS   16
#define TD_WINO_STRIDED_SIDE   9
#define TD_WINO_STRIDED_POINTS 81
#define TD_WINO_LANES          16 /* filters interleaved in u */
#define TD_WINO_P              0.625
#define TD_WINO_Q              1.5
#define TD_WINO_STRIDED_P      0.5
#define TD_WINO_STRIDED_Q      1.25

/* The forms of a tile along a side: results, inputs, points. */
typedef enum {
    TD_WINO_LARGE,      /* stride 1: 4, 6, 6 */
    TD_WINO_SMALL,      /* stride 1, bfloat16: 2, 4, 4 */
    TD_WINO_STRIDED,    /* stride 2: 4, 9, 9 */
    TD_WINO_TRANSPOSED, /* stride 2, the image's gradient: 8, 5, 9; 4 pixels of dy are its unit */
    TD_WINO_FORMS
} td_winograd_form;

typedef struct {
    int pad;
    int tile;   /* TD_WINO_TILE or TD_WINO_SMALL_TILE */
    int stride; /* 1; with TD_WINO_TILE 1 or 2 */
    bool relu, relu6;
    bool wide; /* conv2d_winograd_grad_w: the result is float32, or float64 for f64 */
} td_winograd_attr;

typedef struct {
    bool grad_x; /* the filter for the gradient of the image: rotated, C and K exchanged */
    int tile, stride;
} td_winograd_filter_attr;

/** The form of a node of conv2d_winograd, conv2d_winograd_scaled, conv2d_winograd_grad_w or
    conv2d_winograd_grad_x; of winograd_filter TD_WINO_STRIDED for both forms with stride 2. */
td_winograd_form td_winograd_form_of(const td_node *n);

/* y = A' [ (G g G') . (B' d B) ] A; the first `results` rows and `side` columns of at, and so on.
   A filter has `filters` points along a side; points of a tile from number filters - 1 on share the
   filter's last point. */
typedef struct {
    int results, inputs, side, filters;
    double at[2 * TD_WINO_TILE][TD_WINO_STRIDED_SIDE];
    double g[TD_WINO_SIDE][3];
    double bt[TD_WINO_STRIDED_SIDE][TD_WINO_STRIDED_SIDE];
} td_winograd;

void td_winograd_matrices(td_winograd_form form, td_winograd *m);

/* the type of winograd_filter's result for k filters of c channels; wide: its dtype but for
   TD_WINO_SMALL */
td_type td_winograd_filter_type(td_winograd_form form, int64_t k, int64_t c, td_dtype wide);

/** Results of a whole tile along a side, of TD_WINO_TRANSPOSED pixels of dy. */
static inline int td_winograd_tile(td_winograd_form form)
{
    return form == TD_WINO_SMALL ? TD_WINO_SMALL_TILE : TD_WINO_TILE;
}

/** Points of a whole tile along a side. */
static inline int td_winograd_points(td_winograd_form form)
{
    return form == TD_WINO_LARGE   ? TD_WINO_SIDE
           : form == TD_WINO_SMALL ? TD_WINO_SMALL_SIDE
                                   : TD_WINO_STRIDED_SIDE;
}

/** Does only a tile's last result, along a side, depend on point i?  With stride 2 two do: the last
    of the outer taps' and of the middle tap's. */
static inline bool td_winograd_is_last(td_winograd_form form, int64_t i)
{
    const int side = td_winograd_points(form);
    return i == side - 1 || (side == TD_WINO_STRIDED_SIDE && i == TD_WINO_TILE);
}

/* The tiles along a side of a result.  The first `whole` have as many results as their size, the
   others one less, where that covers the side better: 14 are 4 + 4 + 3 + 3.  These need no products
   for the points on which only the last result depends.  Tiles of 2 are all whole. */
typedef struct {
    int64_t tiles, whole;
} td_winograd_side;

td_winograd_side td_winograd_side_of(int64_t results, td_winograd_form form);

/* The first result of tile i along a side; i may be the number of tiles. */
static inline int64_t td_winograd_first(const td_winograd_side *s, td_winograd_form form, int64_t i)
{
    return i * td_winograd_tile(form) - (i > s->whole ? i - s->whole : 0);
}

/* the number of tiles in all images of a result, of TD_WINO_TRANSPOSED in dy, and of products for
   one channel and filter */
int64_t td_winograd_tiles(const td_type *y, td_winograd_form form);
int64_t td_winograd_products(const td_type *y, td_winograd_form form);

/* quantize, dequantize */
typedef struct {
    double scale;
    int to; /* quantize only: td_int8_to of the result's dtype */
} td_quantize_attr;

/* quantize_weights */
typedef struct {
    int most; /* largest magnitude of the integers */
} td_quantize_weights_attr;

/* shift_int8: pixels of 128 around each image, as in td_conv_attr */
typedef struct {
    int pad, pad_extra;
} td_shift_int8_attr;

/* shift_int8_bias */
typedef struct {
    double x_scale;
} td_shift_int8_bias_attr;

/* conv2d_int8: as in td_conv_attr, and the values of one step of x, the result and the residual */
typedef struct {
    int stride, pad, dilation, groups, pad_extra;
    bool relu, relu6;
    int act; /* without relu: td_conv_act */
    double x_scale, y_scale, residual_scale;
    int to;         /* td_int8_to of the result's dtype */
    int weight_max; /* no integer of the filter has a larger magnitude */
} td_conv_int8_attr;

/* conv2d_pool_int8: the convolution, the pooling after it, and the value of one step of y */
typedef struct {
    int stride, pad;
    int kernel, pool_stride, pool_pad;
    double y_scale;
} td_conv_pool_int8_attr;

/* height and width of the convolution's result and of the op's; 0: the filter is too large */
typedef struct {
    int64_t P, Q, pooled_P, pooled_Q;
} td_pooled_sizes;

td_pooled_sizes td_pooled_sizes_of(const td_conv_pool_int8_attr *a, const td_type *x,
                                   const td_type *w);

#define TD_INT8_SCALE_MIN 1e-37
#define TD_INT8_SCALE_MAX 1e37

#define TD_INT8_ZERO   128 /* what shift_int8 adds */
#define TD_INT8_MAX    127 /* largest magnitude of a quantized weight or s8 activation */
#define TD_INT8_NARROW 64  /* largest magnitude of a weight so that pairs of products fit 16 bits */

/* the attribute `to` for u8, s8 or (conv2d_int8 only) f32 */
int td_int8_to(td_dtype d);

/* the dtype of conv2d_int8's result */
td_dtype td_int8_result(const td_conv_int8_attr *a);

/* attention */
typedef struct {
    int heads;
    double scale;
} td_attention_attr;

/* images, tokens, numbers of a token, heads, numbers of a head */
typedef struct {
    int64_t N, T, E, heads, D;
} td_attention_sizes;

td_attention_sizes td_attention_sizes_of(const td_node *n);

/* linear, linear_grad_x, linear_grad_w */
typedef struct {
    bool wide; /* linear_grad_w only: float32 result */
    bool tf32; /* as in td_conv_attr */
} td_linear_attr;

typedef struct {
    bool gelu;
} td_linear_fused_attr;

typedef struct {
    bool transpose_a, transpose_b;
} td_matmul_attr;

/* y [.., m, n] of products over k */
typedef struct {
    int64_t m, n, k;
} td_matmul_sizes;

td_matmul_sizes td_matmul_sizes_of(const td_node *n);

/** x y + bias, with the last two dimensions of x or y exchanged; bias [N] may be NULL. */
td_value *td_matmul(td_builder *b, td_value *x, bool transpose_x, td_value *y, bool transpose_y,
                    td_value *bias);

/* layer_norm and its gradient */
typedef struct {
    double eps;
} td_layer_norm_attr;

typedef struct {
    int groups;
    double eps;
} td_group_norm_attr;

/* the rows of x that are normalised, and their length: gamma's */
typedef struct {
    int64_t rows, width;
} td_layer_norm_sizes;

td_layer_norm_sizes td_layer_norm_sizes_of(const td_type *x, const td_type *gamma);

/** Is it a convolution, a linear layer or a gradient of one, with tf32 set? */
bool td_is_tf32(const td_node *n);

/** The operands that such an op multiplies with each other, as bits; 0: another op. */
uint32_t td_factors(const td_op *op);

/** The member tf32 of the attributes of such an op. */
bool *td_tf32_of(const td_op *op, void *attr);

/** TD_ESHAPE: `is_tf32`, and the factors are half. */
TD_CHECKED td_status td_check_tf32(const td_node *n, bool is_tf32);

/* max_pool2d, avg_pool2d and their gradients */
typedef struct {
    int kernel, stride, pad;
    int kernel_w;           /* width of a window; 0: kernel, which is its height */
    int pad_extra;          /* as in convolutions; max_pool2d only */
    bool count_include_pad; /* avg_pool2d only */
} td_pool_attr;

/** The width of a window. */
int td_pool_width(const td_pool_attr *a);

/* global_avg_pool and its gradient */
typedef struct {
    bool wide;   /* global_avg_pool only: half images, float32 means */
    bool narrow; /* its gradient only: dy is float32, dx of x's half dtype */
} td_global_pool_attr;

/* the batch_norm family */
typedef struct {
    double eps;
    double momentum; /* batch_norm_update */
    int64_t count;   /* batch_norm_update, batch_norm_statistics: N * H * W */
    bool relu6;      /* ops with relu: clipped at 6 too */
    int to;          /* batch_norm_statistics: td_norm_vectors_to(dtype of scale and shift) */
} td_norm_attr;

/* the attribute `to` for scale and shift of a half dtype, or of gamma's */
int td_norm_vectors_to(td_dtype d);

typedef struct {
    double by;
} td_scale_attr;

typedef struct {
    int axis;
    int64_t start, size;
    int64_t step; /* from one index kept to the next, at least 1 */
} td_slice_attr;

typedef struct {
    int axis;
} td_concat_attr;

/* gather, gather_grad: [outer, rows, inner] is x by `axis`, and index has `n` elements */
typedef struct {
    int axis;
} td_gather_attr;

typedef struct {
    int64_t outer, rows, inner, n;
} td_gather_shape;

td_gather_shape td_gather_shape_of(const td_node *n, const td_type *x);

/* pad */
#define TD_PAD_MAX 65536
typedef enum { TD_PAD_CONSTANT, TD_PAD_REFLECT, TD_PAD_EDGE, TD_PAD_WRAP } td_pad_mode;
typedef struct {
    int axis, before, after, mode; /* td_pad_mode */
    double value;
} td_pad_attr;

/* the name of a mode, which is ONNX's too */
const char *td_pad_mode_name(int mode);

/* join_heads and its gradient */
typedef enum { TD_JOIN_PIXEL, TD_JOIN_CHANNEL } td_join_order;
typedef struct {
    int columns, order; /* td_join_order */
    bool wide;          /* join_heads only: float32 result */
    bool narrow;        /* join_heads_grad only: dy is float32, dx of x's type */
    int64_t start;      /* join_heads_grad only: the head's first row */
} td_join_attr;

/* the number of rows that head x [N, C, H, W] adds to the table */
int64_t td_join_rows(const td_join_attr *a, const td_type *x);

typedef struct {
    int height, width;
} td_resize_attr;

/* resize and its gradient */
typedef enum { TD_RESIZE_LINEAR, TD_RESIZE_CUBIC } td_resize_mode;
typedef enum {
    TD_RESIZE_HALF_PIXEL,
    TD_RESIZE_PYTORCH_HALF_PIXEL,
    TD_RESIZE_ALIGN_CORNERS,
    TD_RESIZE_ASYMMETRIC,
} td_resize_coordinates;
typedef struct {
    int height, width;
    int mode, coordinates;            /* td_resize_mode, td_resize_coordinates */
    double height_scale, width_scale; /* of the result; 0: the quotient of the sizes */
    double cubic;                     /* the parameter of the cubic */
} td_interpolate_attr;

const char *td_resize_coordinates_name(int coordinates);

/** Rows or columns of resize, x [N, C, H, W] (ops/resize_taps.h). */
struct td_resize_axis td_resize_axis_of(const td_interpolate_attr *a, const td_type *x,
                                        bool is_width);

typedef struct {
    const char *layout;
    int dtype; /* index into the names in shape.c; 0: the operand's dtype */
} td_reorder_attr;

/* reorder's attribute that makes a value of dtype d (a float) in `layout` */
td_reorder_attr td_reorder_attr_of(const char *layout, td_dtype d);

typedef struct {
    int to; /* index into td_cast_names */
} td_cast_attr;
extern const char *const td_cast_names[];

/* the dtype of a cast's attribute */
td_dtype td_cast_to(const td_cast_attr *a);
td_cast_attr td_cast_attr_of(td_dtype d);

typedef struct {
    double value;
    const char *type;   /* "f32[3,3]" */
    const char *values; /* of all elements; NULL: each is `value` */
} td_constant_attr;

/* the values of a constant, in plain order: `value`, `times` times */
typedef struct {
    const char *rest;
    double value;
    int64_t times;
} td_values_cursor;

td_values_cursor td_constant_values(const td_node *n);

/* the next value; false: there is none, or the rest is malformed, which no verified graph has */
bool td_constant_next(td_values_cursor *c);

/* writes all elements of a constant: rounded to its dtype, integers truncated and saturated */
void td_constant_fill(const td_node *n, void *to);

typedef struct {
    const char *shape; /* "8,64,1,1" */
} td_reshape_attr;

/* the dimensions of attribute `shape`; at most one is -1.  TD_ESHAPE: malformed */
td_status td_shape_parse(const td_node *n, td_type *out) TD_CHECKED;

typedef struct {
    const char *perm; /* "0:2:3:1" */
} td_transpose_attr;

/* transpose_view: images with channels last, and the orders that turn one form into the other */
#define TD_CHANNELS_LAST "acdb"
#define TD_PERM_TO_LAST  "0:2:3:1"
#define TD_PERM_TO_FIRST "0:3:1:2"

/** Is this a transposition of the order `perm`? */
bool td_transpose_is(const td_node *n, const char *perm);

/* the order as numbers; false: not one of operand 0's dimensions */
bool td_transpose_perm(const td_node *n, int perm[TD_RANK_MAX]);

/** x with its dimensions in the order perm [rank]. */
td_value *td_transpose(td_builder *b, td_value *x, const int *perm);

typedef struct {
    int classes;
    double smoothing;
} td_one_hot_attr;

/* squeeze_excite: activation of the hidden units, function of the gates */
typedef enum { TD_SE_RELU, TD_SE_SILU } td_se_hidden;
typedef enum { TD_SE_SIGMOID, TD_SE_HARDSIGMOID } td_se_gate;

typedef struct {
    int hidden, gate; /* td_se_hidden, td_se_gate */
} td_squeeze_excite_attr;

/** The ops of a node's attributes. */
const td_op *td_squeeze_excite_hidden(const td_node *n);
const td_op *td_squeeze_excite_gate(const td_node *n);

/* gated_add */
typedef struct {
    bool relu;
    double by;
} td_gated_attr;

/* gated_add_relu_grad */
typedef struct {
    bool wide;
} td_gated_grad_attr;

typedef struct {
    double threshold;
} td_sigmoid_loss_attr;

/* dropout: ops/dropout.c */
typedef enum { TD_DROPOUT_ELEMENT, TD_DROPOUT_ROW, TD_DROPOUT_BATCH } td_dropout_mode;

typedef struct {
    double p;
    int mode; /* td_dropout_mode */
    int id;
} td_dropout_attr;

enum { TD_RANDOM_COUNT = 3 }; /* elements of operand `random` */

/** A draw below `least` makes 0; the rest is multiplied by `scale`. */
typedef struct {
    uint32_t least;
    double scale;
} td_dropout_rule;

/** The rule of a node; without random numbers or with p = 0: least 0, scale 1. */
td_dropout_rule td_dropout_rule_of(const td_node *n);

/** Is it a dropout node whose result is its operand? */
bool td_dropout_is_off(const td_node *n);

/** The draws of a sample, as td_rng_u32 makes them; random NULL: zeros. */
td_rng td_dropout_stream(const td_dropout_attr *a, const int64_t *random, int64_t sample);

/* losses of detectors: ops/detection.c */
typedef struct {
    double alpha, gamma;
    bool per_image;
} td_focal_attr;

typedef struct {
    double delta;
    bool per_image;
} td_huber_attr;

typedef struct {
    int ratio;
    bool whole_batch;
} td_multibox_attr;

/* normalize */
enum { TD_NORMALIZE_CHANNELS = 4 };

typedef struct {
    const char *mean, *std; /* "123.675:116.28:103.53" */
    int to;                 /* td_normalize_to */
} td_normalize_attr;

typedef struct {
    float mean[TD_NORMALIZE_CHANNELS], std[TD_NORMALIZE_CHANNELS];
} td_normalize_values;

/* its constants, one for each channel; TD_ESHAPE: malformed, or too many channels */
td_status td_normalize_constants(const td_node *n, td_normalize_values *out) TD_CHECKED;

/* the attribute for results of dtype d, a float */
int td_normalize_to(td_dtype d);

/** Images u8[N, H, W, C] to [N, C, H, W] of dtype `to`, for C = 1 or 3. */
td_value *td_normalize(td_builder *b, td_value *x, const float mean[3], const float std[3],
                       td_dtype to);

typedef struct {
    double momentum, decay;
    bool nesterov;
} td_sgd_attr;

typedef struct {
    double momentum, decay, alpha, eps;
} td_rmsprop_attr;

/* adam, lamb (decoupled is not read) */
typedef struct {
    double beta1, beta2, eps, decay;
    bool decoupled;
} td_adam_attr;

typedef struct {
    double limit;
} td_limit_grad_attr;

/* all_reduce uses only `always`, its two halves use all members */
typedef struct {
    int bucket;
    int64_t at;
    bool is_last, always;
} td_all_reduce_attr;

/** How many numbers the graph sums, before or after pass buckets, and whether sums have a start. */
int64_t td_collective_floats(const td_graph *g, bool *starts);

/**
 * The buckets of a graph after pass buckets: *floats [*n_buckets] has how many numbers each sums
 * (the caller frees it), NULL if there are none.
 */
TD_CHECKED td_status td_collective_buckets(const td_graph *g, int64_t **floats, int *n_buckets);

/** Is it an optimiser's step?  Its operand 0 is the weight, 1 the momentum buffer, 2 the
    gradient. */
bool td_op_is_update(const td_op *op);

/** Does the step read its momentum (adam, lamb: beta1) from operand 3, beside the rate? */
bool td_update_has_momentum(const td_node *n);

/** The operand index of an update's first half copy of the weight; 0 for other ops. */
int td_op_first_copy(const td_op *op);

#endif
