/*
 * regnet.c -- RegNetY: a table, and their builder
 *
 *   stem    3x3/2 convolution with 32 channels, BN, relu
 *   block   1x1 BN relu  3x3/s (groups) BN relu  SE  1x1 BN  + shortcut, relu; all of one width
 *   head    mean over the map, linear with bias
 *
 * The first block of a stage has stride 2, and a shortcut of a 1x1/2 convolution and BN.
 * Squeeze-and-excitation has a quarter of the channels that enter the block.
 *
 *   convolution   normal, sqrt(2 / fan out), not divided by groups; biases of SE uniform in
 *                 +-1 / sqrt(inputs)
 *   linear        normal, 0.01; bias 0
 *
 * Source: Radosavovic et al. 2020; widths and depths are those that its rule of quantization gives;
 * agrees with torchvision 0.29.
 */
#include "model/layers.h"

#define STAGES 4
#define STEM   32

typedef struct {
    int depths[STAGES], widths[STAGES];
    int group; /* channels of a group */
} numbers;

/* clang-format off */
#define ROW(name, ...) { name, &td_family_regnet, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("regnet_y_400mf", { 1, 3,  6, 6 }, {  48, 104, 208,  440 },  8),
    ROW("regnet_y_8gf",   { 2, 4, 10, 1 }, { 224, 448, 896, 2016 }, 56),
};
/* clang-format on */

static td_value *block(td_net *m, td_value *x, int width, int group, int stride)
{
    const int64_t n_in = td_net_channels(x);
    td_value *shortcut = x;
    if (n_in != width || stride != 1)
        shortcut = td_net_conv_norm(m, x, "proj", width, 1, stride, 1);
    td_value *y = td_net_conv_norm_act(m, x, "f.a", width, 1, 1, 1);
    y = td_net_conv_norm_act(m, y, "f.b", width, 3, stride, width / group);
    const td_net_gates se = { .squeeze = "f.se.fc1", .excite = "f.se.fc2", .units = n_in / 4 };
    y = td_net_conv_norm(m, td_net_squeeze_excite(m, y, &se), "f.c", width, 1, 1, 1);
    return td_net_act(m, td_add(m->b, y, shortcut));
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    m->begin_filters = td_net_normal_fan_out;
    td_net_prefix(m, "%s", "");
    td_value *x = td_net_conv_norm_act(m, images, "stem", STEM, 3, 2, 1);
    for (int i = 0; i < STAGES; i++)
        for (int k = 0; k < net->depths[i]; k++) {
            td_net_prefix(m, "trunk_output.block%d.block%d-%d.", i + 1, i + 1, k);
            x = block(m, x, net->widths[i], net->group, k == 0 ? 2 : 1);
        }
    td_net_prefix(m, "%s", "");
    return td_net_linear(m, td_global_avg_pool(m->b, x), "fc", m->opts->num_classes,
                         td_net_begins(TD_INIT_NORMAL, 0.01), td_net_begins(TD_INIT_ZEROS, 1));
}

const td_family td_family_regnet = {
    .name = "regnet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "fc",
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT,
};
