/*
 * model/resnet.h -- the numbers of a residual network's row
 */
#ifndef TD_MODEL_RESNET_H
#define TD_MODEL_RESNET_H

#include "model/layers.h"

/* The rule for the number of hidden units of squeeze-and-excitation. */
typedef enum {
    TD_SE_NONE,
    TD_SE_CHOSEN, /* as td_model_opts.se_form */
    TD_SE_RATIO   /* channels / 16, whatever the options */
} td_se;

typedef struct {
    bool is_bottleneck;
    int layers[4]; /* blocks in each stage */
    int widths[4]; /* channels of the 3x3 convolutions */
    int expansion; /* channels after a stage: width * expansion */
    int groups;    /* groups of the 3x3 convolutions in bottlenecks */
    td_se se;
    bool is_deep; /* ResNet-D: a stem of three convolutions, shortcuts with a mean */
} td_resnet;

/** The numbers of resnet50, a detector's default backbone. */
extern const td_resnet td_resnet50;

/** The numbers of a row; NULL: another family. */
const td_resnet *td_resnet_of(const td_arch *arch);

/** td_family.describe, for detectors too. */
void td_resnet_describe(const td_arch *arch, td_arch_info *out);

/** 7x7/2 convolution, norm, activation. */
td_value *td_resnet_stem_conv(td_net *m, td_value *images);

/** Stage i of the architecture, 0 to 3; `stride` applies to its first block. */
td_value *td_resnet_stage(td_net *m, td_value *x, int i, int stride);

#endif
