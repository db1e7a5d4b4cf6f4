/*
 * ssd300.c -- SSD300 v1.1: the first three stages of a residual backbone, five more blocks, and two
 * convolutions for each of six maps
 *
 *   images 300x300 -> conv1, pool 75 -> layer1 -> layer2 38 -> layer3 38, stride 1
 *   extra   1x1 BN relu  3x3 BN relu      19, 10, 5 with stride 2; 3, 1 without padding
 *   heads   3x3 with bias on each map -> 4 and classes + 1 numbers for each of its boxes
 *
 * The rows of the results are ordered by map, then by the boxes per pixel, then by pixel.
 * Parameters have the names of the reference's network.  Initial values of extra blocks and heads
 * are uniform in +-sqrt(6 / (fan in + fan out)) (Xavier), those of biases, like in PyTorch's
 * convolutions, in +-1 / sqrt(fan in).
 *
 * Source: Liu et al. 2016; agrees with NVIDIA's DeepLearningExamples, PyTorch/Detection/SSD.
 */
#include <math.h>
#include <stdio.h>

#include "model/resnet.h"

#define MAPS   6
#define EXTRAS (MAPS - 1)

static const int boxes_of[MAPS] = { 4, 6, 6, 6, 4, 4 };
static const int narrow[EXTRAS] = { 256, 256, 128, 128, 128 };

static td_param_attr xavier(int64_t taps, int64_t n_in, int64_t n_out)
{
    return td_net_begins(TD_INIT_UNIFORM, sqrt(6 / (double)(taps * (n_in + n_out))));
}

/* filters with `side` x `side` taps and Xavier initialization */
static td_value *filter(td_net *m, const char *name, int64_t n_in, int64_t n_out, int side)
{
    const td_param_attr init = xavier((int64_t)side * side, n_in, n_out);
    m->init = &init;
    td_value *w = td_net_filter(m, name, n_in, n_out, side, 1);
    m->init = NULL;
    return w;
}

/* channels of the maps: the backbone's third stage, then the extra blocks */
static void channels(const td_resnet *r, int64_t *n)
{
    static const int wide[MAPS] = { 0, 512, 512, 256, 256, 256 };
    for (int i = 1; i < MAPS; i++)
        n[i] = wide[i];
    n[0] = (int64_t)r->widths[2] * r->expansion;
    if (!r->is_bottleneck && r->layers[2] == 2) /* resnet18 */
        n[MAPS - 1] = 128;
}

static td_value *extra(td_net *m, td_value *x, int i, int64_t n_out)
{
    const bool is_strided = i < 3;
    const td_conv_attr attr = {
        .stride = is_strided ? 2 : 1, .pad = is_strided, .dilation = 1, .groups = 1
    };
    td_net_prefix(m, "additional_blocks.%d.", i);
    td_value *w = filter(m, "0", td_net_channels(x), narrow[i], 1);
    x = td_relu(m->b, td_net_norm(m, td_net_conv_with(m, x, w, 1, 1), "1", false));
    w = filter(m, "3", td_net_channels(x), n_out, 3);
    return td_relu(m->b, td_net_norm(m, td_emit(m->b, &td_op_conv2d, &attr, x, w), "4", false));
}

static td_value *heads(td_net *m, const char *name, td_value *const *maps, int columns)
{
    const td_join_attr attr = { .columns = columns, .order = TD_JOIN_CHANNEL };
    td_value *in[2 * MAPS];
    td_net_prefix(m, "%s.", name);
    for (int i = 0; i < MAPS; i++) {
        char layer[8];
        const int64_t n_in = td_net_channels(maps[i]), n_out = (int64_t)boxes_of[i] * columns;
        snprintf(layer, sizeof layer, "%d", i);
        td_value *w = filter(m, layer, n_in, n_out, 3);
        in[2 * i] = td_net_conv_with(m, maps[i], w, 1, 1);
        in[2 * i + 1] = td_net_vector(m, layer, "bias", n_out,
                                      td_net_begins(TD_INIT_UNIFORM, 1 / sqrt(9 * (double)n_in)));
    }
    return td_emit_n(m->b, &td_op_join_heads, &attr, 2 * MAPS, in, NULL);
}

static void detect(td_net *m, td_value *images, td_value **deltas, td_value **scores)
{
    td_value *maps[MAPS];
    int64_t n[MAPS];
    channels(td_resnet_of(m->arch), n);
    m->root = "feature_extractor.feature_extractor.";
    m->stem_conv = "0";
    m->stem_norm = "1";
    m->stage = "";
    m->first_stage = 4;
    if (m->opts->bn_decay > 0)
        m->momentum = 1 - m->opts->bn_decay;
    td_value *x = td_net_max_pool(m, td_resnet_stem_conv(m, images), 3, 2);
    for (int i = 0; i < 3; i++)
        x = td_resnet_stage(m, x, i, i == 1 ? 2 : 1);
    maps[0] = x;
    m->root = "";
    for (int i = 0; i < EXTRAS; i++)
        maps[i + 1] = extra(m, maps[i], i, n[i + 1]);
    *deltas = heads(m, "loc", maps, 4);
    *scores = heads(m, "conf", maps, m->opts->num_classes + 1);
}

static const td_arch row = {
    "ssd300", &td_family_ssd300, 300, &td_resnet50, TD_DETECTOR_SSD300, 8732,
};

const td_family td_family_ssd300 = {
    .name = "ssd300",
    .rows = &row,
    .n_rows = 1,
    .detect = detect,
    .describe = td_resnet_describe,
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_DROPOUT,
};
