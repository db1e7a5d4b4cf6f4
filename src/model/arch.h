/*
 * model/arch.h -- a row of the architecture table, and the builder that reads it
 */
#ifndef TD_MODEL_ARCH_H
#define TD_MODEL_ARCH_H

#include "boxes/anchors.h"
#include "ir/build.h"
#include "tandem/model.h"

/* The rule for the number of hidden units of squeeze-and-excitation. */
typedef enum {
    TD_SE_NONE,
    TD_SE_CHOSEN, /* as td_model_opts.se_form */
    TD_SE_RATIO   /* channels / 16, whatever the options */
} td_se;

typedef struct {
    const char *name;
    bool is_bottleneck;
    int layers[4]; /* blocks in each stage */
    int widths[4]; /* channels of the 3x3 convolutions */
    int expansion; /* channels after a stage: width * expansion */
    int groups;    /* groups of the 3x3 convolutions in bottlenecks */
    td_se se;
    int image_size;
    td_detector detector; /* if set, the other columns describe the default backbone */
    int n_anchors;        /* detectors: number of anchors at image_size */
} td_arch;

/** The row with this name ('_' and '-' are equal); the message of TD_EUSAGE suggests the nearest
    name. */
td_status td_arch_row(const char *name, const td_arch **out) TD_CHECKED;

/** The same; NULL if there is none. */
const td_arch *td_arch_known(const char *name);

/**
 * images [N, 3, H, W] -> logits [N, opts->num_classes].  With `features` the results of the four
 * stages are outputs "layer1" .. "layer4".
 */
td_value *td_resnet(td_builder *b, const td_arch *arch, const td_model_opts *opts, td_value *images,
                    bool is_training, bool features);

/** The name of the architecture or of the graph file, truncated to `n` bytes. */
void td_model_name(const td_model_opts *model, char *out, size_t n);

#endif
