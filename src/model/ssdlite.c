/*
 * ssdlite.c -- SSDLite: MobileNetV3-Large with a reduced tail, four more blocks, and two pairs of a
 * depthwise and a 1x1 convolution for each of six maps
 *
 *   images 320x320 -> stem, blocks 1 .. 12, first convolution of block 13     672 channels, 20x20
 *   rest of block 13 (stride 2, 80 channels), blocks 14, 15, 1x1 BN hardswish  480, 10x10
 *   extra   1x1 BN relu6  3x3/2 depthwise BN relu6  1x1 BN relu6               512, 256, 256, 128
 *   heads   3x3 depthwise BN relu6  1x1 with bias -> classes + 1 and 4 numbers for each of 6 boxes
 *
 * The tail (blocks 13 to 15 and the last convolution) has half the channels of the classifier's.
 * Norms have epsilon 0.001 and momentum 0.03.
 *
 *   convolution   normal, 0.03; biases 0
 *
 * Source: Howard et al. 2019 (section 6.3); agrees with torchvision 0.29's
 * ssdlite320_mobilenet_v3_large, whose state_dict splits the backbone at the expansion of block 13.
 */
#include <stdio.h>

#include "model/mobilenet_v3.h"

#define MAPS   6
#define EXTRAS 4
#define SHAPES 6  /* boxes for each pixel */
#define SPLIT  12 /* the block, counted from 0, whose expansion is the first map */
#define BLOCKS 15

static const int extra_width[EXTRAS] = { 512, 256, 256, 128 };
static const td_param_attr begins = { .init = TD_INIT_NORMAL, .scale = 0.03 };

/* mobilenet_v3_large's block, with half of the channels in the tail */
static td_mobilenet_v3_block block_at(int i)
{
    td_mobilenet_v3_block s = *td_mobilenet_v3_large(i);
    if (i >= SPLIT)
        s.width /= 2;
    if (i > SPLIT)
        s.hidden /= 2;
    return s;
}

static void backbone(td_net *m, td_value *images, td_value **maps)
{
    td_mobilenet_v3_block split = block_at(SPLIT);
    char name[8];
    m->root = "backbone.features.";
    m->activation = &td_op_hardswish;
    td_net_prefix(m, "0.");
    td_value *x = td_net_conv_norm_act(m, images, "0", TD_MOBILENET_V3_STEM, 3, 2, 1);
    for (int i = 0; i < SPLIT; i++) {
        const td_mobilenet_v3_block s = block_at(i);
        td_net_prefix(m, "0.%d.", i + 1);
        x = td_mobilenet_v3_emit(m, x, &s);
    }
    m->activation = &td_op_hardswish;
    td_net_prefix(m, "0.");
    snprintf(name, sizeof name, "%d", SPLIT + 1);
    maps[0] = x = td_net_conv_norm_act(m, x, name, split.hidden, 1, 1, 1);
    td_net_prefix(m, "1.0.");
    x = td_mobilenet_v3_emit_end(m, x, &split, "", 1);
    for (int i = SPLIT + 1; i < BLOCKS; i++) {
        const td_mobilenet_v3_block s = block_at(i);
        td_net_prefix(m, "1.%d.", i - SPLIT);
        x = td_mobilenet_v3_emit(m, x, &s);
    }
    m->activation = &td_op_hardswish;
    td_net_prefix(m, "1.");
    snprintf(name, sizeof name, "%d", BLOCKS - SPLIT);
    maps[1] = td_net_conv_norm_act(m, x, name, 6 * (int)td_net_channels(x), 1, 1, 1);
}

static td_value *extra(td_net *m, td_value *x, int i)
{
    const int n = extra_width[i], narrow = n / 2;
    td_net_prefix(m, "%d.", i);
    x = td_net_conv_norm_act(m, x, "0", narrow, 1, 1, 1);
    x = td_net_conv_norm_act(m, x, "1", narrow, 3, 2, narrow);
    return td_net_conv_norm_act(m, x, "2", n, 1, 1, 1);
}

/* predicts `columns` numbers for each box */
static td_value *head(td_net *m, const char *name, td_value *const *maps, int columns)
{
    const td_join_attr attr = { .columns = columns, .order = TD_JOIN_PIXEL };
    const int64_t n_out = (int64_t)SHAPES * columns;
    td_value *in[2 * MAPS];
    for (int i = 0; i < MAPS; i++) {
        const int n = (int)td_net_channels(maps[i]);
        td_net_prefix(m, "%s.module_list.%d.", name, i);
        td_value *x = td_net_conv_norm_act(m, maps[i], "0", n, 3, 1, n);
        in[2 * i] = td_net_conv(m, x, "1", n_out, 1, 1, 1);
        in[2 * i + 1] = td_net_vector(m, "1", "bias", n_out, td_net_begins(TD_INIT_ZEROS, 1));
    }
    return td_emit_n(m->b, &td_op_join_heads, &attr, 2 * MAPS, in, NULL);
}

static void detect(td_net *m, td_value *images, td_value **deltas, td_value **scores)
{
    td_value *maps[MAPS];
    m->init = &begins;
    m->eps = 0.001;
    m->momentum = m->opts->bn_decay > 0 ? 1 - m->opts->bn_decay : 0.03;
    backbone(m, images, maps);
    m->activation = &td_op_relu6;
    m->root = "backbone.extra.";
    for (int i = 0; i < EXTRAS; i++)
        maps[i + 2] = extra(m, maps[i + 1], i);
    m->root = "head.";
    *scores = head(m, "classification_head", maps, m->opts->num_classes + 1);
    *deltas = head(m, "regression_head", maps, 4);
}

static const td_arch row = {
    "ssdlite320_mobilenet_v3_large", &td_family_ssdlite, 320, NULL, TD_DETECTOR_SSDLITE, 3234,
};

const td_family td_family_ssdlite = {
    .name = "ssdlite",
    .rows = &row,
    .n_rows = 1,
    .detect = detect,
    .side_min = 64,
    .lacks = TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT ",backbone",
};
