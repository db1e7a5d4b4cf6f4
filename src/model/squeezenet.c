/*
 * squeezenet.c -- SqueezeNet 1.1
 *
 *   features     3x3/2 convolution, relu, and fire modules; max-pools 3x3/2 that round up
 *   fire         1x1 (squeeze), relu, then 1x1 and 3x3 beside each other (expand), relu, joined
 *   classifier   dropout (1/2), 1x1 convolution to the classes, relu, mean over the map
 *
 *   convolution  uniform in +-sqrt(6 / fan in); the last one normal, 0.01; biases 0
 *
 * Source: Iandola et al. 2016, version 1.1 of its authors; agrees with torchvision 0.29.
 */
#include <math.h>

#include "model/layers.h"

#define STEM  64
#define FIRES 8

/* a fire module: its number in `features`, squeezed channels, and channels of each expansion */
typedef struct {
    int index, squeezed, expanded;
    bool is_pooled; /* before the module */
} fire;

typedef struct {
    fire fires[FIRES];
} numbers;

/* clang-format off */
static const td_arch rows[] = {
    { "squeezenet1_1", &td_family_squeezenet, 224, &(const numbers){ {
        {  3, 16,  64, true  }, {  4, 16,  64, false },
        {  6, 32, 128, true  }, {  7, 32, 128, false },
        {  9, 48, 192, true  }, { 10, 48, 192, false },
        { 11, 64, 256, false }, { 12, 64, 256, false },
    } }, 0, 0 },
};
/* clang-format on */

static td_param_attr uniform(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_out;
    (void)groups;
    return td_net_begins(TD_INIT_UNIFORM, sqrt(6 / (double)(taps * n_in)));
}

static td_value *conv(td_net *m, td_value *x, const char *name, int64_t n_out, int side)
{
    x = td_net_conv(m, x, name, n_out, side, 1, 1);
    return td_net_act(m, td_net_bias(m, x, name, td_net_begins(TD_INIT_ZEROS, 1)));
}

static td_value *add_fire(td_net *m, td_value *x, const fire *f)
{
    td_value *both[2];
    if (f->is_pooled)
        x = td_net_max_pool_up(m, x, 3, 2);
    td_net_prefix(m, "features.%d.", f->index);
    x = conv(m, x, "squeeze", f->squeezed, 1);
    both[0] = conv(m, x, "expand1x1", f->expanded, 1);
    both[1] = conv(m, x, "expand3x3", f->expanded, 3);
    return td_concat(m->b, 2, both, 1);
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    const td_conv_attr unpadded = { .stride = 2, .dilation = 1, .groups = 1 };
    const td_param_attr last = td_net_begins(TD_INIT_NORMAL, 0.01);
    m->begin_filters = uniform;
    td_net_prefix(m, "features.");
    td_value *w = td_net_filter(m, "0", td_net_channels(images), STEM, 3, 1);
    td_value *x = td_emit(m->b, &td_op_conv2d, &unpadded, images, w);
    x = td_net_act(m, td_net_bias(m, x, "0", td_net_begins(TD_INIT_ZEROS, 1)));
    for (int i = 0; i < FIRES; i++)
        x = add_fire(m, x, &net->fires[i]);
    td_net_prefix(m, "classifier.");
    m->init = &last;
    x = conv(m, td_net_dropout(m, x, 0.5), "1", m->opts->num_classes, 1);
    m->init = NULL;
    return td_global_avg_pool(m->b, x);
}

const td_family td_family_squeezenet = {
    .name = "squeezenet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.1",
    .side_min = 17,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth,bn_epsilon,bn_momentum",
};
