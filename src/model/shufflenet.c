/*
 * shufflenet.c -- ShuffleNet V2: a table, and their builder
 *
 *   stem     3x3/2 convolution with 24 channels, BN, relu, 3x3/2 max-pool
 *   block    half of the channels as they are; the others through
 *            1x1 BN relu  3x3 depthwise BN  1x1 BN relu; joined and shuffled in two groups
 *   stage's first block, stride 2
 *            all channels through both: 3x3/2 depthwise BN  1x1 BN relu, and the above
 *   head     1x1 BN relu, mean over the map, linear with bias
 *
 * All weights and the bias are uniform in +-1 / sqrt(fan in).
 *
 * Source: Ma et al. 2018; agrees with torchvision 0.29.
 */
#include "model/layers.h"

#define STAGES 3
#define STEM   24

typedef struct {
    int widths[STAGES], last; /* channels after each stage, and before the linear layer */
} numbers;

/* clang-format off */
#define ROW(name, ...) { name, &td_family_shufflenet, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("shufflenet_v2_x0_5", {  48,  96, 192 }, 1024),
    ROW("shufflenet_v2_x1_0", { 116, 232, 464 }, 1024),
    ROW("shufflenet_v2_x1_5", { 176, 352, 704 }, 1024),
    ROW("shufflenet_v2_x2_0", { 244, 488, 976 }, 2048),
};
/* clang-format on */

static const int depths[STAGES] = { 4, 8, 4 };

static td_value *conv_norm(td_net *m, td_value *x, const char *conv, const char *norm, int n_out)
{
    return td_net_norm(m, td_net_conv(m, x, conv, n_out, 1, 1, 1), norm, false);
}

static td_value *depthwise_norm(td_net *m, td_value *x, const char *conv, const char *norm,
                                int stride)
{
    const int c = (int)td_net_channels(x);
    return td_net_norm(m, td_net_conv(m, x, conv, c, 3, stride, c), norm, false);
}

static td_value *branch(td_net *m, td_value *x, int n_out, int stride)
{
    x = td_net_act(m, conv_norm(m, x, "branch2.0", "branch2.1", n_out));
    x = depthwise_norm(m, x, "branch2.3", "branch2.4", stride);
    return td_net_act(m, conv_norm(m, x, "branch2.5", "branch2.6", n_out));
}

/* channels 0, n, 1, n + 1, .. of the joined halves */
static td_value *join_shuffled(td_net *m, td_value *const *halves)
{
    td_value *x = td_concat(m->b, 2, halves, 1);
    const int64_t *d = x->type.dim, flat[4] = { d[0], d[1], d[2], d[3] };
    const int64_t grouped[5] = { d[0], 2, d[1] / 2, d[2], d[3] };
    x = td_reshape(m->b, x, 5, grouped);
    return td_reshape(m->b, td_transpose(m->b, x, (const int[]){ 0, 2, 1, 3, 4 }), 4, flat);
}

static td_value *half(td_net *m, td_value *x, int i)
{
    const int64_t n = td_net_channels(x) / 2;
    const td_slice_attr a = { .axis = 1, .start = i * n, .size = n, .step = 1 };
    return td_emit(m->b, &td_op_slice, &a, x);
}

static td_value *first_block(td_net *m, td_value *x, int width)
{
    td_value *halves[2];
    halves[0] = depthwise_norm(m, x, "branch1.0", "branch1.1", 2);
    halves[0] = td_net_act(m, conv_norm(m, halves[0], "branch1.2", "branch1.3", width / 2));
    halves[1] = branch(m, x, width / 2, 2);
    return join_shuffled(m, halves);
}

static td_value *block(td_net *m, td_value *x, int width)
{
    td_value *halves[2];
    halves[0] = half(m, x, 0);
    halves[1] = branch(m, half(m, x, 1), width / 2, 1);
    return join_shuffled(m, halves);
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    m->begin_filters = td_net_uniform;
    td_net_prefix(m, "%s", "");
    td_value *x = td_net_conv(m, images, "conv1.0", STEM, 3, 2, 1);
    x = td_net_max_pool(m, td_net_act(m, td_net_norm(m, x, "conv1.1", false)), 3, 2);
    for (int i = 0; i < STAGES; i++)
        for (int k = 0; k < depths[i]; k++) {
            td_net_prefix(m, "stage%d.%d.", i + 2, k);
            x = k == 0 ? first_block(m, x, net->widths[i]) : block(m, x, net->widths[i]);
        }
    td_net_prefix(m, "%s", "");
    x = td_net_act(m, conv_norm(m, x, "conv5.0", "conv5.1", net->last));
    x = td_global_avg_pool(m->b, x);
    const td_param_attr begins = td_net_uniform(1, td_net_channels(x), 0, 1);
    return td_net_linear(m, x, "fc", m->opts->num_classes, begins, begins);
}

const td_family td_family_shufflenet = {
    .name = "shufflenet",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "fc",
    .side_min = 8,
    .lacks = TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT,
};
