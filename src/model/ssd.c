/*
 * ssd.c -- SSD320 v1.2: a residual backbone, a feature pyramid, heads shared by its levels
 *
 *   images 320x320 -> conv1 7x7/2, pool 3x3/2 -> layer1 -> layer2 C3 -> layer3 C4 -> layer4 C5
 *
 *   P5 = lateral(C5)                                       raw: no norm, no activation
 *   P4 = smooth(lateral(C4) + up(P5))                      up: repeats each pixel 2 x 2 times
 *   P3 = smooth(lateral(C3) + up(lateral(C4) + up(P5)))    smooth, down: 3x3, norm, relu6
 *   P6 = down(P5), P7 = down(P6)                           down: stride 2
 *
 *   on each level:  box tower, class tower (4 x (3x3, norm, relu6)) -> 3x3 -> deltas, scores
 *
 * A stage runs with stride 1; its result is recorded, then every second row and column is used.
 * Padding is SAME, except in the stem: 3 on all sides.  The towers and predictors share their
 * filters between levels, but not their norms.  The backbone's norms have other constants than the
 * other norms.
 *
 * Initial values: filters of the pyramid truncated normal 0.03, of the heads normal 0.01; biases 0,
 * the class predictor's -4.6, so that every class has the initial probability 0.01.
 *
 * Source: Liu et al. 2016; Lin et al. 2017 (FPN; focal loss); agrees with the TensorFlow 1 object
 * detection recipe ssd_resnet50_v1_fpn in NVIDIA's DeepLearningExamples, at 320 pixels.
 */
#include <stdio.h>

#include "model/resnet.h"

#define DEPTH        256 /* channels of the pyramid */
#define TOWER_LAYERS 4
#define ANCHORS      6 /* per pixel */
#define FIRST_LEVEL  3
#define LEVELS       5

/* TensorFlow's standard deviation is that of the normal distribution before truncation at two
   deviations; ours is that after truncation */
#define CUT_DEVIATION 0.87962566103423978

/* 1 - 0.997 computed in float32, as in TensorFlow; the backbone has 0.003 */
#define HEAD_RATE 0.0030000209808349609

static const td_param_attr pyramid_begins = { .init = TD_INIT_TRUNCATED_NORMAL,
                                              .scale = 0.03 * CUT_DEVIATION };
static const td_param_attr heads_begin = { .init = TD_INIT_NORMAL, .scale = 0.01 };

/* --- backbone --------------------------------------------------------------------------------- */

/* the weight of a step's statistics in the running statistics */
static double rate(const td_net *m, double own)
{
    return m->opts->bn_decay > 0 ? 1 - m->opts->bn_decay : own;
}

/* C3, C4, C5 */
static void backbone(td_net *m, td_value *images, td_value **c)
{
    m->root = "backbone.";
    m->activation = &td_op_relu6; /* in the stem and within blocks; their results have relu */
    m->momentum = rate(m, 0.003);
    m->is_same_padded = false;
    td_value *x = td_resnet_stem_conv(m, images);
    m->is_same_padded = true;
    x = td_net_max_pool(m, x, 3, 2);
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            x = td_net_max_pool(m, x, 1, 2);
        x = td_resnet_stage(m, x, i, 1);
        if (i > 0)
            c[i - 1] = x;
    }
}

/* --- pyramid ---------------------------------------------------------------------------------- */

static td_value *conv_norm_act(td_net *m, td_value *x, int stride)
{
    return td_net_act(m,
                      td_net_norm(m, td_net_conv(m, x, "conv", DEPTH, 3, stride, 1), "bn", false));
}

static td_value *lateral(td_net *m, td_value *x, int level)
{
    char name[16];
    snprintf(name, sizeof name, "lateral%d", level);
    td_net_prefix(m, "%s", "");
    td_value *y = td_net_conv(m, x, name, DEPTH, 1, 1, 1);
    td_value *bias = td_net_vector(m, name, "bias", DEPTH, td_net_begins(TD_INIT_ZEROS, 1));
    return td_emit(m->b, &td_op_bias_add, NULL, y, bias);
}

static td_value *enlarged(td_net *m, td_value *x)
{
    return td_resize_nearest(m->b, x, 2 * (int)x->type.dim[2], 2 * (int)x->type.dim[3]);
}

static td_value *smooth(td_net *m, td_value *x, int level)
{
    td_net_prefix(m, "smooth%d.", level);
    return conv_norm_act(m, x, 1);
}

static td_value *down(td_net *m, td_value *x, int level)
{
    td_net_prefix(m, "down%d.", level);
    return conv_norm_act(m, x, 2);
}

static void pyramid(td_net *m, td_value *const *c, td_value **p)
{
    m->root = "fpn.";
    m->init = &pyramid_begins;
    m->eps = 1e-3;
    m->momentum = rate(m, HEAD_RATE);
    td_value *const x5 = lateral(m, c[2], 5), *const up5 = enlarged(m, x5);
    td_value *const x4 = td_add(m->b, lateral(m, c[1], 4), up5), *const up4 = enlarged(m, x4);
    td_value *const x3 = td_add(m->b, lateral(m, c[0], 3), up4);
    p[0] = smooth(m, x3, 3);
    p[1] = smooth(m, x4, 4);
    p[2] = x5;
    p[3] = down(m, x5, 6);
    p[4] = down(m, p[3], 7);
}

/* --- heads ------------------------------------------------------------------------------------ */

/* applies a tower to all levels, in place */
static void tower(td_net *m, const char *name, td_value **x)
{
    for (int k = 0; k < TOWER_LAYERS; k++) {
        td_net_prefix(m, "%s_tower.%d.", name, k);
        td_value *w = td_net_filter(m, "conv", DEPTH, DEPTH, 3, 1);
        for (int i = 0; i < LEVELS; i++) {
            char norm[8];
            snprintf(norm, sizeof norm, "bn%d", FIRST_LEVEL + i);
            td_value *y = td_net_conv_with(m, x[i], w, 1, 1);
            x[i] = td_net_act(m, td_net_norm(m, y, norm, false));
        }
    }
    td_net_prefix(m, "%s", "");
}

/* predicts `columns` numbers for each anchor; `bias` is the initial bias */
static td_value *head(td_net *m, const char *name, td_value *const *p, int columns, double bias)
{
    td_value *x[LEVELS], *in[2 * LEVELS];
    const td_join_attr attr = { .columns = columns, .order = TD_JOIN_PIXEL };
    for (int i = 0; i < LEVELS; i++)
        x[i] = p[i];
    tower(m, name, x);
    td_value *w = td_net_filter(m, name, DEPTH, (int64_t)ANCHORS * columns, 3, 1);
    td_value *b = td_net_vector(m, name, "bias", (int64_t)ANCHORS * columns,
                                td_net_begins(TD_INIT_CONSTANT, bias));
    for (int i = 0; i < LEVELS; i++) {
        in[2 * i] = td_net_conv_with(m, x[i], w, 1, 1);
        in[2 * i + 1] = b;
    }
    return td_emit_n(m->b, &td_op_join_heads, &attr, 2 * LEVELS, in, NULL);
}

static void detect(td_net *m, td_value *images, td_value **deltas, td_value **scores)
{
    td_value *c[3], *p[LEVELS];
    backbone(m, images, c);
    pyramid(m, c, p);
    m->root = "heads.";
    m->init = &heads_begin;
    *deltas = head(m, "box", p, 4, 0);
    *scores = head(m, "class", p, m->opts->num_classes + 1, -4.6);
}

static const td_arch row = {
    "ssd320", &td_family_ssd320, 320, &td_resnet50, TD_DETECTOR_SSD320, 12804,
};

const td_family td_family_ssd320 = {
    .name = "ssd320",
    .rows = &row,
    .n_rows = 1,
    .detect = detect,
    .describe = td_resnet_describe,
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_DROPOUT,
};
