/*
 * vit.c -- vision transformers: a table, and their builder
 *
 *   stem      P x P / P convolution with bias: a token for each patch; the class token before them;
 *             plus a position embedding for each token
 *   block     LN, attention, + the block's input;  LN, linear to 4 E, gelu, linear, + what entered
 *             (--dropout: of the sum of embeddings, attention, gelu and the second linear layer)
 *   head      LN of the class token, linear with bias
 *
 *   attention   q, k, v = one linear layer of 3 E rows, as heads of 64 channels;
 *               softmax(q k^T / 8) v, then a linear layer
 *
 * Tokens are rows, [N T, E].  The class token is the first row of an embedding that is zero in the
 * others, [1, T, E], added to patches with a first row of zeros: neither depends on the batch.
 *
 *   patches     normal, sqrt(1 / fan in) (torchvision's are truncated at 2, far out); bias 0
 *   embedding   positions normal, 0.02; class token 0
 *   linear      uniform in +-sqrt(6 / (inputs + outputs)); biases 0, in the MLP normal, 1e-6;
 *               attention's last in +-1 / sqrt(inputs); the head 0
 *
 * Source: Dosovitskiy et al. 2021; agrees with torchvision 0.29.
 */
#include <math.h>

#include "model/layers.h"

#define HEAD_CHANNELS 64
#define SIDE_MAX      2048 /* that a weight file may have */
#define DROPOUT       0    /* unless --dropout is given */

typedef struct {
    int patch, blocks, width; /* side of a patch, E */
} numbers;

/* clang-format off */
#define ROW(name, ...) { name, &td_family_vit, 224, &(const numbers){ __VA_ARGS__ }, 0, 0 }

static const td_arch rows[] = {
    ROW("vit_b_16", 16, 12,  768),
    ROW("vit_b_32", 32, 12,  768),
    ROW("vit_l_16", 16, 24, 1024),
    ROW("vit_l_32", 32, 24, 1024),
};
/* clang-format on */

/* sizes of the network that is being built */
typedef struct {
    td_net *m;
    int64_t N, T, E;
} vit;

static td_param_attr begins_patches(int64_t taps, int64_t n_in, int64_t n_out, int groups)
{
    (void)n_out;
    (void)groups;
    return td_net_begins(TD_INIT_NORMAL, sqrt(1 / (double)(taps * n_in)));
}

static td_param_attr begins_xavier(int64_t n_in, int64_t n_out)
{
    return td_net_begins(TD_INIT_UNIFORM, sqrt(6 / (double)(n_in + n_out)));
}

/* rows or columns of patches in an image */
static int64_t patches_of(td_net *m, int64_t side, int patch)
{
    if (side % patch)
        td_build_fail(m->b, td_error(TD_ESHAPE, "'%s': image size %lld, wanted a multiple of %d",
                                     m->arch->name, (long long)side, patch));
    return side / patch;
}

/* images -> tokens [N T, E] */
static td_value *embed(vit *v, td_value *images, int patch)
{
    td_net *m = v->m;
    const int64_t *d = images->type.dim;
    const int64_t patches = patches_of(m, d[2], patch) * patches_of(m, d[3], patch);
    const td_pad_attr before = { .axis = 1, .before = 1 };
    const td_pad_attr after = { .axis = 1, .after = (int)patches };
    *v = (vit){ m, d[0], patches + 1, v->E };
    td_net_prefix(m, "%s", "");
    td_value *token = td_net_param(m, "", "class_token", 3, (int64_t[]){ 1, 1, v->E },
                                   td_net_begins(TD_INIT_ZEROS, 1));
    td_value *x = td_net_patches(m, images, "conv_proj", v->E, patch);
    td_value *at = td_net_param(m, "encoder", "pos_embedding", 3, (int64_t[]){ 1, v->T, v->E },
                                td_net_begins(TD_INIT_NORMAL, 0.02));
    x = td_reshape(m->b, x, 3, (int64_t[]){ v->N, v->E, patches });
    x = td_transpose(m->b, x, (const int[]){ 0, 2, 1 });
    at = td_add(m->b, at, td_emit(m->b, &td_op_pad, &after, token));
    x = td_net_dropout(m, td_add(m->b, td_emit(m->b, &td_op_pad, &before, x), at), DROPOUT);
    return td_reshape(m->b, x, 2, (int64_t[]){ v->N * v->T, v->E });
}

/* q, k or v: part i of qkv [3, N, heads, T, 64] */
static td_value *part_of(vit *v, td_value *qkv, int i)
{
    const td_slice_attr part = { .axis = 0, .start = i, .size = 1, .step = 1 };
    const int64_t dim[4] = { v->N, v->E / HEAD_CHANNELS, v->T, HEAD_CHANNELS };
    return td_reshape(v->m->b, td_emit(v->m->b, &td_op_slice, &part, qkv), 4, dim);
}

/* tokens [N T, E] that read each other */
static td_value *attention(vit *v, td_value *x)
{
    td_net *m = v->m;
    const int64_t E = v->E, heads = E / HEAD_CHANNELS;
    const int64_t split[5] = { v->N, v->T, 3, heads, HEAD_CHANNELS };
    const int64_t joined[2] = { v->N * v->T, E };
    const td_param_attr zeros = td_net_begins(TD_INIT_ZEROS, 1);
    const td_scale_attr by = { 1 / sqrt(HEAD_CHANNELS) };
    td_value *w = td_net_param(m, "self_attention", "in_proj_weight", 2, (int64_t[]){ 3 * E, E },
                               begins_xavier(E, 3 * E));
    td_value *bias = td_net_vector(m, "self_attention", "in_proj_bias", 3 * E, zeros);
    td_value *qkv = td_reshape(m->b, td_linear(m->b, x, w, bias), 5, split);
    qkv = td_transpose(m->b, qkv, (const int[]){ 2, 0, 3, 1, 4 });
    td_value *q = td_emit(m->b, &td_op_scale, &by, part_of(v, qkv, 0));
    td_value *share = td_softmax(m->b, td_matmul(m->b, q, false, part_of(v, qkv, 1), true, NULL));
    td_value *y = td_matmul(m->b, share, false, part_of(v, qkv, 2), false, NULL);
    y = td_reshape(m->b, td_transpose(m->b, y, (const int[]){ 0, 2, 1, 3 }), 2, joined);
    y = td_net_linear(m, y, "self_attention.out_proj", E, td_net_uniform(1, E, E, 1), zeros);
    return td_net_dropout(m, y, DROPOUT);
}

static td_value *mlp(vit *v, td_value *x)
{
    td_net *m = v->m;
    const td_param_attr weights = begins_xavier(v->E, 4 * v->E);
    const td_param_attr biases = td_net_begins(TD_INIT_NORMAL, 1e-6);
    x = td_net_linear(m, x, "mlp.0", 4 * v->E, weights, biases);
    x = td_net_dropout(m, td_emit(m->b, &td_op_gelu, NULL, x), DROPOUT);
    return td_net_dropout(m, td_net_linear(m, x, "mlp.3", v->E, weights, biases), DROPOUT);
}

static td_value *class_token(vit *v, td_value *x)
{
    const td_slice_attr first = { .axis = 1, .start = 0, .size = 1, .step = 1 };
    x = td_reshape(v->m->b, x, 3, (int64_t[]){ v->N, v->T, v->E });
    x = td_emit(v->m->b, &td_op_slice, &first, x);
    return td_reshape(v->m->b, x, 2, (int64_t[]){ v->N, v->E });
}

static td_value *build(td_net *m, td_value *images)
{
    const numbers *net = m->arch->numbers;
    const td_param_attr zeros = td_net_begins(TD_INIT_ZEROS, 1);
    vit v = { .m = m, .E = net->width };
    m->eps = 1e-6;
    m->begin_filters = begins_patches;
    td_value *x = embed(&v, images, net->patch);
    for (int i = 0; i < net->blocks; i++) {
        td_net_prefix(m, "encoder.layers.encoder_layer_%d.", i);
        x = td_add(m->b, attention(&v, td_net_layer_norm(m, x, "ln_1")), x);
        x = td_add(m->b, mlp(&v, td_net_layer_norm(m, x, "ln_2")), x);
    }
    td_net_prefix(m, "%s", "");
    x = td_net_layer_norm(m, class_token(&v, x), "encoder.ln");
    return td_net_linear(m, x, "heads.head", m->opts->num_classes, zeros, zeros);
}

/* of a square image */
static int side_of(const td_arch *arch, int64_t tokens)
{
    const numbers *net = arch->numbers;
    int64_t n = 1;
    while (n < SIDE_MAX / net->patch && n * n + 1 < tokens)
        n++;
    return n * n + 1 == tokens ? (int)n * net->patch : 0;
}

const td_family td_family_vit = {
    .name = "vit",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .build = build,
    .head = "heads.head",
    .side_min = 32,
    .positions = "encoder.pos_embedding",
    .side_of = side_of,
    .lacks = TD_ARCH_LACKS_RESIDUAL ",stochastic_depth,bn_epsilon,bn_momentum",
};
