/*
 * checkpoint/checkpoint.h -- a run's whole state in one safetensors file
 *
 *     tensors    weights and statistics under their names; training state under the same names with
 *                prefixes such as "momentum." (optimizer.h); num_batches_tracked; sums of gradients
 *                only inside a step
 *     metadata   tandem.kind     "checkpoint" or "weights"
 *                tandem.version  "1"
 *                tandem.arch, tandem.num_classes, tandem.image_size, tandem.se_form,
 *                tandem.variant
 *                tandem.channels 1, of a network for gray images
 *                tandem.bn_epsilon  "0", if --bn-epsilon was given
 *                tandem.image_mean, tandem.image_std  "0.5,0.5,0.5", unless they are ImageNet's
 *                tandem.classes  JSON array of class names
 *                tandem.backbone, tandem.categories  of a detector: backbone; JSON array of
 *                                                    category ids
 *                tandem.state    JSON: epoch, iteration, steps, seed, best, sums of the epoch,
 *                                loss scale
 *                tandem.config   JSON: the options of the run
 *                digest          of the whole file (io/safetensors.h)
 *
 * Random numbers are functions of (seed, epoch, sample): seed, epoch and iteration are the
 * generators' whole state.  Files are written atomically; the previous file exists until the next
 * one is complete.
 */
#ifndef TD_CHECKPOINT_CHECKPOINT_H
#define TD_CHECKPOINT_CHECKPOINT_H

#include "io/safetensors.h"
#include "optim/loss_scaler.h"
#include "tandem/detection.h"
#include "tandem/model.h"
#include "tandem/program.h"

#define TD_EPSILON_META         "tandem.bn_epsilon"
#define TD_LAST_ACTIVATION_META "tandem.last_activation" /* it is why there is tandem.multi_label */
#define TD_CHECKPOINT_NAME      "checkpoint.safetensors" /* the default of --checkpoint-filename */

/* The position inside an optimizer step of several batches. */
typedef struct {
    int64_t done, n_batches; /* finished batches of the step, and their total number, at least 1 */
    int64_t in_epoch;        /* finished batches of the step in this epoch */
    double loss_sum;         /* sum of their losses */
    double ema_before;       /* product of the finished batches' factors for the averages */
} td_step_state;

/** The state of a run. */
typedef struct {
    int64_t epoch;     /* current epoch, from 0 */
    int64_t iteration; /* finished batches of the epoch, on each rank */
    int64_t ranks;     /* number of ranks; 1 in older files */
    int64_t steps;     /* optimizer steps in total, without skipped ones */
    int64_t batches_tracked;
    uint64_t seed;
    bool detects; /* scores are AP and AP50, fractions; otherwise top-1 and top-k, percent, ... */
    bool is_multi_label;               /* ... or mAP and micro F1, percent */
    double best;                       /* score of the best validation; -1: none yet */
    double best_boxes[TD_BOX_METRICS]; /* a detector's metrics then; [0] < 0: not known */
    int64_t best_epoch;
    int64_t n_without_best; /* validations since then; -1: an older file does not say */
    double loss_sum;        /* of this epoch's batches so far, without skipped ones */
    int64_t epoch_skipped;  /* skipped ones of them */
    double last_train_loss, last_val_loss;
    double last, last_second; /* scores of the last validation; -1: none yet */
    td_step_state step;
    td_scaler scaler; /* a file has its kind, scale and counts */
} td_run_state;

/** The metadata of a weight file that describe its network. */
typedef struct {
    const td_model_opts *model;
    int num_classes;
    int n_names; /* 0: unknown */
    const char *const *names;
    const int64_t *categories;        /* [n_names] of a detector: ids in annotations; NULL: none */
    const struct td_tracked *tracked; /* batches that norms have tracked; NULL: all the same */
} td_weight_metadata;

/**
 * Write a checkpoint: everything needed to resume.  TD_ENUMERIC: a value to be saved is a
 * NaN or an infinity; `path` is unchanged.
 */
td_status td_checkpoint_save(const char *path, td_program *p, const td_run_state *s,
                             const td_weight_metadata *metadata,
                             const char *config_json) TD_CHECKED;

/**
 * Write weights and the state selected by `what` (weights.h).  TD_ENUMERIC as td_checkpoint_save.
 */
td_status td_weight_file_save(const char *path, td_program *p, unsigned what, int64_t batches,
                              const td_weight_metadata *metadata) TD_CHECKED;

/** Store the metadata of the network; `kind`: "checkpoint" or "weights". */
td_status td_weight_metadata_store(td_tensors *t, const char *kind,
                                   const td_weight_metadata *metadata) TD_CHECKED;

/** Store the state as the set's metadata "tandem.state". */
td_status td_checkpoint_set_state(td_tensors *t, const td_run_state *s) TD_CHECKED;

/** Read the state of a checkpoint.  TD_EFORMAT: not a checkpoint, of another version, malformed. */
td_status td_checkpoint_state(const td_tensors *t, const char *path, td_run_state *out) TD_CHECKED;

/**
 * Apply the file's metadata to the network: architecture and se_form if take_arch; the backbone and
 * the variant if not chosen; num_classes, image_size and channels if they are 0.  Texts are
 * borrowed from `t`.
 */
void td_weight_metadata_apply(const td_tensors *t, bool take_arch, td_model_opts *model);

/**
 * Apply the architecture or the file's graph, and se_form.  False: the file has neither.
 */
bool td_weight_arch_apply(const td_tensors *t, td_model_opts *model);

/**
 * Apply the mean and deviation of the images with which the file's network was trained, and those
 * of the options.  TD_EUSAGE: `is_same` and they differ; TD_EFORMAT: the file's are malformed.
 */
td_status td_weight_norm_apply(const td_tensors *t, const char *path, bool is_same,
                               td_model_opts *model) TD_CHECKED;

/** Store them, unless they are ImageNet's. */
td_status td_weight_norm_store(td_tensors *t, const td_model_opts *model) TD_CHECKED;

/**
 * Set model->val_resize, unless it is set, to the file's, which belongs to the file's image size.
 */
void td_weight_resize_apply(const td_tensors *t, td_model_opts *model);

/** The side of the images with which a file's network was trained; 0: unknown, or above 2048. */
int td_weight_image_size(const td_tensors *t);

/**
 * Apply the backbone of a file of the detector that model->arch names, unless --backbone is given.
 */
void td_weight_backbone_apply(const td_tensors *t, td_model_opts *model);

/**
 * TD_EUSAGE: `model` and the file have different networks, one of which is a detector, or different
 * backbones.  td_weights_load checks the shapes of other networks.
 */
td_status td_weight_metadata_check(const td_tensors *t, const char *path,
                                   const td_model_opts *model) TD_CHECKED;

/** TD_EUSAGE: the file's network reads gray images, model->channels is 3. */
td_status td_weight_channels_check(const td_tensors *t, const char *path,
                                   const td_model_opts *model) TD_CHECKED;

/**
 * Apply the variant if model->variant is 0.  td_model_resolve and td_model_forward report a variant
 * that differs from the file's.
 */
void td_weight_variant_apply(const td_tensors *t, td_model_opts *model);

/**
 * Apply the epsilon of the file's batch norms, unless --bn-epsilon was chosen (logged if they
 * differ): the one that it names, or 0 for RetinaNet's weights of torchvision before 0.13.
 */
void td_weight_epsilon_apply(const td_tensors *t, td_model_opts *model);

/** Store the epsilon that a file's weights have, if it is known. */
td_status td_weight_epsilon_copy(const td_tensors *from, td_tensors *to) TD_CHECKED;

#endif
