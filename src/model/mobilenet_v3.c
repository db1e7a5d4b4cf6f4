/*
 * mobilenet_v3.c -- MobileNetV3: a table, and its builder
 *
 *   stem     3x3/2 convolution with 16 channels, BN, hardswish
 *   block    1x1 BN act  kxk/s depthwise BN act  SE  1x1 BN; plus its input where the shape is kept
 *   head     1x1 BN hardswish with 6 times the channels, mean over the map, linear with bias,
 *            hardswish, dropout (0.2), linear with bias
 *
 * Blocks that do not widen their input have no first convolution.  `act` is relu or hardswish;
 * squeeze-and-excitation has a quarter of the depthwise channels, rounded to a multiple of 8, and
 * hardsigmoid as gate.  Norms have epsilon 0.001 and momentum 0.01.
 *
 *   convolution   normal, sqrt(2 / fan out), not divided by groups; biases of SE 0
 *   linear        normal, 0.01; biases 0
 *
 * Source: Howard et al. 2019 (tables 1 and 2); agrees with torchvision 0.29.
 */
#include "model/mobilenet_v3.h"

#include <stdio.h>

#define BLOCKS_MAX 15

typedef td_mobilenet_v3_block shape;

typedef struct {
    int last; /* units of the first linear layer */
    int n_blocks;
    shape blocks[BLOCKS_MAX];
} numbers;

/* clang-format off */
#define ROW(name, ...) \
    { name, &td_family_mobilenet_v3, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("mobilenet_v3_large", 1280, 15, {
        { 3,  16,  16, 1, false, false }, { 3,  64,  24, 2, false, false },
        { 3,  72,  24, 1, false, false }, { 5,  72,  40, 2, true,  false },
        { 5, 120,  40, 1, true,  false }, { 5, 120,  40, 1, true,  false },
        { 3, 240,  80, 2, false, true  }, { 3, 200,  80, 1, false, true  },
        { 3, 184,  80, 1, false, true  }, { 3, 184,  80, 1, false, true  },
        { 3, 480, 112, 1, true,  true  }, { 3, 672, 112, 1, true,  true  },
        { 5, 672, 160, 2, true,  true  }, { 5, 960, 160, 1, true,  true  },
        { 5, 960, 160, 1, true,  true  },
    }),
    ROW("mobilenet_v3_small", 1024, 11, {
        { 3,  16,  16, 2, true,  false }, { 3,  72,  24, 2, false, false },
        { 3,  88,  24, 1, false, false }, { 5,  96,  40, 2, true,  true  },
        { 5, 240,  40, 1, true,  true  }, { 5, 240,  40, 1, true,  true  },
        { 5, 120,  48, 1, true,  true  }, { 5, 144,  48, 1, true,  true  },
        { 5, 288,  96, 2, true,  true  }, { 5, 576,  96, 1, true,  true  },
        { 5, 576,  96, 1, true,  true  },
    }),
};
/* clang-format on */

const td_mobilenet_v3_block *td_mobilenet_v3_large(int i)
{
    const numbers *net = rows[0].numbers;
    return i < net->n_blocks ? &net->blocks[i] : NULL;
}

/* a quarter of n, rounded to a multiple of 8 but not below nine tenths */
static int se_units(int n)
{
    const int quarter = n / 4, near = (quarter + 4) / 8 * 8;
    const int units = near > 8 ? near : 8;
    return units * 10 < quarter * 9 ? units + 8 : units;
}

/* the i-th module of a block, "block.1" */
static const char *module(char out[24], const char *name, int i, const char *part)
{
    snprintf(out, 24, "%s%d%s", name, i, part);
    return out;
}

td_value *td_mobilenet_v3_emit_end(td_net *m, td_value *x, const shape *s, const char *name, int i)
{
    char own[24], excite[24];
    m->activation = s->is_hard ? &td_op_hardswish : &td_op_relu;
    td_value *y = td_net_conv_norm_act(m, x, module(own, name, i++, ""), s->hidden, s->side,
                                       s->stride, s->hidden);
    if (s->has_se) {
        const td_net_gates se = { .squeeze = module(own, name, i, ".fc1"),
                                  .excite = module(excite, name, i, ".fc2"),
                                  .units = se_units(s->hidden),
                                  .attr = { .hidden = TD_SE_RELU, .gate = TD_SE_HARDSIGMOID },
                                  .has_zero_biases = true };
        y = td_net_squeeze_excite(m, y, &se);
        i++;
    }
    return td_net_conv_norm(m, y, module(own, name, i, ""), s->width, 1, 1, 1);
}

td_value *td_mobilenet_v3_emit(td_net *m, td_value *x, const shape *s)
{
    const int n_in = (int)td_net_channels(x);
    td_value *y = x;
    const bool widens = s->hidden != n_in;
    m->activation = s->is_hard ? &td_op_hardswish : &td_op_relu;
    if (widens)
        y = td_net_conv_norm_act(m, y, "block.0", s->hidden, 1, 1, 1);
    y = td_mobilenet_v3_emit_end(m, y, s, "block.", widens);
    return s->stride == 1 && n_in == s->width ? td_add(m->b, y, x) : y;
}

static td_value *linear(td_net *m, td_value *x, const char *name, int n_out)
{
    return td_net_linear(m, x, name, n_out, td_net_begins(TD_INIT_NORMAL, 0.01),
                         td_net_begins(TD_INIT_ZEROS, 1));
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    m->begin_filters = td_net_normal_fan_out;
    m->eps = 0.001;
    m->momentum = 0.01;
    m->activation = &td_op_hardswish;
    td_net_prefix(m, "features.");
    td_value *x = td_net_conv_norm_act(m, images, "0", TD_MOBILENET_V3_STEM, 3, 2, 1);
    for (int i = 0; i < net->n_blocks; i++) {
        td_net_prefix(m, "features.%d.", i + 1);
        x = td_mobilenet_v3_emit(m, x, &net->blocks[i]);
    }
    m->activation = &td_op_hardswish;
    td_net_prefix(m, "features.%d.", net->n_blocks + 1);
    x = td_net_conv(m, x, "0", 6 * td_net_channels(x), 1, 1, 1);
    x = td_global_avg_pool(m->b, td_net_act(m, td_net_norm(m, x, "1", false)));
    td_net_prefix(m, "classifier.");
    x = td_net_dropout(m, td_net_act(m, linear(m, x, "0", net->last)), 0.2);
    return linear(m, x, "3", m->opts->num_classes);
}

const td_family td_family_mobilenet_v3 = {
    .name = "mobilenet_v3",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "classifier.3",
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth",
};
