/*
 * resnet.c -- the one builder behind all rows of arch.c
 *
 *   stem:   7x7/2 convolution, BN, relu, 3x3/2 max-pool
 *   basic:       3x3/s BN relu  3x3 BN                        + shortcut, relu
 *   bottleneck:  1x1 BN relu  3x3/s (groups) BN relu  1x1 BN  [SE]  + shortcut, relu
 *   head:   global average pool, linear with bias
 *
 * v1.5: a bottleneck strides in its 3x3, not in the first 1x1.  The shortcut is the input itself,
 * or a 1x1/s convolution and BN where the shape changes.  Parameters come in the order of PyTorch's
 * state_dict, under torchvision's names (SE: timm's), and say themselves how they begin:
 *
 *   convolution   normal, sqrt(2 / fan)     fan = R S C / groups, or R S K (not divided by groups)
 *   BN            gamma 1 (0 for the last of a branch, on request), beta 0, mean 0, variance 1
 *   fc, SE        weight and bias uniform in +-1 / sqrt(inputs)
 *
 * The TensorFlow variant (td_variant) has padding SAME: together as much as makes ceil(side /
 * stride) windows, the smaller half of it before; and begins with
 *
 *   convolution, fc   truncated normal, sqrt(2 / fan); biases 0
 *   with groups       uniform in +-sqrt(6 / (9 C / groups + 9 C)) (Glorot), whatever the options
 *   SE                truncated normal, sqrt(1 / inputs)
 *
 * Source: He et al. 2016; Xie et al. 2017; Hu et al. 2018; agrees with torchvision 0.29, timm 1.0
 * and NVIDIA's DeepLearningExamples in names, shapes and numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "ops/ops.h"

#define SE_UNITS 16 /* hidden units of the constant form, and the divisor of the ratio form */

typedef struct {
    td_builder *b;
    const td_arch *arch;
    const td_model_opts *opts;
    td_dtype dtype;
    bool is_training;
    char prefix[32]; /* "layer1.0." */
} net;

static int64_t channels_of(const td_value *v)
{
    return v->type.dim[1];
}

/* --- parameters ------------------------------------------------------------------------------- */

static td_value *param(net *m, const char *layer, const char *part, int rank, const int64_t *dim,
                       td_param_attr attr)
{
    char name[96];
    td_type type = td_type_of(m->dtype, rank, dim);
    snprintf(name, sizeof name, "%s%s.%s", m->prefix, layer, part);
    return td_emit_leaf(m->b, &td_op_param, &attr, name, &type);
}

static td_value *vector(net *m, const char *layer, const char *part, int64_t n, td_param_attr attr)
{
    return param(m, layer, part, 1, &n, attr);
}

static bool is_tensorflow(const net *m)
{
    return m->opts->variant == TD_VARIANT_TENSORFLOW;
}

static td_param_attr begins(td_init init, double scale)
{
    return (td_param_attr){ .role = TD_ROLE_WEIGHT, .init = (int)init, .scale = scale };
}

/* the fan that the options ask for */
static double fan_of(const net *m, int64_t n_in, int64_t n_out)
{
    const int fan = m->opts->conv_init;
    return (double)(fan == 1 || (fan != 0 && is_tensorflow(m)) ? n_out : n_in);
}

/* filters of `taps` taps; n_in channels of a group to n_out */
static td_param_attr filter_init(const net *m, int64_t taps, int64_t n_in, int64_t n_out,
                                 int groups)
{
    const double fan = fan_of(m, taps * n_in, taps * n_out);
    if (is_tensorflow(m) && groups > 1)
        return begins(TD_INIT_UNIFORM, sqrt(6 / (double)(taps * n_in + taps * n_out)));
    return begins(is_tensorflow(m) ? TD_INIT_TRUNCATED_NORMAL : TD_INIT_NORMAL,
                  sqrt(2) / sqrt(fan));
}

static td_param_attr fc_init(const net *m, int64_t n_in, int64_t n_out)
{
    return is_tensorflow(m) ? begins(TD_INIT_TRUNCATED_NORMAL, sqrt(2 / fan_of(m, n_in, n_out)))
                            : begins(TD_INIT_UNIFORM, 1 / sqrt((double)n_in));
}

static td_param_attr se_init(const net *m, int64_t n_in)
{
    return begins(is_tensorflow(m) ? TD_INIT_TRUNCATED_NORMAL : TD_INIT_UNIFORM,
                  1 / sqrt((double)n_in));
}

/* of a linear layer with n_in inputs */
static td_param_attr bias_init(const net *m, int64_t n_in)
{
    return is_tensorflow(m) ? begins(TD_INIT_ZEROS, 1)
                            : begins(TD_INIT_UNIFORM, 1 / sqrt((double)n_in));
}

/* --- padding ---------------------------------------------------------------------------------- */

typedef struct {
    int before, extra; /* behind there are before + extra */
} padding;

static padding same_padding(int64_t side, int kernel, int stride)
{
    const int64_t windows = (side + stride - 1) / stride;
    const int64_t wanted = (windows - 1) * stride + kernel - side;
    const int all = wanted > 0 ? (int)wanted : 0; /* below kernel */
    return (padding){ all / 2, all % 2 };
}

static padding padding_of(net *m, const td_value *x, int kernel, int stride)
{
    if (!is_tensorflow(m))
        return (padding){ (kernel - 1) / 2, 0 };
    const int64_t h = x->type.dim[2], w = x->type.dim[3];
    const padding rows = same_padding(h, kernel, stride), columns = same_padding(w, kernel, stride);
    if (rows.before != columns.before || rows.extra != columns.extra)
        td_build_fail(m->b, td_error(TD_EUNSUPPORTED,
                                     "a %lldx%lld picture: padding SAME is not that of the height "
                                     "in the width, wanted a square",
                                     (long long)h, (long long)w));
    return rows;
}

/* --- layers ----------------------------------------------------------------------------------- */

/* `side` x `side` convolution without bias, padded so that stride 1 keeps the picture's size */
static td_value *conv(net *m, td_value *x, const char *name, int64_t n_out, int side, int stride,
                      int groups)
{
    int64_t n_in = channels_of(x) / groups;
    const padding p = padding_of(m, x, side, stride);
    td_param_attr init = filter_init(m, (int64_t)side * side, n_in, n_out, groups);
    td_conv_attr attr = {
        .stride = stride, .pad = p.before, .dilation = 1, .groups = groups, .pad_extra = p.extra
    };
    td_value *w = param(m, name, "weight", 4, (int64_t[]){ n_out, n_in, side, side }, init);
    return td_emit(m->b, &td_op_conv2d, &attr, x, w);
}

static td_value *norm(net *m, td_value *x, const char *name, bool is_branch_end)
{
    int64_t n = channels_of(x);
    bool zero = is_branch_end && m->opts->last_bn_0_init;
    td_value *gamma =
        vector(m, name, "weight", n,
               (td_param_attr){ .init = zero ? TD_INIT_ZEROS : TD_INIT_ONES, .scale = 1 });
    td_value *beta = vector(m, name, "bias", n, (td_param_attr){ .scale = 1 });
    td_value *mean =
        vector(m, name, "running_mean", n, (td_param_attr){ .role = TD_ROLE_STAT, .scale = 1 });
    td_value *var =
        vector(m, name, "running_var", n,
               (td_param_attr){ .role = TD_ROLE_STAT, .init = TD_INIT_ONES, .scale = 1 });
    if (m->is_training)
        return td_batch_norm_train(m->b, x, gamma, beta, mean, var, "eps=1e-05, momentum=0.1");
    return td_batch_norm_infer(m->b, x, gamma, beta, mean, var, "eps=1e-05");
}

static td_value *squeeze_excite(net *m, td_value *x)
{
    int64_t c = channels_of(x);
    bool is_ratio = m->arch->se == TD_SE_RATIO || m->opts->se_form == 1 || is_tensorflow(m);
    int64_t d = is_ratio ? c / SE_UNITS : SE_UNITS;
    td_value *w1 = param(m, "se.fc1", "weight", 4, (int64_t[]){ d, c, 1, 1 }, se_init(m, c));
    td_value *b1 = vector(m, "se.fc1", "bias", d, bias_init(m, c));
    td_value *w2 = param(m, "se.fc2", "weight", 4, (int64_t[]){ c, d, 1, 1 }, se_init(m, d));
    td_value *b2 = vector(m, "se.fc2", "bias", c, bias_init(m, d));
    return td_squeeze_excite(m->b, x, w1, b1, w2, b2);
}

/* --- blocks ----------------------------------------------------------------------------------- */

static td_value *basic_branch(net *m, td_value *x, int width, int stride)
{
    td_value *y = td_relu(m->b, norm(m, conv(m, x, "conv1", width, 3, stride, 1), "bn1", false));
    return norm(m, conv(m, y, "conv2", width, 3, 1, 1), "bn2", true);
}

static td_value *bottleneck_branch(net *m, td_value *x, int width, int stride)
{
    const td_arch *a = m->arch;
    int64_t n_out = (int64_t)width * a->expansion;
    td_value *y = td_relu(m->b, norm(m, conv(m, x, "conv1", width, 1, 1, 1), "bn1", false));
    y = td_relu(m->b, norm(m, conv(m, y, "conv2", width, 3, stride, a->groups), "bn2", false));
    y = norm(m, conv(m, y, "conv3", n_out, 1, 1, 1), "bn3", true);
    return a->se == TD_SE_NONE ? y : squeeze_excite(m, y);
}

static td_value *block(net *m, td_value *x, int width, int stride)
{
    int64_t n_out = (int64_t)width * m->arch->expansion;
    td_value *y = m->arch->is_bottleneck ? bottleneck_branch(m, x, width, stride)
                                         : basic_branch(m, x, width, stride);
    if (stride != 1 || channels_of(x) != n_out)
        x = norm(m, conv(m, x, "downsample.0", n_out, 1, stride, 1), "downsample.1", false);
    return td_relu(m->b, td_add(m->b, y, x));
}

static td_value *stage(net *m, td_value *x, int i)
{
    for (int k = 0; k < m->arch->layers[i]; k++) {
        snprintf(m->prefix, sizeof m->prefix, "layer%d.%d.", i + 1, k);
        x = block(m, x, m->arch->widths[i], i > 0 && k == 0 ? 2 : 1);
    }
    m->prefix[0] = '\0';
    return x;
}

static td_value *head(net *m, td_value *x)
{
    int64_t c = channels_of(x), k = m->opts->num_classes;
    td_value *w = param(m, "fc", "weight", 2, (int64_t[]){ k, c }, fc_init(m, c, k));
    td_value *bias = vector(m, "fc", "bias", k, bias_init(m, c));
    return td_linear(m->b, td_global_avg_pool(m->b, x), w, bias);
}

static td_value *stem(net *m, td_value *images)
{
    td_value *x = conv(m, images, "conv1", 64, 7, 2, 1);
    x = td_relu(m->b, norm(m, x, "bn1", false));
    const padding p = padding_of(m, x, 3, 2);
    td_pool_attr pool = { .kernel = 3, .stride = 2, .pad = p.before, .pad_extra = p.extra };
    return td_emit(m->b, &td_op_max_pool2d, &pool, x);
}

td_value *td_resnet(td_builder *b, const td_arch *arch, const td_model_opts *opts, td_value *images,
                    bool is_training, bool features)
{
    net m = { .b = b, .arch = arch, .opts = opts, .is_training = is_training };
    m.dtype = opts->dtype ? opts->dtype : TD_DT_F32;

    td_value *x = stem(&m, images);
    for (int i = 0; i < 4; i++) {
        x = stage(&m, x, i);
        char name[] = "layer0";
        name[5] = (char)('1' + i);
        if (features)
            td_output(b, name, x);
    }
    return head(&m, x);
}
