/*
 * model/layers.h -- the parts of networks: parameters, layers, stages of residual blocks
 *
 *     td_net m = td_net_begin(b, arch, opts, is_training);
 *     td_value *x = td_net_stem(&m, images);
 *     for (int i = 0; i < 4; i++)
 *         x = td_net_stage(&m, x, i, i ? 2 : 1);
 *
 * A layer's parameters are named prefix + layer + ".weight" and so on.  The members of a td_net
 * describe the differences between networks; a builder may change them between calls.
 */
#ifndef TD_MODEL_LAYERS_H
#define TD_MODEL_LAYERS_H

#include "model/arch.h"
#include "ops/ops.h"

typedef struct {
    td_builder *b;
    const td_arch *arch;
    const td_model_opts *opts;
    td_dtype dtype;
    bool is_training;

    bool is_same_padded;       /* padding SAME: gives ceil(side / stride) windows */
    bool has_relu6;            /* in the stem and within blocks; a block's result has relu */
    double eps, momentum;      /* constants of the norms */
    const td_param_attr *init; /* of convolutions; NULL: depends on variant and options */

    char prefix[64];                           /* "layer1.0." */
    const char *root;                          /* prefix of every name: "backbone." */
    const char *stem_conv, *stem_norm, *stage; /* "conv1", "bn1", "layer" */
    int first_stage;                           /* number of the first stage in names */
} td_net;

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

td_value *td_net_param(td_net *m, const char *layer, const char *part, int rank, const int64_t *dim,
                       td_param_attr attr);
td_value *td_net_vector(td_net *m, const char *layer, const char *part, int64_t n,
                        td_param_attr attr);

/** The fan that the options select. */
double td_net_fan(const td_net *m, int64_t n_in, int64_t n_out);

/** Attributes of a weight with this initialization. */
td_param_attr td_net_begins(td_init init, double scale);

/* --- layers ----------------------------------------------------------------------------------- */

/** Filters with `side` x `side` taps, from n_in channels (per group) to n_out. */
td_value *td_net_filter(td_net *m, const char *name, int64_t n_in, int64_t n_out, int side,
                        int groups);

/** Convolution with filters w, padded so that stride 1 keeps the image's size. */
td_value *td_net_conv_with(td_net *m, td_value *x, td_value *w, int stride, int groups);

/** Filter and convolution together. */
td_value *td_net_conv(td_net *m, td_value *x, const char *name, int64_t n_out, int side, int stride,
                      int groups);

/** Batch norm; is_branch_end: its gamma is initialized to 0 if the options request it. */
td_value *td_net_norm(td_net *m, td_value *x, const char *name, bool is_branch_end);

/** relu or relu6. */
td_value *td_net_act(td_net *m, td_value *x);

/** Max pooling with `kernel` x `kernel` windows, padded like convolutions. */
td_value *td_net_max_pool(td_net *m, td_value *x, int kernel, int stride);

/* --- residual networks ------------------------------------------------------------------------ */

/** 7x7/2 convolution, norm, activation. */
td_value *td_net_stem_conv(td_net *m, td_value *images);

/** Stage i of the architecture, 0 to 3; `stride` applies to its first block. */
td_value *td_net_stage(td_net *m, td_value *x, int i, int stride);

#endif
