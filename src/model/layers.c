/*
 * layers.c -- parameters and layers of the networks, and their initialization
 *
 * Parameters are in the order of PyTorch's state_dict, under torchvision's names (SE: timm's), with
 * these initial values:
 *
 *   convolution   normal, sqrt(2 / fan)     fan = R S C / groups, or R S K (not divided by groups)
 *   BN            gamma 1 (0 for the last of a branch, on request), beta 0, mean 0, variance 1
 *
 * Families other than the residual networks have their own rules (td_net.begin_filters).
 *
 * The TensorFlow variant (td_variant) has padding SAME, which gives ceil(side / stride) windows,
 * with the smaller half of the padding before; and these initial values:
 *
 *   convolution   truncated normal, sqrt(2 / fan)
 *   with groups   uniform in +-sqrt(6 / (9 C / groups + 9 C)) (Glorot), whatever the options
 */
#include "model/layers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

td_net td_net_begin(td_builder *b, const td_arch *arch, const td_model_opts *opts, bool is_training)
{
    return (td_net){ .b = b,
                     .arch = arch,
                     .opts = opts,
                     .dtype = opts->dtype ? opts->dtype : TD_DT_F32,
                     .is_training = is_training,
                     .is_same_padded = opts->variant == TD_VARIANT_TENSORFLOW,
                     .eps = 1e-5,
                     .momentum = 0.1,
                     .root = "",
                     .stem_conv = "conv1",
                     .stem_norm = "bn1",
                     .stage = "layer",
                     .first_stage = 1 };
}

void td_net_prefix(td_net *m, const char *format, ...)
{
    va_list args;
    const int n = snprintf(m->prefix, sizeof m->prefix, "%s", m->root);
    va_start(args, format);
    vsnprintf(m->prefix + n, sizeof m->prefix - (size_t)n, format, args);
    va_end(args);
}

/* --- parameters ------------------------------------------------------------------------------- */

td_value *td_net_param(td_net *m, const char *layer, const char *part, int rank, const int64_t *dim,
                       td_param_attr attr)
{
    char name[128];
    td_type type = td_type_of(m->dtype, rank, dim);
    snprintf(name, sizeof name, "%s%s%s%s", m->prefix, layer, *layer ? "." : "", part);
    return td_emit_leaf(m->b, &td_op_param, &attr, name, &type);
}

td_value *td_net_vector(td_net *m, const char *layer, const char *part, int64_t n,
                        td_param_attr attr)
{
    return td_net_param(m, layer, part, 1, &n, attr);
}

td_param_attr td_net_begins(td_init init, double scale)
{
    return (td_param_attr){ .role = TD_ROLE_WEIGHT, .init = (int)init, .scale = scale };
}

double td_net_fan(const td_net *m, int64_t n_in, int64_t n_out)
{
    const td_conv_init fan = m->opts->conv_init;
    const bool is_out = fan == TD_CONV_INIT_FAN_OUT ||
                        (fan == TD_CONV_INIT_AUTO && m->opts->variant == TD_VARIANT_TENSORFLOW);
    return (double)(is_out ? n_out : n_in);
}

/* filters with `taps` taps, from n_in channels per group to n_out */
static td_param_attr filter_init(const td_net *m, int64_t taps, int64_t n_in, int64_t n_out,
                                 int groups)
{
    const bool is_tensorflow = m->opts->variant == TD_VARIANT_TENSORFLOW;
    const double fan = td_net_fan(m, taps * n_in, taps * n_out);
    if (m->init)
        return *m->init;
    if (m->begin_filters)
        return m->begin_filters(taps, n_in, n_out, groups);
    if (is_tensorflow && groups > 1)
        return td_net_begins(TD_INIT_UNIFORM, sqrt(6 / (double)(taps * n_in + taps * n_out)));
    return td_net_begins(is_tensorflow ? TD_INIT_TRUNCATED_NORMAL : TD_INIT_NORMAL,
                         sqrt(2) / sqrt(fan));
}

td_param_attr td_net_normal_fan_in(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_out;
    (void)groups;
    return td_net_begins(TD_INIT_NORMAL, sqrt(2 / (double)(taps * n_in)));
}

td_param_attr td_net_normal_fan_out(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_in;
    (void)groups;
    return td_net_begins(TD_INIT_NORMAL, sqrt(2 / (double)(taps * n_out)));
}

td_param_attr td_net_uniform(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_out;
    (void)groups;
    return td_net_begins(TD_INIT_UNIFORM, 1 / sqrt((double)(taps * n_in)));
}

/* --- padding ---------------------------------------------------------------------------------- */

typedef struct {
    int before, extra; /* after: before + extra */
} padding;

static padding same_padding(int64_t side, int kernel, int stride)
{
    const int64_t windows = (side + stride - 1) / stride;
    const int64_t wanted = (windows - 1) * stride + kernel - side;
    const int all = wanted > 0 ? (int)wanted : 0; /* less than kernel */
    return (padding){ all / 2, all % 2 };
}

static padding padding_of(td_net *m, const td_value *x, int kernel, int stride)
{
    if (!m->is_same_padded)
        return (padding){ (kernel - 1) / 2, 0 };
    const int64_t h = x->type.dim[2], w = x->type.dim[3];
    const padding rows = same_padding(h, kernel, stride), columns = same_padding(w, kernel, stride);
    if (rows.before != columns.before || rows.extra != columns.extra)
        td_build_fail(m->b, td_error(TD_EUNSUPPORTED,
                                     "padding SAME differs between height and width of a %lldx%lld "
                                     "image, wanted a square image",
                                     (long long)h, (long long)w));
    return rows;
}

/* --- layers ----------------------------------------------------------------------------------- */

td_value *td_net_filter(td_net *m, const char *name, int64_t n_in, int64_t n_out, int side,
                        int groups)
{
    const td_param_attr init = filter_init(m, (int64_t)side * side, n_in, n_out, groups);
    return td_net_param(m, name, "weight", 4, (int64_t[]){ n_out, n_in, side, side }, init);
}

td_value *td_net_conv_with(td_net *m, td_value *x, td_value *w, int stride, int groups)
{
    const padding p = padding_of(m, x, (int)w->type.dim[2], stride);
    const td_conv_attr attr = {
        .stride = stride, .pad = p.before, .dilation = 1, .groups = groups, .pad_extra = p.extra
    };
    return td_emit(m->b, &td_op_conv2d, &attr, x, w);
}

td_value *td_net_conv(td_net *m, td_value *x, const char *name, int64_t n_out, int side, int stride,
                      int groups)
{
    /* after a failure x has no channels, and a depthwise layer therefore no groups */
    const int64_t n_in = groups > 0 ? td_net_channels(x) / groups : 0;
    td_value *w = td_net_filter(m, name, n_in, n_out, side, groups);
    return td_net_conv_with(m, x, w, stride, groups);
}

td_value *td_net_patches(td_net *m, td_value *x, const char *name, int64_t n_out, int side)
{
    const td_conv_attr tiles = { .stride = side, .dilation = 1, .groups = 1 };
    td_value *w = td_net_filter(m, name, td_net_channels(x), n_out, side, 1);
    td_value *y = td_emit(m->b, &td_op_conv2d, &tiles, x, w);
    return td_net_bias(m, y, name, td_net_begins(TD_INIT_ZEROS, 1));
}

td_value *td_net_layer_norm(td_net *m, td_value *x, const char *name)
{
    const int64_t n = x->type.rank ? x->type.dim[x->type.rank - 1] : 0; /* 0: after a failure */
    const td_layer_norm_attr attr = { m->eps };
    td_value *gamma = td_net_vector(m, name, "weight", n, td_net_begins(TD_INIT_ONES, 1));
    td_value *beta = td_net_vector(m, name, "bias", n, td_net_begins(TD_INIT_ZEROS, 1));
    return td_emit(m->b, &td_op_layer_norm, &attr, x, gamma, beta);
}

td_value *td_net_norm(td_net *m, td_value *x, const char *name, bool is_branch_end)
{
    const int64_t n = td_net_channels(x);
    const bool zero = is_branch_end && (m->has_zero_ends || m->opts->last_bn_0_init);
    char attrs[96];
    td_value *gamma =
        td_net_vector(m, name, "weight", n, td_net_begins(zero ? TD_INIT_ZEROS : TD_INIT_ONES, 1));
    td_value *beta = td_net_vector(m, name, "bias", n, td_net_begins(TD_INIT_ZEROS, 1));
    td_value *mean = td_net_vector(m, name, "running_mean", n,
                                   (td_param_attr){ .role = TD_ROLE_STAT, .scale = 1 });
    td_value *var =
        td_net_vector(m, name, "running_var", n,
                      (td_param_attr){ .role = TD_ROLE_STAT, .init = TD_INIT_ONES, .scale = 1 });
    const double eps = m->opts->bn_epsilon >= 0 ? m->opts->bn_epsilon : m->eps;
    snprintf(attrs, sizeof attrs, "eps=%.17g", eps);
    if (!m->is_training)
        return td_batch_norm_infer(m->b, x, gamma, beta, mean, var, attrs);
    const double momentum = m->opts->bn_momentum >= 0 ? m->opts->bn_momentum : m->momentum;
    snprintf(attrs, sizeof attrs, "eps=%.17g, momentum=%.17g", eps, momentum);
    return td_batch_norm_train(m->b, x, gamma, beta, mean, var, attrs);
}

td_value *td_net_conv_norm(td_net *m, td_value *x, const char *name, int64_t n_out, int side,
                           int stride, int groups)
{
    char conv[32], norm[32];
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(norm, sizeof norm, "%s.1", name);
    return td_net_norm(m, td_net_conv(m, x, conv, n_out, side, stride, groups), norm, false);
}

td_value *td_net_conv_norm_act(td_net *m, td_value *x, const char *name, int64_t n_out, int side,
                               int stride, int groups)
{
    return td_net_act(m, td_net_conv_norm(m, x, name, n_out, side, stride, groups));
}

/* pixels that the last window lacks, if a window begins inside the image there */
static int missing(int64_t side, int kernel, int stride)
{
    const int64_t rest = side > kernel ? (side - kernel) % stride : 0;
    if (side < kernel)
        return (int)(kernel - side);
    return rest ? (int)(stride - rest) : 0;
}

td_value *td_net_max_pool_up(td_net *m, td_value *x, int kernel, int stride)
{
    const int64_t h = x->type.dim[2], w = x->type.dim[3];
    const td_pool_attr pool = { .kernel = kernel,
                                .stride = stride,
                                .pad_extra = missing(h, kernel, stride) };
    if (pool.pad_extra != missing(w, kernel, stride))
        td_build_fail(m->b, td_error(TD_EUNSUPPORTED,
                                     "the windows of a pool differ between height and width of a "
                                     "%lldx%lld image, wanted a square image",
                                     (long long)h, (long long)w));
    return td_emit(m->b, &td_op_max_pool2d, &pool, x);
}

/* the last row (axis 2) or column (axis 3) twice if their number is odd: a mean does not change */
static td_value *even(td_net *m, td_value *x, int axis)
{
    const td_slice_attr last = {
        .axis = axis, .start = x->type.dim[axis] - 1, .size = 1, .step = 1
    };
    if (x->type.dim[axis] % 2 == 0)
        return x;
    td_value *both[2] = { x, td_emit(m->b, &td_op_slice, &last, x) };
    return td_concat(m->b, 2, both, axis);
}

td_value *td_net_mean_pool_up(td_net *m, td_value *x)
{
    const td_pool_attr mean = { .kernel = 2, .stride = 2, .count_include_pad = true };
    return td_emit(m->b, &td_op_avg_pool2d, &mean, even(m, even(m, x, 2), 3));
}

td_value *td_net_bias(td_net *m, td_value *x, const char *name, td_param_attr begins)
{
    td_value *bias = td_net_vector(m, name, "bias", td_net_channels(x), begins);
    return td_emit(m->b, &td_op_bias_add, NULL, x, bias);
}

td_value *td_net_linear(td_net *m, td_value *x, const char *name, int64_t n_out,
                        td_param_attr weight, td_param_attr bias)
{
    const int64_t dim[2] = { n_out, td_net_channels(x) };
    td_value *w = td_net_param(m, name, "weight", 2, dim, weight);
    return td_linear(m->b, x, w, td_net_vector(m, name, "bias", n_out, bias));
}

td_value *td_net_squeeze_excite(td_net *m, td_value *x, const td_net_gates *g)
{
    const int64_t c = td_net_channels(x), n = g->units;
    const td_param_attr zeros = td_net_begins(TD_INIT_ZEROS, 1);
    td_value *in[5] = { x };
    in[1] = td_net_filter(m, g->squeeze, c, n, 1, 1);
    in[2] = td_net_vector(m, g->squeeze, "bias", n,
                          g->has_zero_biases ? zeros : td_net_uniform(1, c, n, 1));
    in[3] = td_net_filter(m, g->excite, n, c, 1, 1);
    in[4] = td_net_vector(m, g->excite, "bias", c,
                          g->has_zero_biases ? zeros : td_net_uniform(1, n, c, 1));
    return td_emit(m->b, &td_op_squeeze_excite, &g->attr, in[0], in[1], in[2], in[3], in[4]);
}

td_value *td_net_flatten(td_net *m, td_value *x)
{
    int64_t n = 1;
    for (int i = 1; i < x->type.rank; i++)
        n *= x->type.dim[i];
    return td_reshape(m->b, x, 2, (int64_t[]){ x->type.dim[0], n });
}

td_value *td_net_dropout(td_net *m, td_value *x, double p)
{
    const double chosen = m->opts->dropout;
    return td_dropout_emit(m->b, &m->dropout, x, chosen < 0 ? p : chosen, TD_DROPOUT_ELEMENT,
                           m->is_training);
}

td_value *td_net_stochastic_depth(td_net *m, td_value *x, double p, int i, int n,
                                  td_dropout_mode mode)
{
    const double last = m->opts->stochastic_depth < 0 ? p : m->opts->stochastic_depth;
    return td_dropout_emit(m->b, &m->dropout, x, last * i / n, mode, m->is_training);
}

td_value *td_net_act(td_net *m, td_value *x)
{
    return td_emit(m->b, m->activation ? m->activation : &td_op_relu, NULL, x);
}

td_value *td_net_max_pool(td_net *m, td_value *x, int kernel, int stride)
{
    const padding p = padding_of(m, x, kernel, stride);
    const td_pool_attr pool = {
        .kernel = kernel, .stride = stride, .pad = p.before, .pad_extra = p.extra
    };
    return td_emit(m->b, &td_op_max_pool2d, &pool, x);
}

/* --- adaptive pooling ------------------------------------------------------------------------- */

/* the mean of the rows (axis 2) or columns (axis 3) [start, end) of x */
static td_value *mean_of(td_net *m, td_value *x, int axis, int64_t start, int64_t end)
{
    const td_scale_attr mean = { 1 / (double)(end - start) };
    td_slice_attr at = { .axis = axis, .start = start, .size = 1, .step = 1 };
    td_value *sum = td_emit(m->b, &td_op_slice, &at, x);
    for (at.start = start + 1; at.start < end; at.start++)
        sum = td_add(m->b, sum, td_emit(m->b, &td_op_slice, &at, x));
    return end - start > 1 ? td_emit(m->b, &td_op_scale, &mean, sum) : sum;
}

/* window i of n covers [floor(i side / n), ceil((i + 1) side / n)) */
static td_value *pool_axis(td_net *m, td_value *x, int axis, int n)
{
    td_value *part[TD_IN_MAX];
    const int64_t side = x->type.dim[axis];
    if (side == n)
        return x;
    for (int i = 0; i < n; i++)
        part[i] = mean_of(m, x, axis, i * side / n, ((i + 1) * side + n - 1) / n);
    return td_concat(m->b, n, part, axis);
}

td_value *td_net_adaptive_pool(td_net *m, td_value *x, int side)
{
    const int64_t h = x->type.dim[2], w = x->type.dim[3];
    TD_CHECK(side > 0 && side <= TD_IN_MAX);
    const bool is_even = h == w && h > side && h % side == 0 && h / side <= 15;
    if (is_even) {
        const td_pool_attr a = { .kernel = (int)(h / side),
                                 .stride = (int)(h / side),
                                 .count_include_pad = true };
        return td_emit(m->b, &td_op_avg_pool2d, &a, x);
    }
    return pool_axis(m, pool_axis(m, x, 2, side), 3, side);
}
