/*
 * tandem/train.h -- train a network
 *
 * A job is an options struct, a function that does it, and a result.  Every struct has a field
 * table (options/field.h) that holds names, defaults, ranges and help; the command line is made of
 * these tables.  Jobs never print: progress goes to the log, results to the result struct,
 * machine-readable records to the report file.
 *
 *     td_train_opts o;
 *     td_train_defaults(&o);
 *     o.input.data = "images";  o.model.arch = "resnet18";  o.epochs = 5;
 *     td_train_result r;
 *     TD_TRY(td_train(&o, &r));
 */
#ifndef TD_TRAIN_H
#define TD_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/amp.h"
#include "tandem/compat.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/input.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    td_launch_opts launch;
    td_boxes_opts boxes; /* of a detector's validation */
    int batch_size;
    int eval_batch_size;      /* of validation; 0: batch_size */
    int optimizer_batch_size; /* -1: batch_size */
    int epochs, run_epochs;
    int64_t num_train_steps; /* optimiser steps planned in all, instead of epochs; -1: epochs */
    int64_t lr_total_steps;  /* ssd320: steps that its curve spans; -1: the whole training */
    int eval_count;          /* validations, spread evenly; 0: after every epoch */
    const char *evaluation;  /* "21,31,37": after these epochs only; NULL: as eval_count says */
    int64_t run_iters;       /* optimiser steps of this run; -1: no limit */
    int early_stopping_patience;
    double lr, end_lr;
    int lr_schedule;  /* 0 step, 1 linear, 2 cosine, 3 exponential */
    int lr_rule;      /* 0 pytorch: of the epoch; 1 tf: of the step, lr per 256 images; 2 ssd320: of
                        the step; 3 ssd300: of the step, lr per 32 images */
    double warmup_lr; /* ssd320: where the warm-up begins; -1: 0.43332 of lr */
    const char *multistep; /* ssd300: "43,54", epochs from which on lr is a tenth of before */
    double lr_decay;       /* exponential: factor; 0: what makes 0.001 of the whole */
    int lr_decay_epochs;
    int warmup; /* epochs; of the detectors' rules steps, -1: the recipe's share of all */
    double label_smoothing, mixup;
    int mixup_mode;         /* 0 batch: one coefficient; 1 sample: one each, reversed partners */
    const char *mixup_file; /* coefficients and partners, for tests; NULL: drawn */
    int optimizer;          /* 0 sgd, 1 rmsprop */
    double rmsprop_alpha, rmsprop_eps;
    double use_ema;                  /* decay of averaged weights; -1: none */
    int shuffle;                     /* 0 permutation, 1 buffer */
    int sampler;                     /* 0 dealt, 1 padded: shares of the ranks */
    const char *image_size_schedule; /* "0:128,30:160": sizes of training by epoch */
    double momentum, weight_decay;
    bool bn_weight_decay, nesterov;
    bool reproducible;  /* of several ranks: batch by batch, the same bits on any number of them */
    const char *freeze; /* patterns of weights that are not trained, "conv1*,layer1.*" */
    bool freeze_bn;     /* and norms among them keep and use their running statistics */
    int decay_rule;     /* 0 code: names with "bn" are not decayed; 1 readme: no norm is */
    bool l2_loss;       /* report the decay's part of the loss */
    int print_freq;
    const char *resume;             /* checkpoint to go on from */
    const char *pretrained_weights; /* weights to begin with */
    bool fp16;                      /* the same as amp.precision "fp16" */
    double static_loss_scale;       /* fixed, or where dynamic scaling starts; -1: chosen */
    bool no_dynamic_loss_scale;     /* td_train_resolve makes a static one of it, or 1 */
    bool dynamic_loss_scale;        /* also with `static_loss_scale` or without fp16 */
    int loss_scaler;             /* 0 auto, 1 tf, 2 pytorch, 3 apex, 4 nvidia; 1..4 are dynamic */
    int64_t loss_scale_interval; /* good steps that double the scale; 0: the scaler's own */
    int64_t max_skips;           /* skipped steps in a row that end the run; 0: no limit */
    int64_t memory_limit;        /* bytes of the process, at the price of time; 0: none */
    bool pretrained;             /* download weights: never done */
    int jit;                     /* 0 no, 1 script: accepted, every graph is compiled */
    const char *gpu_affinity;    /* processors of a rank, by name; of one rank nothing */
    const char *trt, *fused_se;  /* accepted, the passes decide */
    bool use_xla;                /* accepted, every graph is fused and compiled */
    int prof;                    /* iterations per loop, and a profile; -1: all, and none */
    bool json;                   /* the profile as JSON, not as text */
    int64_t seed;                /* -1: from the clock, and said */
    int gather_checkpoints;
    const char *raport_file; /* NULL: experiment_raport.json, or with no_checkpoints none */
    bool evaluate, training_only, no_checkpoints;
    const char *checkpoint_filename;
    const char *workspace; /* NULL: the folder of `resume`, or a new one, runs/ARCH-N */
    bool overwrite;        /* another run's files in the workspace may be replaced */
    int memory_format;     /* 0 nchw, 1 nhwc: accepted, the layout pass decides */
    int topk;
    const char *final_weights; /* written after the last step */
    bool final_state;          /* momentum buffers too */
    const char *train_logits;  /* logits of the run's first step */
    const char *amp_stats;     /* what tensors hold, a JSON line for every observed step */
    int64_t amp_stats_every;   /* steps from one observed step to the next; the first is one */
    const char *trace;         /* the last steps' kernels, for a viewer */
    int64_t checkpoint_every;  /* also save every so many steps; 0: at epoch ends only */
    td_device_opts device;
    const char *require; /* "top1>=95" */
    const char *log;
    int log_format;          /* 0 plain, 1 dll: the reference's lines */
    bool raport_compat;      /* the reference's own arithmetic in the report */
    int raport_names;        /* 0 pytorch, 1 tf: its names of the results too */
    int raport_warmup;       /* steps whose times TensorFlow's names leave out; -1: 20 */
    const char *tensorboard; /* folder of event files */
    const char *csv, *csv_iterations;
} td_train_opts;

TD_API const struct td_field *td_train_fields(void);
TD_API void td_train_defaults(td_train_opts *opts);

/** opts->amp, with --fp16 taken in. */
TD_API td_amp_opts td_train_amp(const td_train_opts *opts);

/* The tables of `opts` with their titles, for td_options_...: room for 7. */
struct td_field_group;
TD_API void td_train_groups(td_train_opts *opts, struct td_field_group *groups);

/**
 * After everything was read: options that stand for others set those (--num-iter sets --epochs),
 * and a --model that was a preset's is no file.  TD_EUSAGE: contradictions.
 */
TD_API TD_CHECKED td_status td_train_resolve(td_train_opts *opts);

/**
 * The configuration as YAML, which --config reads back (td_text_free).  It is that of the run from
 * its start: of a training, what it was resumed from is left out.
 */
TD_API TD_CHECKED td_status td_train_config_yaml(const td_train_opts *opts, char **yaml);

typedef struct {
    int64_t epoch;          /* next epoch */
    int64_t steps, skipped; /* optimiser steps in all; besides, those that loss scaling skipped */
    double loss_scale;      /* of the next step; 1 without loss scaling */
    double train_loss, val_loss; /* of the last epoch, true means; NaN: all steps were skipped */
    double top1, topk;           /* percent, last validation; -1: none was made */
    int rank;                    /* of the run's ranks; files are rank 0's */
    double best_top1;
    bool detects;                 /* and then these count, not top1 and topk: */
    double boxes[TD_BOX_METRICS]; /* last validation, 0 .. 1; -1: none, or nothing to find */
    double best_ap;
    double images_per_s;       /* training, waiting included, last epoch */
    double last_quarter_ips;   /* of a detector: mean of the last quarter of its lines' speeds */
    int n_lines, n_lines_kept; /* all and those; 0: not a line was whole, and the mean is NaN */
    bool was_stopped;          /* by a signal, after saving */
    char checkpoint[512];      /* path written last, or "" */
    char arch[64];             /* the network's, or the graph file's name, cut */
    char *profile; /* with opts->prof: where the steps' time went (td_text_free); or NULL */
} td_train_result;

/**
 * td_train begins with it.  TD_EUSAGE: an option of the reference programs that is not there yet,
 * or out of range; TD_EARG: --fp16 and --amp.
 */
TD_API TD_CHECKED td_status td_train_check(const td_train_opts *opts);

/** TD_EUSAGE, TD_EARG: options of one command line that contradict each other. */
TD_API TD_CHECKED td_status td_train_check_line(const td_train_opts *opts);

/**
 * Train.  TD_ESTOPPED is never returned: a signal saves and sets was_stopped.  TD_EREQUIRED:
 * finished, but below `require`.  out->profile is NULL after every other failure.
 */
TD_API TD_CHECKED td_status td_train(const td_train_opts *opts, td_train_result *out);

/**
 * The options a checkpoint was made with, as one flat JSON object (td_text_free): what --resume
 * goes on with where the command line says nothing.  Left out are those that belong to one run
 * only (resume, run_iters, prof, ...), and every option that names a file or folder: a checkpoint
 * decides neither what is read nor what is written.  TD_EFORMAT: not a checkpoint, or it has an
 * option that no checkpoint has.
 */
TD_API TD_CHECKED td_status td_train_stored_options(const char *checkpoint, char **json);

#ifdef __cplusplus
}
#endif
#endif
