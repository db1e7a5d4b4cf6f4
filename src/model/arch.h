/*
 * model/arch.h -- architectures: a row for each, and the family whose builder reads the row
 *
 * A family is a file with three parts: its numbers (a struct that only the family knows), a table
 * of rows with these numbers, and a builder.  vgg.c is a short example:
 *
 *     typedef struct { int convs[5]; bool has_norms; } numbers;
 *
 *     static const td_arch rows[] = {
 *         { "vgg11", &td_family_vgg, 224, &(const numbers){ { 1, 1, 2, 2, 2 }, false } },
 *     };
 *     static td_value *build(td_net *m, td_value *images) { ... }
 *
 *     const td_family td_family_vgg = { .name = "vgg", .build = build, .head = "classifier.6" };
 *
 * To add one: the file, its name in model/families.def, its rows in tests/unit/model/test_model.c
 * and in the help of --arch (docs/howto-model.md).  Parameters have the names and the order of
 * PyTorch's state_dict, so that its weight files load; layers.h has what families share.
 */
#ifndef TD_MODEL_ARCH_H
#define TD_MODEL_ARCH_H

#include "boxes/anchors.h"
#include "ir/build.h"
#include "tandem/model.h"

typedef struct td_net td_net; /* model/layers.h */
typedef struct td_family td_family;

typedef struct {
    const char *name;
    const td_family *family;
    int image_size;
    const void *numbers;  /* what distinguishes the rows of a family, in a struct of its own */
    td_detector detector; /* if set, `numbers` are those of the default backbone */
    int n_anchors;        /* detectors: number of anchors at image_size */
} td_arch;

struct td_family {
    const char *name; /* "vgg" */
    const td_arch *rows;
    int n_rows;

    /* images [N, C, H, W] -> logits [N, m->opts->num_classes]; NULL: a detector */
    td_value *(*build)(td_net *m, td_value *images);

    /* images [N, 3, S, S] -> *deltas [N, A, 4], *scores [N, A, m->opts->num_classes + 1];
       m->arch is the backbone's row; NULL: a classifier */
    void (*detect)(td_net *m, td_value *images, td_value **deltas, td_value **scores);

    /* sets the members of *out that only this family has; may be NULL */
    void (*describe)(const td_arch *arch, td_arch_info *out);

    /* weights that fit images of one size only: the parameter [1, T, E] that depends on it, and the
       side that belongs to T, 0 for none; may be NULL */
    const char *positions;
    int (*side_of)(const td_arch *arch, int64_t tokens);

    const char *head;  /* the layer with a row for each class: "fc" */
    int side_min;      /* of an image */
    bool has_stages;   /* td_model_forward_features */
    const char *lacks; /* network options that it does not read, separated by commas; NULL: none */
};

/* the options of the reference's residual networks, which other families lack */
#define TD_ARCH_LACKS_RESIDUAL "variant,se_form,conv_init,last_bn_0_init"

/* the options of networks that drop activations or residual blocks in training */
#define TD_ARCH_LACKS_DROPOUT "dropout,stochastic_depth"

#define FAMILY(name) extern const td_family td_family_##name;
#include "model/families.def"
#undef FAMILY

/** The row with this name ('_' and '-' are equal); the message of TD_EUSAGE suggests the nearest
    name. */
td_status td_arch_row(const char *name, const td_arch **out) TD_CHECKED;

/** The same; NULL if there is none. */
const td_arch *td_arch_known(const char *name);

/** The name of the last layer of the network that model->arch names; "fc" if that is none. */
const char *td_arch_head(const td_model_opts *model);

/** The name of the architecture or of the graph file, truncated to `n` bytes. */
void td_model_name(const td_model_opts *model, char *out, size_t n);

#endif
