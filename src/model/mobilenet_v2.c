/*
 * mobilenet_v2.c -- MobileNetV2: a table, and its builder
 *
 *   stem     3x3/2 convolution with 32 channels, BN, relu6
 *   block    1x1 BN relu6  3x3/s depthwise BN relu6  1x1 BN; plus its input where the shape is kept
 *   head     1x1 BN relu6, mean over the map, dropout (0.2), linear with bias
 *
 * Blocks whose expansion is 1 have no first convolution.
 *
 *   convolution   normal, sqrt(2 / fan out), not divided by groups
 *   linear        normal, 0.01; bias 0
 *
 * Source: Sandler et al. 2018 (table 2); agrees with torchvision 0.29.
 */
#include "model/layers.h"

#define STAGES 7
#define STEM   32

typedef struct {
    int expansion, width, depth, stride;
} stage;

typedef struct {
    stage stages[STAGES];
    int last; /* channels before the linear layer */
} numbers;

/* clang-format off */
static const td_arch rows[] = {
    { "mobilenet_v2", &td_family_mobilenet_v2, 224, &(const numbers){ {
        { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6,  32, 3, 2 }, { 6, 64, 4, 2 },
        { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 },
    }, 1280 }, 0, 0 },
};
/* clang-format on */

/* the i-th module of `features` */
static td_value *block(td_net *m, td_value *x, int i, const stage *s, int stride)
{
    const int n_in = (int)td_net_channels(x), hidden = n_in * s->expansion;
    td_value *y = x;
    td_net_prefix(m, "features.%d.conv.", i);
    if (s->expansion > 1)
        y = td_net_conv_norm_act(m, y, "0", hidden, 1, 1, 1);
    y = td_net_conv_norm_act(m, y, s->expansion > 1 ? "1" : "0", hidden, 3, stride, hidden);
    y = td_net_conv(m, y, s->expansion > 1 ? "2" : "1", s->width, 1, 1, 1);
    y = td_net_norm(m, y, s->expansion > 1 ? "3" : "2", false);
    return stride == 1 && n_in == s->width ? td_add(m->b, x, y) : y;
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    int i = 1;
    m->begin_filters = td_net_normal_fan_out;
    m->activation = &td_op_relu6;
    td_net_prefix(m, "features.");
    td_value *x = td_net_conv_norm_act(m, images, "0", STEM, 3, 2, 1);
    for (const stage *s = net->stages; s < net->stages + STAGES; s++)
        for (int k = 0; k < s->depth; k++)
            x = block(m, x, i++, s, k == 0 ? s->stride : 1);
    td_net_prefix(m, "features.%d.", i);
    x = td_net_act(m, td_net_norm(m, td_net_conv(m, x, "0", net->last, 1, 1, 1), "1", false));
    td_net_prefix(m, "classifier.");
    x = td_net_dropout(m, td_global_avg_pool(m->b, x), 0.2);
    return td_net_linear(m, x, "1", m->opts->num_classes, td_net_begins(TD_INIT_NORMAL, 0.01),
                         td_net_begins(TD_INIT_ZEROS, 1));
}

const td_family td_family_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.1",
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth",
};
