/*
 * vgg.c -- VGG networks: a table, and their builder
 *
 *   features     five stages of 3x3 convolutions with bias, [BN], relu; each ends in a max-pool 2x2
 *   classifier   adaptive mean to 7x7, then three linear layers: 4096, 4096 and the classes, with
 *                relu and dropout (1/2) after the first two
 *
 *   convolution   normal, sqrt(2 / fan out); biases 0
 *   linear        normal, 0.01; biases 0
 *
 * Source: Simonyan and Zisserman 2015 (table 1, columns A, B, D, E); agrees with torchvision 0.29.
 */
#include <stdio.h>

#include "model/layers.h"

#define STAGES       5
#define POOLED       7
#define LINEAR_UNITS 4096

typedef struct {
    int convs[STAGES];
    bool has_norms;
} numbers;

/* clang-format off */
#define ROW(name, family, ...) \
    { name, &td_family_##family, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("vgg11", vgg, { 1, 1, 2, 2, 2 }, false),
    ROW("vgg13", vgg, { 2, 2, 2, 2, 2 }, false),
    ROW("vgg16", vgg, { 2, 2, 3, 3, 3 }, false),
    ROW("vgg19", vgg, { 2, 2, 4, 4, 4 }, false),
};

static const td_arch norm_rows[] = {
    ROW("vgg11_bn", vgg_bn, { 1, 1, 2, 2, 2 }, true),
    ROW("vgg13_bn", vgg_bn, { 2, 2, 2, 2, 2 }, true),
    ROW("vgg16_bn", vgg_bn, { 2, 2, 3, 3, 3 }, true),
    ROW("vgg19_bn", vgg_bn, { 2, 2, 4, 4, 4 }, true),
};
/* clang-format on */

static const int widths[STAGES] = { 64, 128, 256, 512, 512 };

/* the i-th module of `features`, and those that belong to it; returns the number of the next one */
static int conv(td_net *m, td_value **x, int i, int64_t n_out, bool has_norm)
{
    char name[16];
    snprintf(name, sizeof name, "%d", i++);
    *x = td_net_conv(m, *x, name, n_out, 3, 1, 1);
    *x = td_net_bias(m, *x, name, td_net_begins(TD_INIT_ZEROS, 1));
    if (has_norm) {
        snprintf(name, sizeof name, "%d", i++);
        *x = td_net_norm(m, *x, name, false);
    }
    *x = td_net_act(m, *x);
    return i + 1;
}

static td_value *linear(td_net *m, td_value *x, const char *name, int64_t n_out)
{
    return td_net_linear(m, x, name, n_out, td_net_begins(TD_INIT_NORMAL, 0.01),
                         td_net_begins(TD_INIT_ZEROS, 1));
}

static td_value *classifier(td_net *m, td_value *x)
{
    td_net_prefix(m, "classifier.");
    x = td_net_flatten(m, td_net_adaptive_pool(m, x, POOLED));
    x = td_net_dropout(m, td_net_act(m, linear(m, x, "0", LINEAR_UNITS)), 0.5);
    x = td_net_dropout(m, td_net_act(m, linear(m, x, "3", LINEAR_UNITS)), 0.5);
    return linear(m, x, "6", m->opts->num_classes);
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *vgg = m->arch->numbers;
    td_value *x = images;
    int i = 0;
    m->begin_filters = td_net_normal_fan_out;
    td_net_prefix(m, "features.");
    for (int s = 0; s < STAGES; s++) {
        for (int k = 0; k < vgg->convs[s]; k++)
            i = conv(m, &x, i, widths[s], vgg->has_norms);
        x = td_net_max_pool(m, x, 2, 2);
        i++;
    }
    return classifier(m, x);
}

const td_family td_family_vgg = {
    .name = "vgg",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.6",
    .side_min = 32,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth,bn_epsilon,bn_momentum",
};

const td_family td_family_vgg_bn = {
    .name = "vgg_bn",
    .rows = norm_rows,
    .n_rows = sizeof norm_rows / sizeof *norm_rows,
    .build = build,
    .head = "classifier.6",
    .side_min = 32,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth",
};
