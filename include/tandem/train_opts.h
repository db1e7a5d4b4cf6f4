/*
 * tandem/train_opts.h -- the options of a training
 *
 * td_train_defaults gives every member its default (tandem/train.h).  A number that is -1 or 0 "for
 * none" or "for the default" says so at its member.  Texts are lent: they have to live as long as
 * the options are used.
 */
#ifndef TD_TRAIN_OPTS_H
#define TD_TRAIN_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/allreduce.h"
#include "tandem/amp.h"
#include "tandem/compat.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/input.h"
#include "tandem/model.h"
#include "tandem/options.h"
#include "tandem/report_opts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- batches and length ----------------------------------------------------------------------- */

/** The order of training images. */
typedef enum {
    TD_SHUFFLE_PERMUTATION, /* a permutation of all in every epoch */
    TD_SHUFFLE_BUFFER,      /* DALI's: drawn from a buffer of 1024, a range of images per rank */
} td_shuffle_mode;

/** How the images of an epoch are divided among the ranks. */
typedef enum {
    TD_SAMPLER_DEALT,  /* every image once */
    TD_SAMPLER_PADDED, /* PyTorch's: equal shares, some images twice */
} td_sampler_mode;

typedef struct {
    int size;      /* images of one rank in a batch */
    int repeats;   /* times that an epoch has an image, of as many fewer images; 1: once */
    bool balanced; /* each class is equally probable; images are drawn with replacement */
    int step_size; /* images of an optimizer step, by accumulation; -1: one batch */
    td_shuffle_mode shuffle;
    td_sampler_mode sampler;
    const char *image_size_schedule; /* "0:128,30:160": sizes of training images by epoch */
    bool is_reproducible; /* ranks add gradients batch by batch: same bits on any number of ranks */
    int64_t seed;         /* of all random numbers; -1: from the clock, and logged */
} td_batch_opts;

/** How long the training is as planned, and how much of it this run does. */
typedef struct {
    int epochs;        /* planned; the learning rate's curve spans them */
    int64_t num_steps; /* optimizer steps planned, in place of epochs; -1: epochs */
    int run_epochs;    /* of this run; -1: to the end */
    int64_t run_steps; /* optimizer steps of this run; -1: no limit */
} td_length_opts;

/* --- learning rate, loss, optimizer ----------------------------------------------------------- */

/** How the learning rate falls. */
typedef enum {
    TD_LR_STEP,        /* to a tenth at fixed epochs */
    TD_LR_LINEAR,      /* to 0 */
    TD_LR_COSINE,      /* to `end` */
    TD_LR_EXPONENTIAL, /* by `decay` every `decay_epochs` epochs */
    TD_LR_POLYNOMIAL,  /* to `end`, by a power of the share that is left */
    TD_LR_ONE_CYCLE,   /* rises and falls once, step by step */
} td_lr_schedule;

/** The rates of a warm-up by epochs. */
typedef enum {
    TD_WARMUP_LINEAR,   /* rises to the peak */
    TD_WARMUP_CONSTANT, /* stays at `warmup_start` */
} td_warmup;

/** The form of the two halves of one cycle. */
typedef enum {
    TD_ANNEAL_COS,
    TD_ANNEAL_LINEAR,
} td_anneal;

/** The program whose rule is followed: a function of the epoch, or of the optimizer step. */
typedef enum {
    TD_LR_RULE_PYTORCH,     /* by epoch */
    TD_LR_RULE_TF,          /* by step; `peak` applies to 256 images a step */
    TD_LR_RULE_SSD320,      /* by step */
    TD_LR_RULE_SSD300,      /* by step; `peak` applies to 32 images a step */
    TD_LR_RULE_TORCHVISION, /* the warm-up by step, then by epoch: its detectors' reference */
} td_lr_rule;

typedef struct {
    double peak, end;
    td_lr_schedule schedule;
    td_lr_rule rule;
    int warmup; /* epochs; with a detector's rule steps, -1: the recipe's share of all */
    td_warmup warmup_form;
    bool decays_after_warmup; /* default true; false: linear, cosine and polynomial count the
                                 epochs of the warm-up too, as timm does */
    double warmup_start;      /* rate where the warm-up begins; -1: peak / warmup; with a detector's
                              rule 0.43332 of peak (ssd320), 0.001 (torchvision) */
    int64_t total_steps;      /* ssd320: steps that the curve spans; -1: the whole training */
    const char *multistep;    /* step: "43,54", epochs at which the rate falls; NULL: 30, 60, 80 */
    double decay;             /* exponential: factor of each fall; 0: 0.001 over the whole training;
                              step: likewise; 0: 0.1 */
    int decay_epochs;         /* exponential: epochs from one fall to the next */
    double power;             /* polynomial */
    double cycle_start;       /* one cycle: share of the steps in which the rate rises */
    double cycle_div;         /* one cycle: the first rate is the peak divided by it */
    double cycle_end_div;     /* one cycle: the last rate is the first one divided by it */
    td_anneal cycle_form;
    bool cycles_momentum; /* one cycle: momentum, or Adam's beta1, falls from max to base and rises
                             again; default true */
    double base_momentum, max_momentum;
} td_lr_opts;

/** How many coefficients mixup and cutmix draw. */
typedef enum {
    TD_MIXUP_BATCH,  /* one for a batch, and random partners */
    TD_MIXUP_SAMPLE, /* one for each sample, and the batch in reverse order as partners */
} td_mixup_mode;

/** The training loss of a classifier; the validation loss is always cross-entropy. */
typedef enum {
    TD_LOSS_CROSS_ENTROPY,
    TD_LOSS_BCE, /* binary cross-entropy of each class, mean over the classes */
} td_loss_type;

typedef struct {
    td_loss_type type;
    double bce_threshold; /* targets above are 1, others 0; -1: as they are */
    /* bce: factors of the loss of positive targets: "balanced", one, or one a class; NULL: 1 */
    const char *positive_weights;
    const char *class_weights; /* "balanced", or a factor for each class: "1,0.5"; NULL: all 1 */
    double label_smoothing;    /* share of the target that is spread over all classes */
    double mixup;       /* alpha: coefficients are drawn from Beta(alpha, alpha); 0: no mixup */
    double cutmix;      /* the same of cutmix; with both, one of them for each batch */
    double switch_prob; /* with both: the probability of cutmix */
    td_mixup_mode mixup_mode;
    const char *mixup_file; /* safetensors of coefficients and partners, for tests; NULL: drawn */
    bool reports_l2;        /* what weight decay adds to the loss is reported */
} td_loss_opts;

typedef enum {
    TD_OPTIMIZER_SGD,
    TD_OPTIMIZER_RMSPROP,
    TD_OPTIMIZER_ADAM,  /* decay is a part of the gradient */
    TD_OPTIMIZER_ADAMW, /* decay of the weight itself */
    TD_OPTIMIZER_LAMB,
} td_optimizer;

/** Which weights are decayed.  */
typedef enum {
    TD_DECAY_CODE,    /* as the reference's code does: those without "bn" in the name */
    TD_DECAY_README,  /* as its README says: all but those of norms */
    TD_DECAY_KERNELS, /* those of more than one dimension; detectors only, not an option */
} td_decay_rule;

/** How averages of weights begin, and when they are updated. */
typedef enum {
    TD_EMA_NVIDIA,      /* with every batch; the decay rises to `ema` */
    TD_EMA_TORCHVISION, /* every `ema_steps` steps; copies of the weights during the warm-up; the
                           decay is adjusted to the images of a step and the epochs */
} td_ema_rule;

typedef struct {
    td_optimizer type;
    double momentum, weight_decay;
    bool decays_bn; /* the parameters of batch norms are decayed too */
    td_decay_rule decay_rule;
    bool nesterov;
    double rmsprop_alpha, rmsprop_eps;
    double adam_beta1, adam_beta2; /* for Adam, AdamW and LAMB */
    double adam_eps;               /* for these; 0: 1e-8, LAMB 1e-6 */
    double lamb_max_norm;          /* LAMB: limit of the gradient's norm; 0: none */
    double clip_norm, clip_value;  /* limits of the gradient's norm, of its values; 0: none */
    double norm_decay, bias_decay, embedding_decay; /* -1: as for other weights */
    double ema; /* decay of averaged weights, which are validated and saved; -1: none */
    td_ema_rule ema_rule;
    int ema_steps;      /* torchvision's rule: steps between updates of the averages */
    const char *freeze; /* patterns of weights that are not trained, "conv1*,layer1.*" */
    bool freezes_bn;    /* norms that `freeze` names keep and use their running statistics */
} td_optimizer_opts;

/** Whose numbers a dynamic loss scale follows.  All but AUTO ask for a dynamic scale. */
typedef enum {
    TD_LOSS_SCALER_AUTO, /* TF's, if the loss is scaled dynamically */
    TD_LOSS_SCALER_TF,
    TD_LOSS_SCALER_PYTORCH,
    TD_LOSS_SCALER_APEX,
    TD_LOSS_SCALER_NVIDIA,
} td_loss_scaler;

typedef struct {
    double scale;       /* fixed, 1: none, or the start of a dynamic one; -1: chosen */
    bool is_dynamic;    /* adapt it, also where `scale` is given or precision is not fp16 */
    bool allow_dynamic; /* default true; td_train_resolve turns false into a fixed scale */
    td_loss_scaler scaler;
    int64_t interval;  /* good steps that double the scale; 0: the scaler's own */
    int64_t max_skips; /* skipped steps in a row that end the run; 0: no limit */
} td_loss_scaling_opts;

/* --- start, validation ------------------------------------------------------------------------ */

typedef struct {
    const char *resume;             /* checkpoint to go on from; NULL: none */
    const char *pretrained_weights; /* weights to begin with; NULL: initialised */
} td_start_opts;

typedef struct {
    bool is_enabled;     /* default true */
    bool evaluate_only;  /* validate once, do not train */
    int batch_size;      /* 0: that of training */
    int count;           /* validations of the training, spread evenly; 0: after every epoch */
    const char *epochs;  /* "21,31,37": after these epochs only; NULL: as `count` says */
    int patience;        /* stop after so many validations without a new best; -1: never */
    int topk;            /* second accuracy: the label is among the k best */
    const char *require; /* "top1>=95": TD_EREQUIRED where the last validation is below */
} td_validation_opts;

/* --- what is written -------------------------------------------------------------------------- */

/** Values of td_output_opts.keep_checkpoints besides a number. */
enum {
    TD_KEEP_ALL = -1,
    TD_KEEP_TENTHS = -2, /* the first ten epochs, and every tenth */
};

typedef struct {
    const char *workspace; /* NULL: the folder of `resume`, or a new one, runs/ARCH-N */
    bool overwrite;        /* another run's files in the workspace may be replaced */
    bool save_checkpoints; /* default true */
    const char *checkpoint_filename;
    int64_t checkpoint_every;  /* also save every so many steps; 0: at ends of epochs only */
    int keep_checkpoints;      /* of epochs, besides the last and the best; or TD_KEEP_... */
    const char *final_weights; /* written after the last step; NULL: not */
    bool final_state;          /* momentum buffers too */
    const char *train_logits;  /* logits of the run's first step; NULL: none */
} td_output_opts;

/** Metrics while the training runs; all files may be NULL. */
typedef struct {
    int print_freq;             /* iterations between two lines of progress */
    const char *tensorboard;    /* folder of event files */
    const char *csv;            /* a row for every epoch */
    const char *csv_iterations; /* a row every print_freq iterations */
} td_metrics_opts;

typedef struct {
    int iterations;          /* of every loop, then a table of times; -1: all, and no table */
    bool as_json;            /* that table as JSON, not as text */
    const char *trace;       /* the last steps' kernels as a Chrome trace */
    const char *amp_stats;   /* ranges of tensors, a JSON line for every observed step */
    int64_t amp_stats_every; /* steps from one observed step to the next; the first is one */
} td_profile_opts;

/* --- the reference programs' options ---------------------------------------------------------- */

typedef enum { TD_JIT_NO, TD_JIT_SCRIPT } td_jit;
typedef enum { TD_MEMORY_FORMAT_NCHW, TD_MEMORY_FORMAT_NHWC } td_memory_format;

/** Read for compatibility: every graph is compiled, passes choose layouts and fuse. */
typedef struct {
    bool fp16;       /* the same as amp.precision TD_PRECISION_FP16 */
    bool pretrained; /* download weights: refused */

    /* without effect */
    td_jit jit;
    td_memory_format memory_format;
    const char *gpu_affinity, *trt, *fused_se;
    bool use_xla;
} td_compat_opts;

/* --- all of them ------------------------------------------------------------------------------ */

typedef struct {
    td_given given; /* which options below were given; those set by td_train_preset are not */
    td_model_opts model;
    td_input_opts input;
    td_batch_opts batch;
    td_length_opts length;
    td_lr_opts lr;
    td_loss_opts loss;
    td_optimizer_opts optimizer;
    td_amp_opts amp;
    td_loss_scaling_opts loss_scaling;
    td_start_opts start;
    td_validation_opts validation;
    td_boxes_opts boxes; /* of a detector's validation */
    td_output_opts output;
    td_report_opts report; /* file NULL: experiment_raport.json, none without checkpoints */
    td_metrics_opts metrics;
    td_profile_opts profile;
    td_device_opts device;
    int n_ranks; /* started by `tandem train`, they share each batch; 0: one on each NUMA node */
    td_allreduce_opts allreduce;
    int64_t memory_limit; /* bytes of the process, at the price of time; 0: no limit */
    const char *log;      /* levels, "info" or "warn,pass=debug"; NULL: as they are */
    td_launch_opts launch;
    td_compat_opts compat;
} td_train_opts;

#ifdef __cplusplus
}
#endif
#endif
