/*
 * convnext.c -- ConvNeXt: a table, and their builder
 *
 *   stem         4x4/4 convolution with bias, LN
 *   block        7x7 depthwise with bias  LN  linear to 4 C, gelu, linear to C  times a number for
 *                each channel (layer_scale, 1e-6), stochastic depth + the block's input
 *   transition   LN, 2x2/2 convolution with bias
 *   head         mean over the map, LN, linear with bias
 *
 * LN normalizes the channels of each pixel, so it and the linear layers read pixels as rows,
 * [N H W, C].  Stochastic depth drops samples; its rate grows linearly from 0 in the first block.
 *
 *   weights   normal, 0.02 (torchvision's are truncated at 100 deviations); biases 0
 *
 * Source: Liu et al. 2022; agrees with torchvision 0.29.
 */
#include <stdio.h>

#include "model/layers.h"

#define STAGES      4
#define STEM_SIDE   4
#define LAYER_SCALE 1e-6

typedef struct {
    int depths[STAGES], widths[STAGES];
    double stochastic_depth; /* of the last block */
} numbers;

/* clang-format off */
#define ROW(name, ...) { name, &td_family_convnext, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("convnext_tiny",  { 3, 3,  9, 3 }, {  96, 192, 384,  768 }, 0.1),
    ROW("convnext_small", { 3, 3, 27, 3 }, {  96, 192, 384,  768 }, 0.4),
    ROW("convnext_base",  { 3, 3, 27, 3 }, { 128, 256, 512, 1024 }, 0.5),
    ROW("convnext_large", { 3, 3, 27, 3 }, { 192, 384, 768, 1536 }, 0.5),
};
/* clang-format on */

static const td_param_attr begins = { .role = TD_ROLE_WEIGHT,
                                      .init = TD_INIT_NORMAL,
                                      .scale = 0.02 };

static td_value *linear(td_net *m, td_value *x, const char *name, int64_t n_out)
{
    return td_net_linear(m, x, name, n_out, begins, td_net_begins(TD_INIT_ZEROS, 1));
}

/* [N, C, H, W] -> [N H W, C] */
static td_value *rows_of(td_net *m, td_value *x)
{
    const int64_t *d = x->type.dim, two[2] = { d[0] * d[2] * d[3], d[1] };
    return td_reshape(m->b, td_transpose(m->b, x, (const int[]){ 0, 2, 3, 1 }), 2, two);
}

/* [N H W, C] -> the shape of `like`, [N, C, H, W] */
static td_value *map_of(td_net *m, td_value *x, const td_value *like)
{
    const int64_t *d = like->type.dim, four[4] = { d[0], d[2], d[3], d[1] };
    return td_transpose(m->b, td_reshape(m->b, x, 4, four), (const int[]){ 0, 3, 1, 2 });
}

static td_value *norm(td_net *m, td_value *x, const char *name)
{
    return map_of(m, td_net_layer_norm(m, rows_of(m, x), name), x);
}

/* block i of n */
static td_value *block(td_net *m, td_value *x, int i, int n)
{
    const numbers *net = m->arch->numbers;
    const int64_t c = td_net_channels(x);
    td_value *scale = td_net_param(m, "", "layer_scale", 3, (int64_t[]){ c, 1, 1 },
                                   td_net_begins(TD_INIT_CONSTANT, LAYER_SCALE));
    td_value *y = td_net_conv(m, x, "block.0", c, 7, 1, (int)c);
    y = td_net_bias(m, y, "block.0", td_net_begins(TD_INIT_ZEROS, 1));
    y = td_net_layer_norm(m, rows_of(m, y), "block.2");
    y = td_emit(m->b, &td_op_gelu, NULL, linear(m, y, "block.3", 4 * c));
    y = td_mul(m->b, map_of(m, linear(m, y, "block.5", c), x), scale);
    y = td_net_stochastic_depth(m, y, net->stochastic_depth, i, n - 1, TD_DROPOUT_ROW);
    return td_add(m->b, y, x);
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    int n_blocks = 0, i = 0, at = 0;
    m->eps = 1e-6;
    m->init = &begins;
    for (int s = 0; s < STAGES; s++)
        n_blocks += net->depths[s];
    td_net_prefix(m, "features.%d.", at++);
    td_value *x = norm(m, td_net_patches(m, images, "0", net->widths[0], STEM_SIDE), "1");
    for (int s = 0; s < STAGES; s++) {
        td_net_prefix(m, "features.%d.", at++);
        if (s > 0) {
            x = td_net_patches(m, norm(m, x, "0"), "1", net->widths[s], 2);
            at++;
        }
        for (int k = 0; k < net->depths[s]; k++, i++) {
            td_net_prefix(m, "features.%d.%d.", at - 1, k);
            x = block(m, x, i, n_blocks);
        }
    }
    td_net_prefix(m, "classifier.");
    x = td_net_layer_norm(m, td_global_avg_pool(m->b, x), "0");
    return linear(m, x, "2", m->opts->num_classes);
}

const td_family td_family_convnext = {
    .name = "convnext",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.2",
    .side_min = 32,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",dropout,bn_epsilon,bn_momentum",
};
