/*
 * model/layers.h -- the parts of networks: parameters and layers
 *
 *     td_net m = td_net_begin(b, arch, opts, is_training);
 *     td_net_prefix(&m, "features.%d.", 0);
 *     td_value *x = td_net_conv(&m, images, "conv", 64, 3, 1, 1);
 *     x = td_net_act(&m, td_net_norm(&m, x, "bn", false));
 *
 * A layer's parameters are named prefix + layer + ".weight" and so on.  The members of a td_net
 * describe the differences between networks; a builder may change them between calls.
 */
#ifndef TD_MODEL_LAYERS_H
#define TD_MODEL_LAYERS_H

#include "model/arch.h"
#include "model/dropout_source.h"
#include "ops/ops.h"

/* Initial values of filters with `taps` taps, from n_in channels per group to n_out. */
typedef td_param_attr (*td_net_begin_filters)(int64_t taps, int64_t n_in, int64_t n_out,
                                              int groups);

struct td_net {
    td_builder *b;
    const td_arch *arch;
    const td_model_opts *opts;
    td_dtype dtype;
    bool is_training;
    bool has_features; /* results of stages become outputs */

    bool is_same_padded;                /* padding SAME: gives ceil(side / stride) windows */
    const td_op *activation;            /* of td_net_act; NULL: relu */
    double eps, momentum;               /* of the norms, unless an option sets it */
    const td_param_attr *init;          /* of convolutions; NULL: as `begin_filters` */
    td_net_begin_filters begin_filters; /* NULL: depends on variant and options */
    bool has_zero_ends;                 /* gamma of each branch's last norm is initialized to 0 */

    char prefix[64];                           /* "layer1.0." */
    const char *root;                          /* prefix of every name: "backbone." */
    const char *stem_conv, *stem_norm, *stage; /* "conv1", "bn1", "layer" */
    int first_stage;                           /* number of the first stage in names */

    int block, n_blocks; /* with stochastic depth: the residual block in the making, of how many */

    td_dropout_source dropout;
};

/** Names and rules of a classifier; opts->dtype 0 is float32. */
td_net td_net_begin(td_builder *b, const td_arch *arch, const td_model_opts *opts,
                    bool is_training);

/** Begin the following names with root + this text; formatted like printf, truncated to fit. */
void td_net_prefix(td_net *m, const char *format, ...) TD_PRINTF(2, 3);

static inline int64_t td_net_channels(const td_value *v)
{
    return v->type.dim[1];
}

/* --- parameters ------------------------------------------------------------------------------- */

/** The parameter prefix + layer + "." + part; layer "": prefix + part. */
td_value *td_net_param(td_net *m, const char *layer, const char *part, int rank, const int64_t *dim,
                       td_param_attr attr);
td_value *td_net_vector(td_net *m, const char *layer, const char *part, int64_t n,
                        td_param_attr attr);

/** The fan that the options select. */
double td_net_fan(const td_net *m, int64_t n_in, int64_t n_out);

/** Attributes of a weight with this initialization. */
td_param_attr td_net_begins(td_init init, double scale);

/** PyTorch's kaiming_normal_ for relu: normal, sqrt(2 / fan), with taps * n_in (* n_out). */
td_param_attr td_net_normal_fan_in(int64_t taps, int64_t n_in, int64_t n_out, int groups);
td_param_attr td_net_normal_fan_out(int64_t taps, int64_t n_in, int64_t n_out, int groups);

/** What PyTorch's layers have by default: uniform in +-1 / sqrt(taps * n_in). */
td_param_attr td_net_uniform(int64_t taps, int64_t n_in, int64_t n_out, int groups);

/* --- layers ----------------------------------------------------------------------------------- */

/** Filters with `side` x `side` taps, from n_in channels (per group) to n_out. */
td_value *td_net_filter(td_net *m, const char *name, int64_t n_in, int64_t n_out, int side,
                        int groups);

/** Convolution with filters w, padded so that stride 1 keeps the image's size. */
td_value *td_net_conv_with(td_net *m, td_value *x, td_value *w, int stride, int groups);

/** Filter and convolution together. */
td_value *td_net_conv(td_net *m, td_value *x, const char *name, int64_t n_out, int side, int stride,
                      int groups);

/** Convolution with bias 0 at first, of the windows of side x side that tile x without padding. */
td_value *td_net_patches(td_net *m, td_value *x, const char *name, int64_t n_out, int side);

/** Batch norm; is_branch_end: its gamma is initialized to 0 if the options request it. */
td_value *td_net_norm(td_net *m, td_value *x, const char *name, bool is_branch_end);

/** Layer norm of the rows of x [.., C]. */
td_value *td_net_layer_norm(td_net *m, td_value *x, const char *name);

/** Convolution and norm, "`name`.0" and "`name`.1" as in torchvision's Conv2dNormActivation. */
td_value *td_net_conv_norm(td_net *m, td_value *x, const char *name, int64_t n_out, int side,
                           int stride, int groups);

/** The same and td_net_act. */
td_value *td_net_conv_norm_act(td_net *m, td_value *x, const char *name, int64_t n_out, int side,
                               int stride, int groups);

/** The activation: m->activation, or relu. */
td_value *td_net_act(td_net *m, td_value *x);

/** Max pooling with `kernel` x `kernel` windows, padded like convolutions. */
td_value *td_net_max_pool(td_net *m, td_value *x, int kernel, int stride);

/** Max pooling without padding whose number of windows is rounded up (PyTorch's ceil_mode). */
td_value *td_net_max_pool_up(td_net *m, td_value *x, int kernel, int stride);

/** Means over 2x2 windows, stride 2, their number rounded up; missing pixels do not count. */
td_value *td_net_mean_pool_up(td_net *m, td_value *x);

/** x plus the parameter `name`.bias, a number for each channel. */
td_value *td_net_bias(td_net *m, td_value *x, const char *name, td_param_attr begins);

/** Fully connected layer with bias, from x [N, C]. */
td_value *td_net_linear(td_net *m, td_value *x, const char *name, int64_t n_out,
                        td_param_attr weight, td_param_attr bias);

/** Squeeze-and-excitation: names of its two layers, and what they compute. */
typedef struct {
    const char *squeeze, *excite;
    int64_t units;
    td_squeeze_excite_attr attr;
    bool has_zero_biases; /* initially; otherwise as td_net_uniform */
} td_net_gates;

td_value *td_net_squeeze_excite(td_net *m, td_value *x, const td_net_gates *g);

/** [N, C, H, W] -> [N, C H W] */
td_value *td_net_flatten(td_net *m, td_value *x);

/** In training: zero a fraction of the elements, and divide the others by 1 - p; the fraction is
    that of the options, or p. */
td_value *td_net_dropout(td_net *m, td_value *x, double p);

/**
 * The same for samples (or, with `mode`, the batch): the result of residual block `i`, with the
 * fraction last * i / n; `last` is that of the options, or `p`.
 */
td_value *td_net_stochastic_depth(td_net *m, td_value *x, double p, int i, int n,
                                  td_dropout_mode mode);

/**
 * Means over side x side windows, for any H and W as PyTorch's AdaptiveAvgPool2d: windows overlap
 * where the sides do not divide each other.
 */
td_value *td_net_adaptive_pool(td_net *m, td_value *x, int side);

#endif
