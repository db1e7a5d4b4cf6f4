/*
 * densenet.c -- densely connected networks: a table, and their builder
 *
 *   stem         7x7/2 convolution, BN, relu, 3x3/2 max-pool
 *   dense layer  BN relu 1x1 (4 * growth)  BN relu 3x3 (growth), joined to all that was before
 *   transition   BN relu 1x1 to half of the channels, 2x2/2 mean
 *   head         BN relu, mean over the map, linear with bias
 *
 *   convolution  normal, sqrt(2 / fan in)
 *   linear       weight uniform in +-1 / sqrt(inputs), bias 0
 *
 * Source: Huang et al. 2017 (DenseNet-BC); agrees with torchvision 0.29.
 */
#include <stdio.h>

#include "model/layers.h"

#define BLOCKS     4
#define BOTTLENECK 4 /* channels between the two convolutions of a layer, in growths */

typedef struct {
    int layers[BLOCKS];
    int growth; /* channels that a layer adds */
    int stem;   /* channels of the first convolution */
} numbers;

/* clang-format off */
#define ROW(name, ...) { name, &td_family_densenet, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("densenet121", { 6, 12, 24, 16 }, 32, 64),
    ROW("densenet169", { 6, 12, 32, 32 }, 32, 64),
    ROW("densenet201", { 6, 12, 48, 32 }, 32, 64),
};
/* clang-format on */

static td_value *norm_act(td_net *m, td_value *x, const char *name)
{
    return td_net_act(m, td_net_norm(m, x, name, false));
}

static td_value *dense_layer(td_net *m, td_value *x, int growth)
{
    td_value *both[2] = { x, NULL };
    td_value *y = td_net_conv(m, norm_act(m, x, "norm1"), "conv1", BOTTLENECK * growth, 1, 1, 1);
    both[1] = td_net_conv(m, norm_act(m, y, "norm2"), "conv2", growth, 3, 1, 1);
    return td_concat(m->b, 2, both, 1);
}

static td_value *transition(td_net *m, td_value *x)
{
    const td_pool_attr mean = { .kernel = 2, .stride = 2, .count_include_pad = true };
    x = td_net_conv(m, norm_act(m, x, "norm"), "conv", td_net_channels(x) / 2, 1, 1, 1);
    return td_emit(m->b, &td_op_avg_pool2d, &mean, x);
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    m->begin_filters = td_net_normal_fan_in;
    td_net_prefix(m, "features.");
    td_value *x = norm_act(m, td_net_conv(m, images, "conv0", net->stem, 7, 2, 1), "norm0");
    x = td_net_max_pool(m, x, 3, 2);
    for (int i = 0; i < BLOCKS; i++) {
        for (int k = 0; k < net->layers[i]; k++) {
            td_net_prefix(m, "features.denseblock%d.denselayer%d.", i + 1, k + 1);
            x = dense_layer(m, x, net->growth);
        }
        td_net_prefix(m, "features.transition%d.", i + 1);
        if (i + 1 < BLOCKS)
            x = transition(m, x);
    }
    td_net_prefix(m, "features.");
    x = td_global_avg_pool(m->b, norm_act(m, x, "norm5"));
    td_net_prefix(m, "%s", "");
    return td_net_linear(m, x, "classifier", m->opts->num_classes,
                         td_net_uniform(1, td_net_channels(x), 0, 1),
                         td_net_begins(TD_INIT_ZEROS, 1));
}

const td_family td_family_densenet = {
    .name = "densenet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier",
    .side_min = 29, /* smaller images have no pixel left for the third transition */
    .lacks = TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT,
};
