/*
 * checkpoint/checkpoint.h -- a run's whole state in one safetensors file
 *
 *     tensors    weights and statistics under their own names, those with "momentum." and so on
 *                in front (training_graph.h), and num_batches_tracked; sums of gradients only
 *                inside a step
 *     metadata   tandem.kind     "checkpoint" or "weights"
 *                tandem.version  "1"
 *                tandem.arch, tandem.num_classes, tandem.image_size, tandem.se_form,
 *                tandem.variant
 *                tandem.classes  JSON array of class names
 *                tandem.backbone, tandem.categories  of a detector: JSON array of category ids
 *                tandem.state    JSON: epoch, iteration, steps, seed, best, sums of the epoch,
 *                                loss scale
 *                tandem.config   JSON: every option of the run
 *                digest          over all of it (io/safetensors.h)
 *
 * Random numbers are functions of (seed, epoch, sample): seed, epoch and iteration are the
 * generators' whole state.  Files are written atomically; the last good one stays until the next
 * is whole.
 */
#ifndef TD_CHECKPOINT_CHECKPOINT_H
#define TD_CHECKPOINT_CHECKPOINT_H

#include "io/safetensors.h"
#include "optim/loss_scaler.h"
#include "tandem/model.h"
#include "tandem/program.h"

/* The position inside an optimizer step of several batches. */
#define TD_CHECKPOINT_NAME "checkpoint.safetensors" /* the default of --checkpoint-filename */

typedef struct {
    int64_t done, of;  /* finished batches of the step, and their total number, at least 1 */
    int64_t in_epoch;  /* finished ones of this epoch */
    double loss_sum;   /* of those */
    double ema_before; /* product of the averages' factors of the done ones */
} td_step_state;

/** The state of a run. */
typedef struct {
    int64_t epoch;     /* now, from 0 */
    int64_t iteration; /* finished batches of the epoch, on each rank */
    int64_t ranks;     /* that trained together; of older files 1 */
    int64_t steps;     /* optimizer steps in total, without skipped ones */
    int64_t batches_tracked;
    uint64_t seed;
    bool detects; /* scores are AP and AP50, fractions; otherwise top-1 and top-k, percent */
    double best;  /* score of the best validation; -1: none yet */
    int64_t best_epoch;
    double loss_sum;       /* of this epoch's batches so far, without skipped ones */
    int64_t epoch_skipped; /* of them */
    double last_train_loss, last_val_loss;
    double last, last_second; /* scores of the last validation; -1: none yet */
    td_step_state step;
    td_scaler scaler; /* of a file: kind, scale and counts */
} td_run_state;

/** A weight file's metadata on its network. */
typedef struct {
    const td_model_opts *model;
    int num_classes;
    int n_names; /* 0: unknown */
    const char *const *names;
    const int64_t *categories; /* [n_names] of a detector: ids in the annotations; NULL: none */
    const struct td_tracked *tracked; /* batches that norms have seen; NULL: all the same */
} td_weight_metadata;

/**
 * Write a checkpoint: everything needed to resume.  TD_ENUMERIC: a value to be saved is a
 * NaN or an infinity; `path` is unchanged.
 */
td_status td_checkpoint_save(const char *path, td_program *p, const td_run_state *s,
                             const td_weight_metadata *metadata,
                             const char *config_json) TD_CHECKED;

/** Write weights and what else `what` names (weights.h).  TD_ENUMERIC as td_checkpoint_save. */
td_status td_weight_file_save(const char *path, td_program *p, unsigned what, int64_t batches,
                              const td_weight_metadata *metadata) TD_CHECKED;

/** Store the state as the set's metadata "tandem.state". */
td_status td_checkpoint_set_state(td_tensors *t, const td_run_state *s) TD_CHECKED;

/** Read the state of a checkpoint.  TD_EFORMAT: not a checkpoint, of another version, malformed. */
td_status td_checkpoint_state(const td_tensors *t, const char *path, td_run_state *out) TD_CHECKED;

/**
 * Apply the file's metadata to the network: arch (when model->arch is the default and nothing
 * else was chosen, see .c), num_classes and image_size where they are 0, se_form, and the
 * variant.  Texts are borrowed from `t`.
 */
void td_weight_metadata_apply(const td_tensors *t, bool take_arch, td_model_opts *model);

/**
 * The architecture alone, or the file's own graph, and se_form.  False: the file has neither, and
 * the network is unchanged.
 */
bool td_weight_arch_apply(const td_tensors *t, td_model_opts *model);

/** The side of the images that a file's network was trained on; 0: unknown, or above 2048. */
int td_weight_image_size(const td_tensors *t);

/**
 * The backbone alone, of a file of the detector that model->arch names; --backbone wins over it.
 */
void td_weight_backbone_apply(const td_tensors *t, td_model_opts *model);

/**
 * TD_EUSAGE: one of `model` and the file is a detector and the other another network, or detectors
 * have other backbones.  td_weights_load checks the shapes of other networks.
 */
td_status td_weight_metadata_check(const td_tensors *t, const char *path,
                                   const td_model_opts *model) TD_CHECKED;

/**
 * The variant alone, where model->variant is 0.  Another one asked for than the file's is told
 * later, by td_model_resolve and td_model_forward.
 */
void td_weight_variant_apply(const td_tensors *t, td_model_opts *model);

#endif
