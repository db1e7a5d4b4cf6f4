/*
 * resnet.c -- residual networks: a table, and their builder
 *
 * To add one, add a row here; nothing else is needed (docs/howto-model.md).
 *
 *   stem:   7x7/2 convolution, BN, relu, 3x3/2 max-pool
 *   basic:       3x3/s BN relu  3x3 BN                        + shortcut, relu
 *   bottleneck:  1x1 BN relu  3x3/s (groups) BN relu  1x1 BN  [SE]  + shortcut, relu
 *   head:   global average pool, linear with bias
 *
 * v1.5: a bottleneck has its stride in the 3x3, not in the first 1x1.  The shortcut is the input
 * itself, or a 1x1/s convolution and BN if the shape changes.  Stem and stages are the detectors'
 * backbones too, whose inner activations may be relu6.
 *
 * ResNet-D (He et al. 2019): a stem of three 3x3 convolutions; a shortcut has a 2x2/2 mean before
 * its 1x1 convolution.  timm's initial values: normal, sqrt(2 / fan out); gamma 0 at the end of
 * every branch, whatever the options.
 *
 * --stochastic-depth drops branches of samples before the sum, as timm's drop_path: none of the
 * first block, of the others in proportion to their number.
 *
 *   fc, SE   weight and bias uniform in +-1 / sqrt(inputs)
 *
 * and in the TensorFlow variant, with padding SAME (layers.c),
 *
 *   fc       truncated normal, sqrt(2 / fan); biases 0
 *   SE       truncated normal, sqrt(1 / inputs); biases 0
 *
 * The numbers are those of He et al. 2016 (table 1), Xie et al. 2017 (32x4d), torchvision (wide:
 * 3x3 convolutions with twice the channels; Zagoruyko and Komodakis 2016) and Hu et al. 2018;
 * timm's seresnet50 and seresnext101_32x4d have channels / 16 hidden units.  Names, shapes and
 * results agree with torchvision 0.29, timm 1.0 and NVIDIA's DeepLearningExamples.
 */
#include "model/resnet.h"

#include <math.h>
#include <string.h>

#define SE_UNITS 16 /* hidden units of the constant form, and the divisor of the ratio form */

/* clang-format off */
#define BASIC      false
#define BOTTLENECK true
#define RESNET     { 64, 128, 256, 512 }
#define WIDE       { 128, 256, 512, 1024 }
#define NONE       TD_SE_NONE
#define CHOSEN     TD_SE_CHOSEN
#define RATIO      TD_SE_RATIO

const td_resnet td_resnet50 = { BOTTLENECK, { 3, 4, 6, 3 }, RESNET, 4, 1, NONE, false };

#define ROW(name, ...) { name, &td_family_resnet, 224, &(const td_resnet){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    /*  name                   block       layers           widths  expansion, groups, SE, D */
    ROW("resnet18",            BASIC,      { 2, 2,  2, 2 }, RESNET, 1,  1, NONE, false),
    ROW("resnet34",            BASIC,      { 3, 4,  6, 3 }, RESNET, 1,  1, NONE, false),
    ROW("resnet50",            BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, NONE, false),
    ROW("resnet101",           BOTTLENECK, { 3, 4, 23, 3 }, RESNET, 4,  1, NONE, false),
    ROW("resnet152",           BOTTLENECK, { 3, 8, 36, 3 }, RESNET, 4,  1, NONE, false),
    ROW("resnext50-32x4d",     BOTTLENECK, { 3, 4,  6, 3 }, WIDE,   2, 32, NONE, false),
    ROW("resnext101-32x4d",    BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, NONE, false),
    ROW("wide_resnet50_2",     BOTTLENECK, { 3, 4,  6, 3 }, WIDE,   2,  1, NONE, false),
    ROW("se-resnet50",         BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, CHOSEN, false),
    ROW("se-resnext101-32x4d", BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, CHOSEN, false),
    ROW("seresnet50",          BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, RATIO, false),
    ROW("seresnext101_32x4d",  BOTTLENECK, { 3, 4, 23, 3 }, WIDE,   2, 32, RATIO, false),
    ROW("resnet50d",           BOTTLENECK, { 3, 4,  6, 3 }, RESNET, 4,  1, NONE, true),
};
/* clang-format on */

const td_resnet *td_resnet_of(const td_arch *arch)
{
    return arch->family == &td_family_resnet ? arch->numbers : NULL;
}

void td_resnet_describe(const td_arch *arch, td_arch_info *out)
{
    const td_resnet *r = arch->numbers;
    out->block = r->is_bottleneck ? "bottleneck" : "basic";
    out->expansion = r->expansion;
    out->groups = r->groups;
    out->has_se = r->se != TD_SE_NONE;
    memcpy(out->layers, r->layers, sizeof out->layers);
    memcpy(out->widths, r->widths, sizeof out->widths);
}

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
    const td_resnet *r = m->arch->numbers;
    bool is_ratio =
        r->se == TD_SE_RATIO || m->opts->se_form == TD_SE_FORM_RATIO || is_tensorflow(m);
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
    const td_resnet *a = m->arch->numbers;
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
    const td_resnet *r = m->arch->numbers;
    int64_t n_out = (int64_t)width * r->expansion;
    td_value *y = r->is_bottleneck ? bottleneck_branch(m, x, width, stride)
                                   : basic_branch(m, x, width, stride);
    if (r->is_deep && (stride != 1 || td_net_channels(x) != n_out)) {
        x = stride == 1 ? x : td_net_mean_pool_up(m, x);
        x = td_net_norm(m, td_net_conv(m, x, "downsample.1", n_out, 1, 1, 1), "downsample.2",
                        false);
    } else if (stride != 1 || td_net_channels(x) != n_out)
        x = td_net_norm(m, td_net_conv(m, x, "downsample.0", n_out, 1, stride, 1), "downsample.1",
                        false);
    if (m->n_blocks > 1)
        y = td_net_stochastic_depth(m, y, 0, m->block++, m->n_blocks - 1, TD_DROPOUT_ROW);
    return td_relu(m->b, td_add(m->b, y, x));
}

td_value *td_resnet_stage(td_net *m, td_value *x, int i, int stride)
{
    const td_resnet *r = m->arch->numbers;
    for (int k = 0; k < r->layers[i]; k++) {
        td_net_prefix(m, "%s%d.%d.", m->stage, m->first_stage + i, k);
        x = block(m, x, r->widths[i], k == 0 ? stride : 1);
    }
    td_net_prefix(m, "%s", "");
    return x;
}

td_value *td_resnet_stem_conv(td_net *m, td_value *images)
{
    td_net_prefix(m, "%s", "");
    td_value *x = td_net_conv(m, images, m->stem_conv, 64, 7, 2, 1);
    return td_net_act(m, td_net_norm(m, x, m->stem_norm, false));
}

/* 3x3/2, 3x3, 3x3 convolutions, norm and activation after each; names of a torch.nn.Sequential */
static td_value *deep_stem(td_net *m, td_value *images)
{
    td_net_prefix(m, "%s", "");
    td_value *x = td_net_conv(m, images, "conv1.0", 32, 3, 2, 1);
    x = td_net_act(m, td_net_norm(m, x, "conv1.1", false));
    x = td_net_conv(m, x, "conv1.3", 32, 3, 1, 1);
    x = td_net_act(m, td_net_norm(m, x, "conv1.4", false));
    x = td_net_conv(m, x, "conv1.6", 64, 3, 1, 1);
    return td_net_act(m, td_net_norm(m, x, "bn1", false));
}

/* --- classifiers ------------------------------------------------------------------------------ */

static td_value *head(td_net *m, td_value *x)
{
    int64_t c = td_net_channels(x), k = m->opts->num_classes;
    td_value *w = td_net_param(m, "fc", "weight", 2, (int64_t[]){ k, c }, fc_init(m, c, k));
    td_value *bias = td_net_vector(m, "fc", "bias", k, bias_init(m, c));
    return td_linear(m->b, td_global_avg_pool(m->b, x), w, bias);
}

static td_value *build(td_net *m, td_value *images)
{
    const td_resnet *r = m->arch->numbers;
    if (r->is_deep && m->opts->conv_init == TD_CONV_INIT_AUTO && !is_tensorflow(m))
        m->begin_filters = td_net_normal_fan_out; /* timm's */
    m->has_zero_ends = r->is_deep;
    for (int i = 0; i < 4; i++)
        m->n_blocks += r->layers[i];
    td_value *x = r->is_deep ? deep_stem(m, images) : td_resnet_stem_conv(m, images);
    x = td_net_max_pool(m, x, 3, 2);
    for (int i = 0; i < 4; i++) {
        x = td_resnet_stage(m, x, i, i > 0 ? 2 : 1);
        char name[] = "layer0";
        name[5] = (char)('1' + i);
        if (m->has_features)
            td_output(m->b, name, x);
    }
    return head(m, x);
}

const td_family td_family_resnet = {
    .name = "resnet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .describe = td_resnet_describe,
    .head = "fc",
    .side_min = 8, /* smaller images are one pixel after the stem */
    .has_stages = true,
    .lacks = "dropout",
};
