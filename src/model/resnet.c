/*
 * resnet.c -- builds all classifiers of arch.c
 *
 *   stem:   7x7/2 convolution, BN, relu, 3x3/2 max-pool
 *   basic:       3x3/s BN relu  3x3 BN                        + shortcut, relu
 *   bottleneck:  1x1 BN relu  3x3/s (groups) BN relu  1x1 BN  [SE]  + shortcut, relu
 *   head:   global average pool, linear with bias
 *
 * v1.5: a bottleneck has its stride in the 3x3, not in the first 1x1.  The shortcut is the input
 * itself, or a 1x1/s convolution and BN if the shape changes.  Stem and stages are the detectors'
 * backbones too (layers.h), whose inner activations may be relu6.
 *
 *   fc, SE   weight and bias uniform in +-1 / sqrt(inputs)
 *
 * and in the TensorFlow variant, with padding SAME (layers.c),
 *
 *   fc       truncated normal, sqrt(2 / fan); biases 0
 *   SE       truncated normal, sqrt(1 / inputs); biases 0
 *
 * Source: He et al. 2016; Xie et al. 2017; Hu et al. 2018; agrees with torchvision 0.29, timm 1.0
 * and NVIDIA's DeepLearningExamples in names, shapes and numbers.
 */
#include <math.h>

#include "model/layers.h"

#define SE_UNITS 16 /* hidden units of the constant form, and the divisor of the ratio form */

static bool is_tensorflow(const td_net *m)
{
    return m->opts->variant == TD_VARIANT_TENSORFLOW;
}

static td_param_attr fc_init(const td_net *m, int64_t n_in, int64_t n_out)
{
    return is_tensorflow(m)
               ? td_net_begins(TD_INIT_TRUNCATED_NORMAL, sqrt(2 / td_net_fan(m, n_in, n_out)))
               : td_net_begins(TD_INIT_UNIFORM, 1 / sqrt((double)n_in));
}

static td_param_attr se_init(const td_net *m, int64_t n_in)
{
    return td_net_begins(is_tensorflow(m) ? TD_INIT_TRUNCATED_NORMAL : TD_INIT_UNIFORM,
                         1 / sqrt((double)n_in));
}

/* initial bias of a linear layer with n_in inputs */
static td_param_attr bias_init(const td_net *m, int64_t n_in)
{
    return is_tensorflow(m) ? td_net_begins(TD_INIT_ZEROS, 1)
                            : td_net_begins(TD_INIT_UNIFORM, 1 / sqrt((double)n_in));
}

static td_value *squeeze_excite(td_net *m, td_value *x)
{
    int64_t c = td_net_channels(x);
    bool is_ratio =
        m->arch->se == TD_SE_RATIO || m->opts->se_form == TD_SE_FORM_RATIO || is_tensorflow(m);
    int64_t d = is_ratio ? c / SE_UNITS : SE_UNITS;
    td_value *w1 = td_net_param(m, "se.fc1", "weight", 4, (int64_t[]){ d, c, 1, 1 }, se_init(m, c));
    td_value *b1 = td_net_vector(m, "se.fc1", "bias", d, bias_init(m, c));
    td_value *w2 = td_net_param(m, "se.fc2", "weight", 4, (int64_t[]){ c, d, 1, 1 }, se_init(m, d));
    td_value *b2 = td_net_vector(m, "se.fc2", "bias", c, bias_init(m, d));
    return td_squeeze_excite(m->b, x, w1, b1, w2, b2);
}

/* --- blocks ----------------------------------------------------------------------------------- */

static td_value *basic_branch(td_net *m, td_value *x, int width, int stride)
{
    td_value *y = td_net_act(
        m, td_net_norm(m, td_net_conv(m, x, "conv1", width, 3, stride, 1), "bn1", false));
    return td_net_norm(m, td_net_conv(m, y, "conv2", width, 3, 1, 1), "bn2", true);
}

static td_value *bottleneck_branch(td_net *m, td_value *x, int width, int stride)
{
    const td_arch *a = m->arch;
    int64_t n_out = (int64_t)width * a->expansion;
    td_value *y =
        td_net_act(m, td_net_norm(m, td_net_conv(m, x, "conv1", width, 1, 1, 1), "bn1", false));
    y = td_net_act(
        m, td_net_norm(m, td_net_conv(m, y, "conv2", width, 3, stride, a->groups), "bn2", false));
    y = td_net_norm(m, td_net_conv(m, y, "conv3", n_out, 1, 1, 1), "bn3", true);
    return a->se == TD_SE_NONE ? y : squeeze_excite(m, y);
}

static td_value *block(td_net *m, td_value *x, int width, int stride)
{
    int64_t n_out = (int64_t)width * m->arch->expansion;
    td_value *y = m->arch->is_bottleneck ? bottleneck_branch(m, x, width, stride)
                                         : basic_branch(m, x, width, stride);
    if (stride != 1 || td_net_channels(x) != n_out)
        x = td_net_norm(m, td_net_conv(m, x, "downsample.0", n_out, 1, stride, 1), "downsample.1",
                        false);
    return td_relu(m->b, td_add(m->b, y, x));
}

td_value *td_net_stage(td_net *m, td_value *x, int i, int stride)
{
    for (int k = 0; k < m->arch->layers[i]; k++) {
        td_net_prefix(m, "%s%d.%d.", m->stage, m->first_stage + i, k);
        x = block(m, x, m->arch->widths[i], k == 0 ? stride : 1);
    }
    td_net_prefix(m, "%s", "");
    return x;
}

td_value *td_net_stem_conv(td_net *m, td_value *images)
{
    td_net_prefix(m, "%s", "");
    td_value *x = td_net_conv(m, images, m->stem_conv, 64, 7, 2, 1);
    return td_net_act(m, td_net_norm(m, x, m->stem_norm, false));
}

/* --- classifiers ------------------------------------------------------------------------------ */

static td_value *head(td_net *m, td_value *x)
{
    int64_t c = td_net_channels(x), k = m->opts->num_classes;
    td_value *w = td_net_param(m, "fc", "weight", 2, (int64_t[]){ k, c }, fc_init(m, c, k));
    td_value *bias = td_net_vector(m, "fc", "bias", k, bias_init(m, c));
    return td_linear(m->b, td_global_avg_pool(m->b, x), w, bias);
}

td_value *td_resnet(td_builder *b, const td_arch *arch, const td_model_opts *opts, td_value *images,
                    bool is_training, bool features)
{
    td_net m = td_net_begin(b, arch, opts, is_training);
    td_value *x = td_net_max_pool(&m, td_net_stem_conv(&m, images), 3, 2);
    for (int i = 0; i < 4; i++) {
        x = td_net_stage(&m, x, i, i > 0 ? 2 : 1);
        char name[] = "layer0";
        name[5] = (char)('1' + i);
        if (features)
            td_output(b, name, x);
    }
    return head(&m, x);
}
