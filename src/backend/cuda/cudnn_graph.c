/*
 * cudnn_graph.c -- a problem as an operation graph of cuDNN
 *
 *   forward            X -[scale, shift, relu]-> conv W -> [z] [bias] [relu] -> Y -> [sum, squares]
 *   data gradient      Y, W -> grad -> [relu backward with R] -> X
 *   filter gradient    X -[scale, shift, relu]->, Y -> grad -> [float32] -> W
 *
 * Tensors in square brackets are virtual between their operations: they exist in registers only.
 * They are float32; what enters a convolution has the storage type, which tensor cores require.
 *
 * Sources: cuDNN 9 "Graph API", sections "Supported Graph Patterns" (precompiled engines, runtime
 * fusion, ConvBNfprop, ConvBNwgrad) and "Operation Specific Constraints for the Runtime Fusion
 * Engines"; "cudnn_graph Library", "Backend Descriptor Types" (names and types of attributes).
 * "Required" is what cuDNN 9.19 refuses to finalize without, tried attribute by attribute; the
 * tests cuda.cudnn and cuda.plans finalize every kind of descriptor and graph.
 *
 *   TENSOR                    required: dimensions, strides, alignment, an id of its own.  NHWC,
 *                             fully packed, which GenStats requires.  The type has a default
 *   POINTWISE                 required: mode.  Math is float32, all that relu allows.  Clips have
 *                             defaults, 0 and infinite; relu6 sets the upper one, a double.  NaN
 *                             propagation is required by the text where values are compared, in
 *                             relu and its gradient; its default is not to propagate, which is
 *                             not supported; plans are the same
 *   OPERATION_POINTWISE       required: pointwise descriptor, X, Y, B of two operands; of
 *                             gradients X, DX, DY.  Alphas have the default 1, the only value of
 *                             runtime fusion.  B is repeated where its dimension is 1
 *   CONVOLUTION               required: pads, strides, dilations, spatial dimensions.  Mode and
 *                             computation have defaults, the first a true convolution: both are set
 *   OPERATION_CONVOLUTION_... (forward, backward data, backward filter) required: convolution
 *                             and three tensors; alpha 1 and beta 0, as fusion wants.  Groups
 *                             follow from the channels of x and w
 *   OPERATION_GEN_STATS       required: three tensors.  Sums are float32 [1,K,1,1].  X is half or
 *                             float32 in the text; plans with bfloat16 are offered
 *   OPERATIONGRAPH            required: operations.  The handle is deprecated; it is given where
 *                             there is one
 *
 * A second review compared every attribute that is set here and in cudnn_plan.c with the text of
 * cudnn_graph.h in cuDNN 9.28.1 (type, number of elements, required or not, default, get-only):
 * relu's gradient lacked NaN propagation, the rest agrees.  "Required" there covers more than what
 * is refused: type of a tensor, math of a pointwise operation, mode and computation of a
 * convolution, all of which are set; and the handles of graph and plan, which DEVICEPROP replaces.
 */
#include "backend/cuda/cudnn_graph.h"

#include "backend/cuda/cudnn_parts.h"

enum { OPERATIONS = 8, VIRTUAL_UID = 100 }; /* uids of real tensors are td_cudnn_tensor + 1 */

/* a graph under construction; dims in cuDNN's order, N C H W and K C/G R S */
typedef struct {
    td_cudnn_builder *b;
    const td_cudnn_conv *conv;
    cudnnDataType_t storage;
    int64_t x[4], w[4], y[4];
    int64_t n_virtual;
    unsigned tensors; /* td_cudnn_plan.tensors */
    td_descriptor operations[OPERATIONS];
    int n_operations;
} graph;

static const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;

/* --- the problem ------------------------------------------------------------------------------ */

/* the length of an output side: P or Q; < 1 if the filter does not fit */
static int64_t out_side(const td_cudnn_conv *v, int axis)
{
    int64_t in = axis ? v->w : v->h, filter = axis ? v->s : v->r;
    int64_t room = in + v->pad_before[axis] + v->pad_after[axis] - v->dilation[axis] * (filter - 1);
    return room < 1 ? 0 : (room - 1) / v->stride[axis] + 1;
}

static bool is_in(int64_t value, int64_t low)
{
    enum { SIDE_MAX = 1 << 30 };
    return value >= low && value <= SIDE_MAX;
}

static bool has_valid_sizes(const td_cudnn_conv *v)
{
    const int64_t sizes[] = { v->n, v->c, v->h, v->w, v->k, v->r, v->s, v->groups };
    bool is_valid = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        is_valid &= is_in(sizes[i], 1);
    for (int axis = 0; axis < 2; axis++)
        is_valid &= is_in(v->pad_before[axis], 0) && is_in(v->pad_after[axis], 0) &&
                    is_in(v->stride[axis], 1) && is_in(v->dilation[axis], 1);
    return is_valid && out_side(v, 0) > 0 && out_side(v, 1) > 0;
}

/* no tensor has more than 2^40 elements, so that strides and bytes do not overflow */
static bool fits(int64_t n, int64_t c, int64_t h, int64_t w)
{
    const double limit = 1099511627776.0;
    return (double)n * (double)c * (double)h * (double)w <= limit;
}

static bool has_small_tensors(const td_cudnn_conv *v)
{
    return fits(v->n, v->c, v->h, v->w) && fits(v->k, v->c / v->groups, v->r, v->s) &&
           fits(v->n, v->k, out_side(v, 0), out_side(v, 1));
}

/* all operations that may be fused with a direction */
static unsigned fusable(td_cudnn_direction direction)
{
    switch (direction) {
    case TD_CUDNN_FORWARD:
        return TD_CUDNN_SCALE_RELU | TD_CUDNN_BIAS | TD_CUDNN_ADD | TD_CUDNN_RELU |
               TD_CUDNN_CLIP_6 | TD_CUDNN_STATISTICS;
    case TD_CUDNN_DATA_GRADIENT:
        return TD_CUDNN_RELU_BACKWARD | TD_CUDNN_SCALE_RELU;
    case TD_CUDNN_FILTER_GRADIENT:
        return TD_CUDNN_SCALE_RELU;
    }
    return 0;
}

static bool has_valid_fusion(const td_cudnn_conv *v)
{
    const unsigned epilogue = TD_CUDNN_BIAS | TD_CUDNN_ADD | TD_CUDNN_RELU;
    if (v->fused & ~fusable(v->direction))
        return false;
    if (v->direction == TD_CUDNN_DATA_GRADIENT)
        return v->fused != TD_CUDNN_SCALE_RELU;
    if (v->fused & TD_CUDNN_CLIP_6 && !(v->fused & TD_CUDNN_RELU))
        return false;
    return !(v->fused & TD_CUDNN_STATISTICS) || !(v->fused & epilogue);
}

int td_cudnn_conv_check(const td_cudnn_conv *v, char *error)
{
    if ((unsigned)v->direction > TD_CUDNN_FILTER_GRADIENT || (unsigned)v->dtype > TD_CUDNN_F32)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "direction %d or data type %d is unknown",
                              (int)v->direction, (int)v->dtype);
    if (!has_valid_sizes(v))
        return td_cudnn_error(
            error, TD_CUDNN_EREQUEST,
            "sizes of the convolution are not positive, exceed 2^30, or its filter "
            "%lldx%lld exceeds the padded image %lldx%lld",
            (long long)v->r, (long long)v->s, (long long)v->h, (long long)v->w);
    if (!has_small_tensors(v))
        return td_cudnn_error(error, TD_CUDNN_EREQUEST,
                              "a tensor of the convolution has more than 2^40 elements");
    if (v->c % v->groups || v->k % v->groups)
        return td_cudnn_error(
            error, TD_CUDNN_EREQUEST,
            "%lld input and %lld output channels cannot be divided into %lld groups",
            (long long)v->c, (long long)v->k, (long long)v->groups);
    if (v->wide_filter && v->direction != TD_CUDNN_FILTER_GRADIENT)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST,
                              "a wide filter is a result, of the filter gradient only");
    if (!has_valid_fusion(v))
        return td_cudnn_error(error, TD_CUDNN_EREQUEST,
                              "operations 0x%x cannot be fused with direction %d", v->fused,
                              (int)v->direction);
    return 0;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static void copy_dims(int64_t *to, int64_t n, int64_t c, int64_t h, int64_t w)
{
    to[0] = n;
    to[1] = c;
    to[2] = h;
    to[3] = w;
}

static void set_int(td_cudnn_builder *b, td_descriptor d, cudnnBackendAttributeName_t name,
                    int64_t value)
{
    td_cudnn_set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

/* a channels-last tensor */
static td_descriptor tensor(graph *g, int64_t uid, cudnnDataType_t dtype, const int64_t dims[4])
{
    td_cudnn_builder *b = g->b;
    td_descriptor d = td_cudnn_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t strides[] = { dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1] };
    bool is_virtual = uid >= VIRTUAL_UID;
    set_int(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    td_cudnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
    td_cudnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    td_cudnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set_int(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, TD_CUDNN_ALIGNMENT);
    td_cudnn_set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    td_cudnn_finalize(b, d, "a tensor descriptor");
    return d;
}

static bool is_wide(const td_cudnn_conv *v, td_cudnn_tensor which)
{
    switch (which) {
    case TD_CUDNN_SUM:
    case TD_CUDNN_SQUARES:
        return true;
    case TD_CUDNN_SCALE:
    case TD_CUDNN_SHIFT:
    case TD_CUDNN_BIAS_OF:
        return v->wide_vectors;
    case TD_CUDNN_W:
        return v->wide_filter;
    default:
        return false;
    }
}

/* a tensor that the caller passes */
static td_descriptor real(graph *g, td_cudnn_tensor which)
{
    int64_t channels[4];
    const int64_t *dims = channels;
    copy_dims(channels, 1,
              which == TD_CUDNN_SCALE || which == TD_CUDNN_SHIFT ? g->conv->c : g->conv->k, 1, 1);
    if (which == TD_CUDNN_X || which == TD_CUDNN_R)
        dims = g->x;
    else if (which == TD_CUDNN_W)
        dims = g->w;
    else if (which == TD_CUDNN_Y || which == TD_CUDNN_Z)
        dims = g->y;
    g->tensors |= 1u << which;
    return tensor(g, which + 1, is_wide(g->conv, which) ? f32 : g->storage, dims);
}

static td_descriptor virtual(graph *g, cudnnDataType_t dtype, const int64_t dims[4])
{
    return tensor(g, VIRTUAL_UID + g->n_virtual++, dtype, dims);
}

/* --- operations ------------------------------------------------------------------------------- */

static void append(graph *g, td_descriptor operation, const char *what)
{
    td_cudnn_finalize(g->b, operation, what);
    if (!g->b->status)
        g->operations[g->n_operations++] = operation;
}

/* cap: of relu; 0: none */
static td_descriptor pointwise(graph *g, cudnnPointwiseMode_t mode, double cap)
{
    const cudnnNanPropagation_t keep_nan = CUDNN_PROPAGATE_NAN;
    td_cudnn_builder *b = g->b;
    td_descriptor kind = td_cudnn_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    td_cudnn_set(b, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    td_cudnn_set(b, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    if (mode == CUDNN_POINTWISE_RELU_FWD || mode == CUDNN_POINTWISE_RELU_BWD)
        td_cudnn_set(b, kind, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                     &keep_nan);
    if (cap > 0)
        td_cudnn_set(b, kind, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &cap);
    td_cudnn_finalize(b, kind, "a pointwise descriptor");
    td_descriptor operation = td_cudnn_make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    td_cudnn_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    return operation;
}

/* y = x + b or x * b */
static void binary(graph *g, cudnnPointwiseMode_t mode, td_descriptor x, td_descriptor b,
                   td_descriptor y)
{
    td_descriptor operation = pointwise(g, mode, 0);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    append(g, operation, "a sum or product");
}

static void unary(graph *g, cudnnPointwiseMode_t mode, double cap, td_descriptor x, td_descriptor y)
{
    td_descriptor operation = pointwise(g, mode, cap);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    append(g, operation, "a relu or copy");
}

static void relu_backward(graph *g, td_descriptor dy, td_descriptor x, td_descriptor dx)
{
    td_descriptor operation = pointwise(g, CUDNN_POINTWISE_RELU_BWD, 0);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    td_cudnn_set_descriptor(g->b, operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    append(g, operation, "a relu's gradient");
}

/* x * scale + shift */
static td_descriptor scaled(graph *g, td_descriptor x)
{
    td_descriptor product = virtual(g, f32, g->x), sum = virtual(g, f32, g->x);
    binary(g, CUDNN_POINTWISE_MUL, x, real(g, TD_CUDNN_SCALE), product);
    binary(g, CUDNN_POINTWISE_ADD, product, real(g, TD_CUDNN_SHIFT), sum);
    return sum;
}

/* the convolution's input: X, or relu(X * scale + shift) */
static td_descriptor input(graph *g)
{
    td_descriptor x = real(g, TD_CUDNN_X);
    if (!(g->conv->fused & TD_CUDNN_SCALE_RELU))
        return x;
    td_descriptor sum = scaled(g, x), y = virtual(g, g->storage, g->x);
    unary(g, CUDNN_POINTWISE_RELU_FWD, 0, sum, y);
    return y;
}

static void statistics(graph *g, td_descriptor y)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    td_cudnn_builder *b = g->b;
    td_descriptor d = td_cudnn_make(b, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    td_cudnn_set(b, d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    td_cudnn_set(b, d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    td_cudnn_set_descriptor(b, d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    td_cudnn_set_descriptor(b, d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, real(g, TD_CUDNN_SUM));
    td_cudnn_set_descriptor(b, d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC,
                            real(g, TD_CUDNN_SQUARES));
    append(g, d, "statistics");
}

/* pads, strides and dilations; cuDNN calls correlation what networks call convolution */
static td_descriptor geometry(graph *g)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const td_cudnn_conv *v = g->conv;
    td_cudnn_builder *b = g->b;
    td_descriptor d = td_cudnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_int(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, v->pad_before);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, v->pad_after);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, v->stride);
    td_cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, v->dilation);
    td_cudnn_finalize(b, d, "a convolution descriptor");
    return d;
}

/* the attributes of a convolution or gradient; the order is td_cudnn_direction */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
    const char *what;
} kinds[] = {
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, "a convolution" },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, "a data gradient" },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, "a filter gradient" },
};

/* the number of groups follows from the channels of x and w */
static void convolve(graph *g, td_descriptor x, td_descriptor w, td_descriptor y)
{
    const float one = 1, zero = 0;
    const td_cudnn_direction i = g->conv->direction;
    td_cudnn_builder *b = g->b;
    td_descriptor d = td_cudnn_make(b, kinds[i].type);
    td_cudnn_set_descriptor(b, d, kinds[i].conv, geometry(g));
    td_cudnn_set_descriptor(b, d, kinds[i].x, x);
    td_cudnn_set_descriptor(b, d, kinds[i].w, w);
    td_cudnn_set_descriptor(b, d, kinds[i].y, y);
    td_cudnn_set(b, d, kinds[i].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    td_cudnn_set(b, d, kinds[i].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    append(g, d, kinds[i].what);
}

/* --- directions ------------------------------------------------------------------------------- */

/* Y if no operation of `later` follows, otherwise a virtual tensor */
static td_descriptor output(graph *g, unsigned later)
{
    return g->conv->fused & later ? virtual(g, f32, g->y) : real(g, TD_CUDNN_Y);
}

/*
 * Without groups, a clipped relu that ends the graph is matched by engine 0 of the fallback list
 * only, which has no tensor cores.  With a copy after it, mode A offers engines that are compiled
 * for the graph and use them.  Depthwise, engine 0 is what mode A ranks first, with and without it.
 */
static void last_relu(graph *g, td_descriptor x)
{
    const double cap = g->conv->fused & TD_CUDNN_CLIP_6 ? 6 : 0;
    if (cap > 0 && g->conv->groups == 1) {
        td_descriptor y = virtual(g, f32, g->y);
        unary(g, CUDNN_POINTWISE_RELU_FWD, cap, x, y);
        unary(g, CUDNN_POINTWISE_IDENTITY, 0, y, real(g, TD_CUDNN_Y));
    } else {
        unary(g, CUDNN_POINTWISE_RELU_FWD, cap, x, real(g, TD_CUDNN_Y));
    }
}

/* z, bias, relu in this order: precompiled engines have this pattern, others are compiled */
static void build_forward(graph *g)
{
    const unsigned fused = g->conv->fused;
    td_descriptor x = input(g), y = output(g, TD_CUDNN_BIAS | TD_CUDNN_ADD | TD_CUDNN_RELU), last;
    convolve(g, x, real(g, TD_CUDNN_W), y);
    if (fused & TD_CUDNN_ADD) {
        last = y;
        y = output(g, TD_CUDNN_BIAS | TD_CUDNN_RELU);
        binary(g, CUDNN_POINTWISE_ADD, last, real(g, TD_CUDNN_Z), y);
    }
    if (fused & TD_CUDNN_BIAS) {
        last = y;
        y = output(g, TD_CUDNN_RELU);
        binary(g, CUDNN_POINTWISE_ADD, last, real(g, TD_CUDNN_BIAS_OF), y);
    }
    if (fused & TD_CUDNN_RELU)
        last_relu(g, y);
    if (fused & TD_CUDNN_STATISTICS)
        statistics(g, y);
}

static void build_data_gradient(graph *g)
{
    const bool has_relu = g->conv->fused & TD_CUDNN_RELU_BACKWARD;
    td_descriptor dx = has_relu ? virtual(g, f32, g->x) : real(g, TD_CUDNN_X);
    convolve(g, dx, real(g, TD_CUDNN_W), real(g, TD_CUDNN_Y));
    if (!has_relu)
        return;
    td_descriptor r = real(g, TD_CUDNN_R);
    if (g->conv->fused & TD_CUDNN_SCALE_RELU)
        r = scaled(g, r);
    relu_backward(g, dx, r, real(g, TD_CUDNN_X));
}

/* engines write the storage type, or a virtual tensor that a pointwise operation follows */
static void build_filter_gradient(graph *g)
{
    td_descriptor x = input(g), w = real(g, TD_CUDNN_W), y = real(g, TD_CUDNN_Y);
    if (g->conv->wide_filter) {
        td_descriptor sums = virtual(g, f32, g->w);
        convolve(g, x, sums, y);
        unary(g, CUDNN_POINTWISE_IDENTITY, 0, sums, w);
    } else {
        convolve(g, x, w, y);
    }
}

td_descriptor td_cudnn_build_graph(td_cudnn_builder *b, const td_cudnn_conv *v,
                                   const td_cudnn_target *target, unsigned *tensors)
{
    static const cudnnDataType_t storage[] = { CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16,
                                               CUDNN_DATA_FLOAT };
    graph g = { .b = b, .conv = v, .storage = storage[v->dtype] };
    copy_dims(g.x, v->n, v->c, v->h, v->w);
    copy_dims(g.w, v->k, v->c / v->groups, v->r, v->s);
    copy_dims(g.y, v->n, v->k, out_side(v, 0), out_side(v, 1));
    if (v->direction == TD_CUDNN_FORWARD)
        build_forward(&g);
    else if (v->direction == TD_CUDNN_DATA_GRADIENT)
        build_data_gradient(&g);
    else
        build_filter_gradient(&g);
    td_descriptor d = td_cudnn_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    td_cudnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.n_operations,
                 g.operations);
    if (target->handle)
        td_cudnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    td_cudnn_finalize(b, d, "the operation graph");
    *tensors = g.tensors;
    return d;
}
