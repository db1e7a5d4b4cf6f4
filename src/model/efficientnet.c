/*
 * efficientnet.c -- EfficientNet: tables, and their builder
 *
 *   stem     3x3/2 convolution, BN, silu
 *   block    1x1 BN silu  kxk/s depthwise BN silu  SE  1x1 BN; where the shape is kept, stochastic
 *            depth and plus its input
 *   head     1x1 BN silu with 4 times the channels, mean over the map, dropout, linear with bias
 *
 * Blocks whose expansion is 1 have no first convolution.  Networks are wider and deeper versions of
 * one: channels are multiplied and rounded to a multiple of 8 (not below nine tenths), numbers of
 * blocks rounded up.  There are two editions, with parameters under their own names:
 *
 *                     efficientnet_b0 .. b4 (torchvision)     efficientnet-b0, b4 (NVIDIA)
 *   norms             epsilon 1e-5, momentum 0.1              epsilon 0.001, momentum 0.01
 *   stochastic depth  by sample, 0.2 at the end               by batch, 0 (b0) or 0.2 (b4)
 *   convolution       normal, sqrt(2 / fan out)               normal, sqrt(2 / fan in), or fan out
 *   SE                the same, biases 0                      uniform, 1 / sqrt(inputs)
 *   linear            uniform, 1 / sqrt(classes); bias 0      uniform, 1 / sqrt(inputs)
 *
 * SE has a quarter of the units of the block's input; of NVIDIA's efficientnet-widese-b0 and b4 a
 * quarter of the depthwise channels.  Block i of n is left out with the fraction i / n of the last
 * one's probability.
 *
 * Source: Tan and Le 2019; agrees with torchvision 0.29 and NVIDIA's DeepLearningExamples.
 */
#include <math.h>
#include <stdio.h>

#include "model/layers.h"

#define STAGES    7
#define STEM      32
#define EXPANSION 6 /* of all but the first stage */

typedef struct {
    double width, depth; /* factors */
    double dropout, stochastic_depth;
    bool has_wide_se;
} numbers;

/* clang-format off */
#define ROW(name, family, size, ...) \
    { name, &td_family_##family, size, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("efficientnet_b0", efficientnet, 224, 1.0, 1.0, 0.2, 0.2, false),
    ROW("efficientnet_b1", efficientnet, 240, 1.0, 1.1, 0.2, 0.2, false),
    ROW("efficientnet_b2", efficientnet, 260, 1.1, 1.2, 0.3, 0.2, false),
    ROW("efficientnet_b3", efficientnet, 300, 1.2, 1.4, 0.3, 0.2, false),
    ROW("efficientnet_b4", efficientnet, 380, 1.4, 1.8, 0.4, 0.2, false),
};

static const td_arch nvidia_rows[] = {
    ROW("efficientnet-b0",        efficientnet_nvidia, 224, 1.0, 1.0, 0.2, 0.0, false),
    ROW("efficientnet-b4",        efficientnet_nvidia, 380, 1.4, 1.8, 0.4, 0.2, false),
    ROW("efficientnet-widese-b0", efficientnet_nvidia, 224, 1.0, 1.0, 0.2, 0.0, true),
    ROW("efficientnet-widese-b4", efficientnet_nvidia, 380, 1.4, 1.8, 0.4, 0.2, true),
};
/* clang-format on */

static const int sides[STAGES] = { 3, 3, 5, 3, 5, 5, 3 };
static const int strides[STAGES] = { 1, 2, 2, 2, 1, 2, 1 };
static const int depths[STAGES] = { 1, 2, 2, 3, 3, 4, 1 };
static const int widths[STAGES] = { 16, 24, 40, 80, 112, 192, 320 };

/* a block: `index` of all `n_blocks` */
typedef struct {
    int expansion, side, stride, width;
    int index, n_blocks;
} shape;

static bool is_nvidia(const td_net *m)
{
    return m->arch->family == &td_family_efficientnet_nvidia;
}

static int scaled_width(const numbers *net, int width)
{
    const double wanted = width * net->width;
    const int near = (int)(wanted + 4) / 8 * 8;
    return near < 0.9 * wanted ? near + 8 : near;
}

static int scaled_depth(const numbers *net, int stage)
{
    return (int)ceil(depths[stage] * net->depth);
}

/* --- names ------------------------------------------------------------------------------------ */

/* the i-th module of torchvision's block, "block.1", or NVIDIA's name */
static const char *module(const td_net *m, char room[24], int i, const char *part,
                          const char *nvidia)
{
    if (is_nvidia(m))
        snprintf(room, 24, "%s", nvidia);
    else
        snprintf(room, 24, "block.%d%s", i, part);
    return room;
}

/* convolution and norm: "name.0" and "name.1", or "name.conv" and "name.bn" */
static td_value *conv_norm(td_net *m, td_value *x, const char *name, int n_out, int side,
                           int stride, int groups)
{
    char conv[32], norm[32];
    if (!is_nvidia(m))
        return td_net_conv_norm(m, x, name, n_out, side, stride, groups);
    snprintf(conv, sizeof conv, "%s.conv", name);
    snprintf(norm, sizeof norm, "%s.bn", name);
    return td_net_norm(m, td_net_conv(m, x, conv, n_out, side, stride, groups), norm, false);
}

static void begin_block(td_net *m, int stage, int k)
{
    if (is_nvidia(m))
        td_net_prefix(m, "layers.%d.block%d.", stage, k);
    else
        td_net_prefix(m, "features.%d.%d.", stage + 1, k);
}

/* --- layers ----------------------------------------------------------------------------------- */

static td_value *gated(td_net *m, td_value *x, int i, int64_t n_in)
{
    char squeeze[24], excite[24];
    const numbers *net = m->arch->numbers;
    const int64_t base = net->has_wide_se ? td_net_channels(x) : n_in;
    const td_net_gates se = { .squeeze = module(m, squeeze, i, ".fc1", "se.squeeze"),
                              .excite = module(m, excite, i, ".fc2", "se.expand"),
                              .units = base / 4,
                              .attr = { .hidden = TD_SE_SILU, .gate = TD_SE_SIGMOID },
                              .has_zero_biases = !is_nvidia(m) };
    const td_net_begin_filters convs = m->begin_filters;
    if (is_nvidia(m))
        m->begin_filters = td_net_uniform;
    x = td_net_squeeze_excite(m, x, &se);
    m->begin_filters = convs;
    return x;
}

static td_value *block(td_net *m, td_value *x, const shape *s)
{
    const numbers *net = m->arch->numbers;
    const int64_t n_in = td_net_channels(x);
    const int hidden = (int)n_in * s->expansion;
    char room[24];
    td_value *y = x;
    int i = 0;
    if (s->expansion > 1)
        y = td_net_act(m, conv_norm(m, y, module(m, room, i++, "", "expand"), hidden, 1, 1, 1));
    y = conv_norm(m, y, module(m, room, i++, "", "depsep"), hidden, s->side, s->stride, hidden);
    y = gated(m, td_net_act(m, y), i++, n_in);
    y = conv_norm(m, y, module(m, room, i, "", "proj"), s->width, 1, 1, 1);
    if (s->stride != 1 || n_in != s->width)
        return y;
    y = td_net_stochastic_depth(m, y, net->stochastic_depth, s->index, s->n_blocks,
                                is_nvidia(m) ? TD_DROPOUT_BATCH : TD_DROPOUT_ROW);
    return td_add(m->b, y, x);
}

static td_value *head(td_net *m, td_value *x)
{
    const numbers *net = m->arch->numbers;
    const int64_t classes = m->opts->num_classes;
    td_net_prefix(m, "%s", is_nvidia(m) ? "" : "features.");
    x = conv_norm(m, x, is_nvidia(m) ? "features" : "8", 4 * (int)td_net_channels(x), 1, 1, 1);
    x = td_net_dropout(m, td_global_avg_pool(m->b, td_net_act(m, x)), net->dropout);
    td_net_prefix(m, "classifier.");
    const td_param_attr inputs = td_net_uniform(1, td_net_channels(x), classes, 1);
    if (is_nvidia(m))
        return td_net_linear(m, x, "fc", classes, inputs, inputs);
    return td_net_linear(m, x, "1", classes,
                         td_net_begins(TD_INIT_UNIFORM, 1 / sqrt((double)classes)),
                         td_net_begins(TD_INIT_ZEROS, 1));
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    const bool is_fan_in = is_nvidia(m) && m->opts->conv_init != TD_CONV_INIT_FAN_OUT;
    shape s = { 0 };
    m->begin_filters = is_fan_in ? td_net_normal_fan_in : td_net_normal_fan_out;
    m->activation = &td_op_silu;
    if (is_nvidia(m))
        m->eps = 0.001, m->momentum = 0.01;
    for (int i = 0; i < STAGES; i++)
        s.n_blocks += scaled_depth(net, i);
    td_net_prefix(m, "%s", is_nvidia(m) ? "" : "features.");
    const char *stem = is_nvidia(m) ? "stem" : "0";
    td_value *x = td_net_act(m, conv_norm(m, images, stem, scaled_width(net, STEM), 3, 2, 1));
    for (int i = 0; i < STAGES; i++)
        for (int k = 0; k < scaled_depth(net, i); k++, s.index++) {
            s.expansion = i == 0 ? 1 : EXPANSION;
            s.side = sides[i];
            s.stride = k == 0 ? strides[i] : 1;
            s.width = scaled_width(net, widths[i]);
            begin_block(m, i, k);
            x = block(m, x, &s);
        }
    return head(m, x);
}

const td_family td_family_efficientnet = {
    .name = "efficientnet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.1",
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_RESIDUAL,
};

const td_family td_family_efficientnet_nvidia = {
    .name = "efficientnet_nvidia",
    .rows = nvidia_rows,
    .n_rows = sizeof nvidia_rows / sizeof *nvidia_rows,
    .build = build,
    .head = "classifier.fc",
    .side_min = 8,
    .lacks = "variant,se_form,last_bn_0_init",
};
