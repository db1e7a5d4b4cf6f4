/*
 * retinanet.c -- RetinaNet: ResNet-50, a feature pyramid, heads shared by its levels
 *
 *   images -> conv1, pool -> layer1 -> layer2 C3 -> layer3 C4 -> layer4 C5
 *
 *   I5 = inner(C5)  I4 = inner(C4) + up(I5)  I3 = inner(C3) + up(I4)      inner: 1x1; up: nearest
 *   P3, P4, P5 = layer(I3), layer(I4), layer(I5)                          layer: 3x3
 *   P6 = down(P5)   P7 = down(relu(P6))                                   down: 3x3, stride 2
 *
 *   on each level:  class tower, box tower (4 x (3x3, relu)) -> 3x3 -> scores, deltas
 *
 * All convolutions after the backbone have biases and no norms.  The towers and predictors are the
 * same on all levels.  torchvision's norms are constant (FrozenBatchNorm2d) where training begins
 * with weights of the backbone: --freeze and --freeze-bn do that, and so does the preset.
 *
 *   backbone   normal, sqrt(2 / fan out), not divided by groups
 *   pyramid    uniform in +-sqrt(3 / fan in); biases 0
 *   heads      normal, 0.01; biases 0, the class predictor's -ln 99: a probability of 0.01
 *
 * Source: Lin et al. 2017 (FPN; focal loss); agrees with torchvision 0.29's retinanet_resnet50_fpn.
 */
#include <math.h>
#include <stdio.h>

#include "model/resnet.h"

#define DEPTH        256 /* channels of the pyramid */
#define TOWER_LAYERS 4
#define ANCHORS      9 /* per pixel */
#define LEVELS       5

static const td_param_attr heads_begin = { .init = TD_INIT_NORMAL, .scale = 0.01 };

/* C3, C4, C5 */
static void backbone(td_net *m, td_value *images, td_value **c)
{
    m->root = "backbone.body.";
    if (m->opts->bn_decay > 0)
        m->momentum = 1 - m->opts->bn_decay;
    m->begin_filters = td_net_normal_fan_out;
    td_value *x = td_net_max_pool(m, td_resnet_stem_conv(m, images), 3, 2);
    for (int i = 0; i < 4; i++) {
        x = td_resnet_stage(m, x, i, i ? 2 : 1);
        if (i)
            c[i - 1] = x;
    }
}

/* --- pyramid ---------------------------------------------------------------------------------- */

/* PyTorch's kaiming_uniform_ with a = 1 */
static td_param_attr pyramid_begins(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_out;
    (void)groups;
    return td_net_begins(TD_INIT_UNIFORM, sqrt(3 / (double)(taps * n_in)));
}

static td_value *conv_bias(td_net *m, td_value *x, const char *name, int side, int stride)
{
    td_value *y = td_net_conv(m, x, name, DEPTH, side, stride, 1);
    return td_net_bias(m, y, name, td_net_begins(TD_INIT_ZEROS, 1));
}

static void pyramid(td_net *m, td_value *const *c, td_value **p)
{
    td_value *inner[3];
    m->root = "backbone.fpn.";
    m->begin_filters = pyramid_begins;
    for (int i = 0; i < 3; i++) {
        td_net_prefix(m, "inner_blocks.%d.", i);
        inner[i] = conv_bias(m, c[i], "0", 1, 1);
    }
    for (int i = 1; i >= 0; i--) {
        const int h = (int)inner[i]->type.dim[2], w = (int)inner[i]->type.dim[3];
        inner[i] = td_add(m->b, inner[i], td_resize_nearest(m->b, inner[i + 1], h, w));
    }
    for (int i = 0; i < 3; i++) {
        td_net_prefix(m, "layer_blocks.%d.", i);
        p[i] = conv_bias(m, inner[i], "0", 3, 1);
    }
    td_net_prefix(m, "extra_blocks.");
    p[3] = conv_bias(m, p[2], "p6", 3, 2);
    p[4] = conv_bias(m, td_relu(m->b, p[3]), "p7", 3, 2);
}

/* --- heads ------------------------------------------------------------------------------------ */

/* applies a tower to all levels, in place */
static void tower(td_net *m, const char *head, td_value **x)
{
    for (int k = 0; k < TOWER_LAYERS; k++) {
        td_net_prefix(m, "%s.conv.%d.", head, k);
        td_value *w = td_net_filter(m, "0", DEPTH, DEPTH, 3, 1);
        td_value *b = td_net_vector(m, "0", "bias", DEPTH, td_net_begins(TD_INIT_ZEROS, 1));
        for (int i = 0; i < LEVELS; i++) {
            td_value *y = td_net_conv_with(m, x[i], w, 1, 1);
            x[i] = td_relu(m->b, td_emit(m->b, &td_op_bias_add, NULL, y, b));
        }
    }
    td_net_prefix(m, "%s.", head);
}

/* predicts `columns` numbers for each anchor; `bias` is the initial bias */
static td_value *head(td_net *m, const char *name, const char *last, td_value *const *p,
                      int columns, double bias)
{
    td_value *x[LEVELS], *in[2 * LEVELS];
    const td_join_attr attr = { .columns = columns, .order = TD_JOIN_PIXEL };
    for (int i = 0; i < LEVELS; i++)
        x[i] = p[i];
    tower(m, name, x);
    td_value *w = td_net_filter(m, last, DEPTH, (int64_t)ANCHORS * columns, 3, 1);
    td_value *b = td_net_vector(m, last, "bias", (int64_t)ANCHORS * columns,
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
    m->root = "head.";
    m->init = &heads_begin;
    *scores = head(m, "classification_head", "cls_logits", p, m->opts->num_classes + 1, -log(99));
    *deltas = head(m, "regression_head", "bbox_reg", p, 4, 0);
}

static const td_arch row = {
    "retinanet_resnet50_fpn",
    &td_family_retinanet,
    800,
    &td_resnet50,
    TD_DETECTOR_RETINANET,
    120087,
};

const td_family td_family_retinanet = {
    .name = "retinanet",
    .rows = &row,
    .n_rows = 1,
    .detect = detect,
    .describe = td_resnet_describe,
    .side_min = 64,
    .lacks = TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT ",backbone",
};
