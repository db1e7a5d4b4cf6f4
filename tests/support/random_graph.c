/*
 * random_graph.c -- grows a graph: picks a value, appends a random op, adds the result to the pool
 *
 * Images (rank 4) and rows (rank 2) are pooled apart.  Shapes are small and odd; channels are now
 * and then multiples of 16, so that blocked layouts, padded ones and plain ones meet.  Blocks that
 * the fuse and fold passes look for come more often than chance would make them.
 */
#include "support/random_graph.h"

#include <stdio.h>

#include "base/rng.h"
#include "ir/build.h"
#include "ops/ops.h"
#include "support/expect.h"
#include "support/graphs.h"

#define POOL_MAX     40
#define ELEMENTS_MAX 6000 /* of an image */

typedef struct {
    td_rng rng;
    td_builder *b;
    td_random_kind kind;
    td_dtype dtype;
    td_value *image[POOL_MAX], *row[POOL_MAX];
    int n_images, n_rows, n_params;
    bool is_training;
    td_value *random; /* NULL: not yet */
} maker;

static int below(maker *m, int n)
{
    return (int)td_rng_below(&m->rng, (uint64_t)n);
}

static bool chance(maker *m, int percent)
{
    return below(m, 100) < percent;
}

static td_value *param(maker *m, int rank, const int64_t *dim, const char *attrs)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", m->n_params++);
    return td_param(m->b, name, m->dtype, rank, dim, attrs);
}

static td_value *weights(maker *m, int rank, const int64_t *dim)
{
    return param(m, rank, dim, "init=normal, scale=0.3");
}

static const int64_t *dims(const td_value *v)
{
    return v->type.dim;
}

static td_value *any_image(maker *m)
{
    int n = m->n_images; /* the latest more often */
    return m->image[chance(m, 60) ? n - 1 : below(m, n)];
}

static td_value *like(maker *m, const td_value *x)
{
    for (int tries = 0; tries < 8; tries++) {
        td_value *y = m->image[below(m, m->n_images)];
        if (td_type_same_shape(&y->type, &x->type))
            return y;
    }
    return NULL;
}

/* --- convolutions and norms ------------------------------------------------------------------- */

static td_value *conv_to(maker *m, td_value *x, int64_t n_out, int side, const char *attrs,
                         int groups)
{
    td_value *w = weights(m, 4, (int64_t[]){ n_out, dims(x)[1] / groups, side, side });
    return td_conv2d(m->b, x, w, attrs);
}

static td_value *same_conv(maker *m, td_value *x)
{
    return conv_to(m, x, dims(x)[1], 3, "pad=1", 1);
}

static td_value *any_conv(maker *m, td_value *x)
{
    static const int channels[] = { 1, 3, 8, 16, 16, 20, 32 };
    char attrs[96];
    int side = 1 + below(m, 3), stride = 1 + chance(m, 25), dilation = 1 + chance(m, 15);
    int groups = 1;
    int64_t n_out = channels[below(m, 7)];
    if (chance(m, 25) && dims(x)[1] % 2 == 0) {
        groups = chance(m, 40) ? (int)dims(x)[1] : 2;
        n_out = groups * (1 + below(m, 3));
    }
    snprintf(attrs, sizeof attrs, "stride=%d, pad=%d, dilation=%d, groups=%d", stride,
             dilation * (side - 1), dilation, groups);
    td_value *w = weights(m, 4, (int64_t[]){ n_out, dims(x)[1] / groups, side, side });
    if (m->kind != TD_RANDOM_INFER || chance(m, 70))
        return td_conv2d(m->b, x, w, attrs);
    const td_op *op = &td_op_conv2d_fused;
    td_value *bias = chance(m, 70) ? weights(m, 1, &n_out) : NULL;
    return td_emit(m->b, op, td_build_attr(m->b, op, attrs), x, w, bias);
}

static td_value *norm(maker *m, td_value *x)
{
    const int64_t *c = &dims(x)[1];
    td_value *gamma = param(m, 1, c, chance(m, 50) ? "init=ones" : "init=normal, scale=0.7");
    td_value *beta = param(m, 1, c, "init=normal, scale=0.2");
    bool is_frozen = m->kind == TD_RANDOM_INFER || chance(m, 15);
    const char *mean_init = is_frozen ? "role=stat, init=normal, scale=0.1" : "role=stat";
    td_value *mean = param(m, 1, c, mean_init), *var = param(m, 1, c, "role=stat, init=ones");
    if (is_frozen)
        return td_batch_norm_infer(m->b, x, gamma, beta, mean, var, "eps=0.1");
    return td_batch_norm_train(m->b, x, gamma, beta, mean, var, "eps=0.1");
}

static td_value *norm_relu(maker *m, td_value *x)
{
    return td_relu(m->b, norm(m, x));
}

static td_value *residual_block(maker *m, td_value *x)
{
    td_value *y = norm(m, same_conv(m, x)), *z = like(m, x);
    if (chance(m, 30)) /* a second norm on the other way */
        z = norm(m, same_conv(m, x));
    td_value *sum = chance(m, 50) ? td_add(m->b, y, z ? z : x) : td_add(m->b, z ? z : x, y);
    return chance(m, 80) ? td_relu(m->b, sum) : sum;
}

static td_value *conv_block(maker *m, td_value *x)
{
    td_value *y = any_conv(m, x);
    if (chance(m, 70))
        y = norm(m, y);
    return chance(m, 70) ? td_relu(m->b, y) : y;
}

/* --- the others ------------------------------------------------------------------------------- */

static td_value *activation(maker *m, td_value *x)
{
    static const td_op *const ops[] = {
        &td_op_relu, &td_op_relu6,       &td_op_sigmoid, &td_op_silu, &td_op_hardswish,
        &td_op_tanh, &td_op_hardsigmoid, &td_op_gelu,    &td_op_elu,  &td_op_leaky_relu,
        &td_op_clip, &td_op_gelu_tanh,   &td_op_erf,     &td_op_abs,
    };
    return td_emit(m->b, ops[below(m, (int)(sizeof ops / sizeof *ops))], NULL, x);
}

static td_value *pool(maker *m, td_value *x)
{
    int64_t least = dims(x)[2] < dims(x)[3] ? dims(x)[2] : dims(x)[3];
    if (least < 3)
        return activation(m, x);
    if (chance(m, 50))
        return td_max_pool2d(m->b, x, chance(m, 50) ? "kernel=3, stride=2, pad=1" : "stride=2");
    return td_avg_pool2d(m->b, x,
                         chance(m, 50) ? "stride=2" : "kernel=3, pad=1, count_include_pad=false");
}

/* another operand for add and mul: of the same shape, the same value, or one that is repeated */
static td_value *partner(maker *m, td_value *x)
{
    const int64_t *d = dims(x);
    td_value *y = like(m, x);
    switch (below(m, 6)) {
    case 0:
        return weights(m, 3, (int64_t[]){ d[1], 1, 1 });
    case 1:
        return weights(m, 4, (int64_t[]){ d[0], d[1], 1, 1 });
    case 2:
        return weights(m, 0, NULL);
    case 3:
        return weights(m, 1, &d[3]);
    case 4:
        return x;
    default:
        return y ? y : x;
    }
}

static td_value *binary(maker *m, td_value *x)
{
    td_value *y = partner(m, x), *a = chance(m, 50) ? x : y, *b = a == x ? y : x;
    static const td_op *const ops[] = { &td_op_add, &td_op_mul, &td_op_add, &td_op_mul,
                                        &td_op_sub, &td_op_max, &td_op_min };
    return td_emit(m->b, ops[below(m, (int)(sizeof ops / sizeof *ops))], NULL, a, b);
}

static td_value *join(maker *m, td_value *x)
{
    td_value *y = like(m, x), *parts[3] = { x, y ? y : x, x };
    int axis = below(m, 4), n = 2 + below(m, 2);
    if (axis == 0) /* the batch stays what it is */
        axis = 1;
    return td_concat(m->b, n, parts, axis);
}

static td_value *cut(maker *m, td_value *x)
{
    char attrs[64];
    int axis = 1 + below(m, 3);
    int64_t size = 1 + below(m, (int)dims(x)[axis]);
    int64_t start = below(m, (int)(dims(x)[axis] - size + 1));
    int64_t step = chance(m, 25) ? 2 : 1;
    snprintf(attrs, sizeof attrs, "axis=%d, start=%lld, size=%lld, step=%lld", axis,
             (long long)start, (long long)((size + step - 1) / step), (long long)step);
    td_value *y;
    td_apply(m->b, "slice", 1, &x, attrs, 1, &y);
    return y;
}

/* some channels, one of them twice */
static td_value *picked(maker *m, td_value *x)
{
    char attrs[96];
    td_value *index, *y;
    (void)snprintf(attrs, sizeof attrs, "type=\"i64[3]\", values=\"%lld@2:0\"",
                   (long long)dims(x)[1] - 1);
    td_apply(m->b, "constant", 0, NULL, attrs, 1, &index);
    td_apply(m->b, "gather", 2, (td_value *[]){ x, index }, "axis=1", 1, &y);
    return y;
}

static td_value *squeeze(maker *m, td_value *x)
{
    int64_t c = dims(x)[1], hidden = 1 + below(m, 4);
    bool four = chance(m, 50);
    int rank = four ? 4 : 2;
    td_value *w1 = weights(m, rank, (int64_t[]){ hidden, c, 1, 1 }), *b1 = weights(m, 1, &hidden);
    td_value *w2 = weights(m, rank, (int64_t[]){ c, hidden, 1, 1 }), *b2 = weights(m, 1, &c), *y;
    if (chance(m, 50))
        return td_squeeze_excite(m->b, x, w1, b1, w2, b2);
    td_apply(m->b, "squeeze_excite", 5, (td_value *[]){ x, w1, b1, w2, b2 },
             chance(m, 50) ? "hidden=silu" : "hidden=silu, gate=hardsigmoid", 1, &y);
    return y;
}

/* the same elements as an image of another shape, and perhaps back */
static td_value *fold_shape(maker *m, td_value *x)
{
    const int64_t *d = dims(x);
    td_value *y = td_reshape(m->b, x, 4, (int64_t[]){ d[0], d[1], d[3], d[2] });
    if (chance(m, 40))
        y = td_relu6(m->b, y);
    if (chance(m, 40))
        y = td_add(m->b, td_reshape(m->b, y, 4, d), x);
    return y;
}

/* the dimensions of one image in another order, and perhaps a relu on the way */
static td_value *turned(maker *m, td_value *x)
{
    static const int orders[5][4] = {
        { 0, 2, 3, 1 }, { 0, 3, 1, 2 }, { 0, 1, 3, 2 }, { 0, 2, 1, 3 }, { 0, 3, 2, 1 }
    };
    td_value *y = td_transpose(m->b, x, orders[below(m, 5)]);
    if (chance(m, 40))
        y = td_transpose(m->b, td_relu(m->b, y), orders[below(m, 5)]);
    return y;
}

/* x times a weight that is repeated for all images and rows */
static td_value *repeated(maker *m, td_value *x)
{
    char attrs[64];
    const int64_t *d = dims(x);
    td_value *w = weights(m, 3, (int64_t[]){ d[1], 1, d[3] }), *y;
    (void)snprintf(attrs, sizeof attrs, "shape=%lld:-1:%lld:%lld", (long long)d[0], (long long)d[2],
                   (long long)d[3]);
    w = td_reshape(m->b, w, 4, (int64_t[]){ 1, d[1], 1, d[3] });
    td_apply(m->b, "broadcast_to", 1, &w, attrs, 1, &y);
    return td_mul(m->b, y, x);
}

/* rows normalised by their own statistics */
static td_value *row_norm(maker *m, td_value *x)
{
    const int64_t *w = &dims(x)[3];
    td_value *in[3] = { x, param(m, 1, w, "init=normal, scale=0.7"),
                        param(m, 1, w, "init=normal, scale=0.2") };
    td_value *out[3];
    td_apply(m->b, "layer_norm", 3, in, "eps=0.1", 3, out);
    return out[0];
}

/* ConvNeXt's half block: two linear layers for each pixel, factors of channels, + x */
static td_value *pixel_rows(maker *m, td_value *x)
{
    const int64_t *d = dims(x), k = 1 + below(m, 20);
    const int64_t rows[2] = { d[0] * d[2] * d[3], d[1] }, four[4] = { d[0], d[2], d[3], d[1] };
    td_value *y = td_transpose(m->b, x, (const int[]){ 0, 2, 3, 1 }), *hidden;
    y = td_reshape(m->b, y, 2, rows);
    y = td_linear(m->b, y, weights(m, 2, (int64_t[]){ k, d[1] }), weights(m, 1, &k));
    td_apply(m->b, chance(m, 70) ? "gelu" : "tanh", 1, &y, NULL, 1, &hidden);
    y = td_linear(m->b, hidden, weights(m, 2, (int64_t[]){ d[1], k }),
                  chance(m, 70) ? weights(m, 1, &d[1]) : NULL);
    y = td_transpose(m->b, td_reshape(m->b, y, 4, four), (const int[]){ 0, 3, 1, 2 });
    if (chance(m, 60))
        y = td_mul(m->b, y, weights(m, 3, (int64_t[]){ d[1], 1, 1 }));
    return chance(m, 70) ? td_add(m->b, y, x) : y;
}

/* x times a matrix for all rows, or attention's products of x with itself */
static td_value *product(maker *m, td_value *x)
{
    const int64_t *d = dims(x);
    int64_t k = 1 + below(m, 5);
    td_value *w;
    if (chance(m, 50)) {
        w = weights(m, 2, (int64_t[]){ k, d[3] });
        return td_matmul(m->b, x, false, w, true, chance(m, 50) ? weights(m, 1, &k) : NULL);
    }
    w = td_softmax(m->b, td_matmul(m->b, x, false, x, true, NULL));
    return td_matmul(m->b, w, chance(m, 30), x, false, NULL);
}

/* the form without random numbers, or with those of an input */
static td_value *dropped(maker *m, td_value *x)
{
    td_value *in[2] = { x, NULL }, *y;
    const bool is_on = chance(m, 80);
    char attrs[64];
    if (is_on && !m->random)
        m->random = td_input(m->b, "random", td_type_1d(TD_DT_I64, 3));
    in[1] = m->random;
    snprintf(attrs, sizeof attrs, "p=0.3, id=%d, mode=%s", (int)below(m, 1000),
             chance(m, 50) ? "row" : "element");
    td_apply(m->b, "dropout", is_on ? 2 : 1, in, attrs, 1, &y);
    return y;
}

static td_value *scaled(maker *m, td_value *x)
{
    td_value *y;
    td_apply(m->b, "scale", 1, &x, chance(m, 30) ? NULL : "by=-0.75", 1, &y);
    return y;
}

static td_value *there_and_back(maker *m, td_value *x)
{
    if (m->kind == TD_RANDOM_GRADIENTS || m->dtype != TD_DT_F32)
        return scaled(m, x);
    return td_cast(m->b, td_cast(m->b, x, TD_DT_F64), m->dtype);
}

static td_value *resized(maker *m, td_value *x)
{
    return td_resize_nearest(m->b, x, 1 + below(m, 7), 1 + below(m, 7));
}

typedef td_value *grow_fn(maker *m, td_value *x);
static grow_fn *const grow[] = { conv_block,     conv_block, conv_block, residual_block,
                                 residual_block, norm_relu,  activation, pool,
                                 binary,         binary,     join,       cut,
                                 squeeze,        fold_shape, scaled,     resized,
                                 there_and_back, turned,     repeated,   row_norm,
                                 product,        dropped,    picked,     pixel_rows };

static void to_row(maker *m, td_value *x)
{
    const int64_t *d = dims(x);
    td_value *row = chance(m, 60) ? td_global_avg_pool(m->b, x)
                                  : td_reshape(m->b, x, 2, (int64_t[]){ d[0], d[1] * d[2] * d[3] });
    if (chance(m, 60)) {
        int64_t k = 2 + below(m, 6);
        td_value *w = weights(m, 2, (int64_t[]){ k, dims(row)[1] });
        row = td_linear(m->b, row, w, chance(m, 70) ? weights(m, 1, &k) : NULL);
    }
    if (chance(m, 30))
        row = td_softmax(m->b, row);
    if (m->n_rows < POOL_MAX)
        m->row[m->n_rows++] = row;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* a row as the scores or deltas of one anchor */
static td_value *detector_loss(maker *m, td_value *row, td_value *labels)
{
    const int64_t N = dims(row)[0], K = dims(row)[1];
    td_value *l = td_reshape(m->b, labels, 2, (int64_t[]){ N, 1 }), *deltas, *target;
    td_value *scores = td_reshape(m->b, row, 3, (int64_t[]){ N, 1, K });
    char attrs[64];
    if (K < 4 || chance(m, 60))
        return chance(m, 50) ? td_sigmoid_focal_loss(m->b, scores, l, NULL)
                             : td_multibox_class_loss(m->b, scores, l, NULL);
    td_apply(m->b, "slice", 1, &scores, "axis=2, size=4", 1, &deltas);
    (void)snprintf(attrs, sizeof attrs, "value=0.3, type=\"%s[%lld,1,4]\"", td_dtype_name(m->dtype),
                   (long long)N);
    td_apply(m->b, "constant", 0, NULL, attrs, 1, &target);
    return td_huber_box_loss(m->b, deltas, target, l, chance(m, 50) ? "per_image=true" : NULL);
}

static td_value *loss_of(maker *m, td_value *labels)
{
    td_value *loss = NULL;
    for (int i = 0; i < m->n_rows; i++) {
        td_value *row = m->row[i], *part;
        if (i == 0 && dims(row)[1] > 1) {
            td_value *q = td_one_hot(m->b, labels, (int)dims(row)[1], 0.1);
            part = td_mean(m->b, td_softmax_cross_entropy(m->b, row, td_cast(m->b, q, m->dtype)));
        } else if (dims(row)[1] > 1 && chance(m, 50)) {
            part = detector_loss(m, row, labels);
        } else {
            part = chance(m, 50) ? td_mean(m->b, td_mul(m->b, row, row)) : td_mean(m->b, row);
        }
        loss = loss ? td_add(m->b, loss, part) : part;
    }
    return loss;
}

/* what the loss depends on; [values] by id */
static void mark(const td_value *v, bool *seen)
{
    if (seen[v->id])
        return;
    seen[v->id] = true;
    for (int i = 0; i < v->producer->n_in; i++)
        mark(v->producer->in[i], seen);
}

static void add_gradients(maker *m, td_value *loss, td_value *lr)
{
    int n = td_build_param_count(m->b);
    bool seen[4096] = { false };
    td_value *grad[512] = { NULL };
    if (!td_build_ok(m->b))
        return;
    assert_true(loss->id < 4096 && n < 512);
    mark(loss, seen);
    for (int i = 0; i < n; i++) {
        td_value *w = td_build_param(m->b, i);
        bool is_weight = ((const td_param_attr *)w->producer->attr)->role == TD_ROLE_WEIGHT;
        if (is_weight && seen[w->id])
            grad[i] = td_gradient(m->b, loss, w);
    }
    for (int i = 0; i < n; i++) {
        char name[32];
        td_value *w = td_build_param(m->b, i);
        if (grad[i] && m->kind == TD_RANDOM_GRADIENTS) {
            snprintf(name, sizeof name, "d.%s", td_value_name(w));
            td_output(m->b, name, grad[i]);
        } else if (grad[i]) {
            snprintf(name, sizeof name, "m.%s", td_value_name(w));
            td_value *v =
                td_param(m->b, name, m->dtype, w->type.rank, w->type.dim, "role=momentum");
            td_sgd(m->b, w, v, grad[i], lr,
                   chance(m, 50) ? "momentum=0.9, decay=1e-3" : "momentum=0.5, nesterov=true");
        }
    }
}

static void give_out(maker *m)
{
    char name[16];
    for (int i = 0; i < 3 && i < m->n_images; i++) {
        snprintf(name, sizeof name, "y%d", i);
        td_output(m->b, name, m->image[m->n_images - 1 - i]);
    }
    for (int i = 0; i < m->n_rows; i++) {
        snprintf(name, sizeof name, "r%d", i);
        td_output(m->b, name, m->row[i]);
    }
}

td_graph *td_random_graph(uint64_t seed, td_random_kind kind, td_dtype dtype)
{
    static const int channels[] = { 1, 3, 8, 16, 16, 20, 32 };
    maker m = { .rng = td_rng_make(seed, TD_RNG_TEST, (uint64_t)kind, 0),
                .b = td_build_begin(),
                .kind = kind,
                .dtype = dtype };
    int64_t dim[4] = { 1 + below(&m, 3), channels[below(&m, 7)], 2 + below(&m, 8),
                       2 + below(&m, 8) };
    td_graph *g;

    m.image[m.n_images++] = td_input(m.b, "images", td_type_of(dtype, 4, dim));
    td_value *labels = td_input(m.b, "labels", td_type_1d(TD_DT_I64, dim[0]));
    td_value *lr = kind == TD_RANDOM_TRAIN ? td_input(m.b, "lr", td_type_scalar(dtype)) : NULL;
    for (int steps = 3 + below(&m, 12); steps > 0 && m.n_images < POOL_MAX; steps--) {
        td_value *y = grow[below(&m, (int)(sizeof grow / sizeof *grow))](&m, any_image(&m));
        if (td_type_count(&y->type) <= ELEMENTS_MAX)
            m.image[m.n_images++] = y;
        if (chance(&m, 15))
            to_row(&m, any_image(&m));
    }
    to_row(&m, m.image[m.n_images - 1]);
    if (kind != TD_RANDOM_GRADIENTS)
        give_out(&m);
    if (kind != TD_RANDOM_INFER) {
        td_value *loss = loss_of(&m, labels);
        td_output(m.b, "loss", loss);
        add_gradients(&m, loss, lr);
    }
    expect_ok(td_build_end(m.b, &g));
    return g;
}
