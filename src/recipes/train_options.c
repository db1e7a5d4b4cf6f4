/*
 * train_options.c -- the options of `tandem train`: names, defaults, ranges, help lines
 *
 * Names and defaults are those of NVIDIA's DeepLearningExamples (classification, main.py of 2024;
 * the spellings of 2019 are aliases), so that a script written for it keeps working.
 */
#include "recipes/train_options.h"

#include "amp/amp_opts.h"
#include "base/status.h"
#include "checkpoint/weight_file.h"
#include "data/sizes.h"
#include "evaluation/evaluator.h"
#include "loggers/run_logger.h"
#include "options/field.h"
#include "options/rows.h"
#include "transport/rank_env.h"
#include "transport/restart.h"

static const char *const shuffles[] = { "permutation", "buffer", NULL };
static const char *const samplers[] = { "dealt", "padded", NULL };
static const char *const schedules[] = { "step",       "linear",    "cosine", "exponential",
                                         "polynomial", "one_cycle", NULL };
static const char *const warmups[] = { "linear", "constant", NULL };
static const char *const anneals[] = { "cos", "linear", NULL };
static const char *const lr_rules[] = { "pytorch", "tf", "ssd320", "ssd300", "torchvision", NULL };
static const char *const losses[] = { "ce", "bce", NULL };
static const char *const mixup_modes[] = { "batch", "sample", NULL };
static const char *const decay_rules[] = { "code", "readme", NULL };
static const char *const optimizers[] = { "sgd", "rmsprop", "adam", "adamw", "lamb", NULL };
static const char *const ema_rules[] = { "nvidia", "torchvision", NULL };
static const char *const memory_formats[] = { "nchw|channels_first", "nhwc|channels_last", NULL };
static const char *const jits[] = { "no", "script", NULL };
static const char *const scalers[] = { "auto", "tf", "pytorch", "apex", "nvidia", NULL };

enum { AMP_STATS_EVERY = 100 };

/* clang-format off */

static const td_field train_fields[] = {
    TD_GIVEN  (td_train_opts, given),
    TD_TITLE("Recipe"),
    TD_INT_AS (td_train_opts, batch.size, "batch_size", "b", 256, 1, 1 << 20, NULL,
               "batch size of each rank"),
    TD_INT_AS (td_train_opts, batch.step_size, "optimizer_batch_size", NULL, -1, -1, 1 << 24, NULL,
               "images per optimizer step, reached by gradient accumulation; -1: one batch"),
    TD_BOOL_AS(td_train_opts, batch.is_reproducible, "reproducible", NULL, false,
               "sum gradients batch by batch in a fixed order: same bits for any number of ranks; "
               "with --device cuda in half precision also in each run"),
    TD_INT_AS (td_train_opts, length.epochs, "epochs", NULL, 90, 1, 1000000, NULL,
               "total number of epochs; the learning rate schedule spans them"),
    TD_INT_AS (td_train_opts, length.run_epochs, "run_epochs", NULL, -1, -1, 1000000, NULL,
               "stop this run after N epochs; 0: train nothing, -1: run to the end"),
    TD_LONG_AS(td_train_opts, length.run_steps, "run_iters", NULL, -1, -1, TD_MANY, NULL,
               "stop this run after N optimizer steps; 0: train nothing, -1: no limit"),
    TD_INT_AS (td_train_opts, validation.patience, "early_stopping_patience", NULL, -1, -1,
               1000000, NULL,
               "stop after N validations without a new best result; -1: never"),
    TD_REAL_AS(td_train_opts, lr.peak, "lr", "learning-rate", 0.1, 0, 1e6, NULL,
               "peak learning rate"),
    TD_REAL_AS(td_train_opts, lr.end, "end_lr", "lr-min", 0, 0, 1e6, NULL,
               "cosine, polynomial: final learning rate"),
    TD_ENUM_AS(td_train_opts, lr.schedule, "lr_schedule", NULL, TD_LR_STEP, schedules,
               "learning rate schedule"),
    TD_ENUM_AS(td_train_opts, lr.rule, "lr_rule", NULL, TD_LR_RULE_PYTORCH, lr_rules,
               "when the learning rate changes and what --lr refers to: pytorch: every epoch; "
               "tf: every step, --lr is for 256 images; ssd320: every step; ssd300: every step, "
               "--lr is for 32 images; torchvision: every step of the warm-up, then every epoch"),
    TD_REAL_AS(td_train_opts, lr.decay, "lr_decay", "lr-gamma", 0, 0, 1, NULL,
               "exponential: factor of each decay, 0: reach 0.001 of --lr at the end; step: "
               "factor at each of its epochs, 0: 0.1"),
    TD_INT_AS (td_train_opts, lr.decay_epochs, "lr_decay_epochs", "lr-step-size", 1, 1,
               1000000, NULL,
               "exponential: epochs between decays"),
    TD_INT_AS (td_train_opts, lr.warmup, "warmup", NULL, 0, -1, 100000000, NULL,
               "epochs of linear warm-up; with --lr-rule ssd320, ssd300 or torchvision: steps, -1: "
               "the recipe's number"),
    TD_ENUM_AS(td_train_opts, loss.type, "loss", NULL, TD_LOSS_CROSS_ENTROPY, losses,
               "training loss; ce: cross-entropy of softmax; bce: binary cross-entropy of every "
               "class, mean over classes; the validation loss is ce"),
    TD_REAL_AS(td_train_opts, loss.bce_threshold, "bce_target_thresh", NULL, -1, -1, 1, NULL,
               "bce: targets above this are 1 and others 0, after mixup and smoothing; -1: as "
               "they are"),
    TD_TEXT_AS(td_train_opts, loss.class_weights, "class_weights", NULL, NULL, TD_META_NUMBERS,
               "ce: factor of each class in the training loss, or 'balanced': the inverse of its "
               "share of the images; the loss is divided by the number of images"),
    TD_TEXT_AS(td_train_opts, loss.positive_weights, "pos_weight", NULL, NULL, TD_META_NUMBERS,
               "bce: factor of the loss of positive targets, one for each class or one for all, "
               "or 'balanced': the images without the class divided by those with it"),
    TD_REAL_AS(td_train_opts, loss.label_smoothing, "label_smoothing", NULL, 0, 0, 1, NULL,
               "label smoothing: fraction of the target distributed over all classes"),
    TD_REAL_AS(td_train_opts, loss.mixup, "mixup", NULL, 0, 0, 100, NULL,
               "mixup alpha: mixing coefficients are drawn from Beta(alpha, alpha); 0: no mixup"),
    TD_REAL_AS(td_train_opts, loss.cutmix, "cutmix", NULL, 0, 0, 100, NULL,
               "cutmix alpha: areas of the boxes taken from other images are drawn from "
               "Beta(alpha, alpha); 0: no cutmix"),
    TD_REAL_AS(td_train_opts, loss.switch_prob, "mixup_switch_prob", NULL, 0.5, 0, 1, NULL,
               "with --mixup and --cutmix: probability that a batch has cutmix instead of mixup"),
    TD_ENUM_AS(td_train_opts, loss.mixup_mode, "mixup_mode", NULL, TD_MIXUP_BATCH, mixup_modes,
               "batch: one coefficient per batch, random partners; sample: one per sample, "
               "reversed batch as partners"),
    TD_TEXT_AS(td_train_opts, loss.mixup_file, "mixup_file", NULL, NULL, "FILE",
               "read the mixup coefficients and permutations from a .safetensors file; for tests"),
    TD_ENUM_AS(td_train_opts, optimizer.type, "optimizer", "opt", TD_OPTIMIZER_SGD, optimizers,
               "optimizer; adam: weight decay is added to the gradient; adamw: to the step"),
    TD_REAL_AS(td_train_opts, optimizer.momentum, "momentum", NULL, 0.9, 0, 1, NULL,
               "momentum coefficient"),
    TD_REAL_AS(td_train_opts, optimizer.weight_decay, "weight_decay", "wd", 1e-4, 0, 1, NULL,
               "weight decay of all parameters except those of batch norms"),
    TD_BOOL_AS(td_train_opts, optimizer.decays_bn, "bn_weight_decay", NULL, false,
               "apply weight decay to batch norm parameters too"),
    TD_ENUM_AS(td_train_opts, optimizer.decay_rule, "decay_rule", NULL, TD_DECAY_CODE, decay_rules,
               "batch norm parameters exempt from weight decay; code: those with 'bn' in their "
               "name, as the reference code does, so the shortcuts' of residual networks are "
               "decayed, and all of networks with other names (mobilenet_v2, densenet121); readme: "
               "all, as its README says"),
    TD_BOOL_AS(td_train_opts, loss.reports_l2, "l2_loss", NULL, false,
               "add the weight decay term to the reported loss, as the TensorFlow programs do"),
    TD_BOOL_AS(td_train_opts, optimizer.nesterov, "nesterov", NULL, false, "use Nesterov momentum"),
    TD_REAL_AS(td_train_opts, optimizer.rmsprop_alpha, "rmsprop_alpha", NULL, 0.9, 0, 1, NULL,
               "rmsprop: smoothing constant of the mean square"),
    TD_REAL_AS(td_train_opts, optimizer.rmsprop_eps, "rmsprop_eps", NULL, 1e-3, 1e-30, 1, NULL,
               "rmsprop: epsilon added to the denominator"),
    TD_REAL_AS(td_train_opts, optimizer.adam_beta1, "adam_beta1", NULL, 0.9, 0, 1, NULL,
               "adam, adamw, lamb: smoothing constant of the mean gradient"),
    TD_REAL_AS(td_train_opts, optimizer.adam_beta2, "adam_beta2", NULL, 0.999, 0, 1, NULL,
               "adam, adamw, lamb: smoothing constant of the mean square"),
    TD_REAL_AS(td_train_opts, optimizer.adam_eps, "adam_eps", "opt-eps", 0, 0, 1, NULL,
               "adam, adamw, lamb: epsilon added to the denominator; 0: 1e-8, lamb: 1e-6"),
    TD_REAL_AS(td_train_opts, optimizer.lamb_max_norm, "lamb_max_grad_norm", NULL, 1, 0, 1e30, NULL,
               "lamb: limit of the norm of all gradients; 0: none"),
    TD_REAL_AS(td_train_opts, optimizer.clip_norm, "clip_grad_norm", NULL, 0, 0, 1e30, NULL,
               "limit of the norm of all gradients of a step; 0: none"),
    TD_REAL_AS(td_train_opts, optimizer.clip_value, "clip_grad_value", NULL, 0, 0, 1e30, NULL,
               "limit of the absolute value of gradients; 0: none"),
    TD_REAL_AS(td_train_opts, optimizer.norm_decay, "norm_weight_decay", NULL, -1, -1, 1, NULL,
               "weight decay of the parameters of norms; -1: as --decay-rule says"),
    TD_REAL_AS(td_train_opts, optimizer.bias_decay, "bias_weight_decay", NULL, -1, -1, 1, NULL,
               "weight decay of all biases, those of norms too; -1: as of other parameters"),
    TD_REAL_AS(td_train_opts, optimizer.embedding_decay, "transformer_embedding_decay", NULL, -1,
               -1, 1, NULL,
               "weight decay of class tokens and position embeddings; -1: as of other parameters"),
    TD_REAL_AS(td_train_opts, optimizer.ema, "use_ema", "model-ema-decay", -1, -1, 1, NULL,
               "decay of an exponential moving average of the weights, also validated and "
               "saved; -1: none"),
    TD_ENUM_AS(td_train_opts, optimizer.ema_rule, "ema_rule", NULL, TD_EMA_NVIDIA, ema_rules,
               "nvidia: the average is updated with every batch and its decay rises to --use-ema; "
               "torchvision: it is updated every --ema-steps steps with a decay adjusted to the "
               "images of a step and to --epochs, and is a copy of the weights during the warm-up"),
    TD_INT_AS (td_train_opts, optimizer.ema_steps, "ema_steps", "model-ema-steps", 32, 1, 1000000,
               NULL,
               "--ema-rule torchvision: optimizer steps between updates of the average"),
    TD_TEXT_AS(td_train_opts, optimizer.freeze, "freeze", NULL, NULL, "PATTERN,...",
               "do not train weights whose names match a glob pattern, for example "
               "'conv1.*,bn1.*,layer1.*'"),
    TD_BOOL_AS(td_train_opts, optimizer.freezes_bn, "freeze_bn", NULL, false,
               "keep frozen batch norms in evaluation mode: they use and keep their running "
               "statistics"),
    TD_ENUM_AS(td_train_opts, batch.shuffle, "shuffle", NULL, TD_SHUFFLE_PERMUTATION, shuffles,
               "shuffling of training samples; permutation: of the whole epoch; buffer: like "
               "DALI, through a buffer of 1024 samples over each rank's range"),
    TD_ENUM_AS(td_train_opts, batch.sampler, "sampler", NULL, TD_SAMPLER_DEALT, samplers,
               "how samples are divided among ranks; dealt: each sample once; padded: "
               "like PyTorch, some samples twice so that all ranks get the same number"),
    TD_BOOL_AS(td_train_opts, batch.balanced, "balanced_sampling", NULL, false,
               "draw the images of an epoch with replacement so that each class is equally "
               "probable, as PyTorch's WeightedRandomSampler"),
    TD_INT_AS (td_train_opts, batch.repeats, "aug_repeats", "ra-reps", 1, 1, 1000, NULL,
               "repeated augmentation: a batch has each image N times, augmented differently; an "
               "epoch reads as many fewer images"),
    TD_TEXT_AS(td_train_opts, batch.image_size_schedule, "image_size_schedule", NULL, NULL,
               "EPOCH:SIZE,...",
               "training image size by epoch, for example '0:128,30:160'"),
    TD_TITLE("Outputs"),
    TD_INT_AS (td_train_opts, metrics.print_freq, "print_freq", "p", 10, 1, 1000000000, NULL,
               "iterations between progress lines; during validation at most one line in 10 s"),
    TD_TITLE("Start"),
    TD_TEXT_AS(td_train_opts, start.resume, "resume", NULL, NULL, "FILE",
               "resume training from this checkpoint"),
    TD_TEXT_AS(td_train_opts, start.pretrained_weights, "pretrained_weights",
               "pretrained-from-file",
               NULL, "FILE",
               "initial weights: a Tandem or PyTorch file; sets the network too unless --arch "
               "is given"),
    TD_BOOL_AS(td_train_opts, compat.pretrained, "pretrained", NULL, false, NULL),
    TD_TITLE("Precision"),
    TD_BOOL_AS(td_train_opts, compat.fp16, "fp16", NULL, false, "same as --precision fp16"),
    TD_REAL_AS(td_train_opts, loss_scaling.scale, "static_loss_scale", NULL, -1, -1, 1e30, NULL,
               "constant loss scale; 1: no scaling; -1: dynamic for fp16, none for other types"),
    TD_BOOL_ONLY(td_train_opts, loss_scaling.is_dynamic, "dynamic_loss_scale", NULL, false,
               "use dynamic loss scaling; --static-loss-scale sets the initial scale"),
    TD_BOOL_NOT(td_train_opts, loss_scaling.allow_dynamic, "no-dynamic-loss-scale", NULL, false,
               "use the constant --static-loss-scale, or no loss scaling if it is not given"),
    TD_ENUM_AS(td_train_opts, loss_scaling.scaler, "loss_scaler", NULL, TD_LOSS_SCALER_AUTO,
               scalers,
               "use dynamic loss scaling with these constants (initial scale, growth, "
               "backoff); auto: those of tf, and scaling as --static-loss-scale sets it"),
    TD_LONG_AS(td_train_opts, loss_scaling.interval, "loss_scale_interval", NULL, 0, 0, TD_MANY,
               NULL,
               "steps without overflow after which the loss scale doubles; 0: as --loss-scaler, "
               "2000 or 100"),
    TD_LONG_AS(td_train_opts, loss_scaling.max_skips, "max_skips", NULL, 50, 0, TD_MANY, NULL,
               "fail after N consecutive skipped steps; 0: no limit"),
    TD_TITLE("Machine"),
    TD_LONG   (td_train_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "memory limit of the process in bytes, '4G' = '4GB' (10^9) or '4GiB' (2^30); "
               "with --device cuda: of the GPU; activations are recomputed to stay below it; 0: "
               "no limit"),
    TD_TITLE("Outputs"),
    TD_INT_AS (td_train_opts, profile.iterations, "prof", NULL, -1, -1, 1000000000, NULL,
               "stop each training and validation loop after N iterations and print a profile; "
               "-1: off"),
    TD_TITLE("Recipe"),
    TD_LONG_AS(td_train_opts, batch.seed, "seed", NULL, -1, -1, 9e15, NULL,
               "random seed; -1: taken from the clock and logged"),
    TD_TITLE("Outputs"),
    TD_INT_OR_SWITCH_AS(td_train_opts, output.keep_checkpoints, "gather_checkpoints", 0, -2,
               1000000, "-2",
               "number of epoch checkpoints to keep in addition to the latest and the best; -1: "
               "all; -2, or no number: the first ten epochs and every tenth"),
    TD_TEXT_AS(td_train_opts, report.file, "raport_file", NULL, NULL, "FILE",
               "report of the run in JSON lines, relative to the workspace; default: "
               TD_REPORT_NAME ", none with --no-checkpoints; spelled as in the reference programs"),
    TD_REPORT_ROWS(td_train_opts),
    TD_TEXT_AS(td_train_opts, metrics.tensorboard, "tensorboard", NULL, NULL, "FOLDER",
               "write event files for TensorBoard"),
    TD_TEXT_AS(td_train_opts, metrics.csv, "csv", NULL, NULL, "FILE",
               "write the metrics of every epoch as CSV"),
    TD_TEXT_AS(td_train_opts, metrics.csv_iterations, "csv_iterations", NULL, NULL, "FILE",
               "write the metrics of every --print-freq iterations as CSV"),
    TD_TITLE("Start"),
    TD_BOOL_AS(td_train_opts, validation.evaluate_only, "evaluate", NULL, false,
               "evaluate the weights of --resume or --pretrained-weights once and exit"),
    TD_BOOL_NOT(td_train_opts, validation.is_enabled, "training_only", NULL, false,
               "skip validation"),
    TD_TITLE("Outputs"),
    TD_BOOL_NOT(td_train_opts, output.save_checkpoints, "no-checkpoints", NULL, false,
               "do not save checkpoints"),
    TD_TEXT_AS(td_train_opts, output.checkpoint_filename, "checkpoint_filename", "checkpoint",
               "checkpoint.safetensors", "FILE",
               "file of the latest checkpoint, relative to the workspace"),
    TD_LONG_AS(td_train_opts, output.checkpoint_every, "checkpoint_every", NULL, 0, 0, TD_MANY,
               NULL,
               "optimizer steps between checkpoints; 0: only at the end of each epoch"),
    TD_TEXT_AS(td_train_opts, output.workspace, "workspace", NULL, NULL, "FOLDER",
               "folder for the files of the run; default: a new folder runs/ARCH-N, or the "
               "folder of the resumed checkpoint"),
    TD_BOOL_AS(td_train_opts, output.overwrite, "overwrite", NULL, false,
               "overwrite the files of another run in --workspace"),
    TD_TITLE("Machine"),
    TD_ENUM_AS(td_train_opts, compat.memory_format, "memory_format", NULL, TD_MEMORY_FORMAT_NCHW,
               memory_formats,
               "accepted but ignored; the compiler chooses layouts"),
    TD_ENUM_AS(td_train_opts, compat.jit, "jit", NULL, TD_JIT_NO, jits, NULL),
    TD_TEXT_AS(td_train_opts, compat.gpu_affinity, "gpu_affinity", NULL, NULL, "NAME",
               "binding of ranks that mpirun or srun started, as 'launch --cpu-affinity'"),
    TD_TEXT_AS(td_train_opts, compat.trt, "trt", NULL, NULL, "FLAG", NULL),
    TD_TEXT_AS(td_train_opts, compat.fused_se, "fused_se", NULL, NULL, "FLAG", NULL),
    TD_BOOL_AS(td_train_opts, compat.use_xla, "use-xla", "xla", false, NULL),
    TD_TITLE("Outputs"),
    TD_INT_AS (td_train_opts, validation.topk, "topk", NULL, TD_EVALUATOR_TOPK, 1, 1000000, NULL,
               "k of the top-k accuracy that is reported next to top-1"),
    TD_TEXT_AS(td_train_opts, output.final_weights, "final_weights", NULL, NULL, "FILE",
               "write the weights after the last step"),
    TD_BOOL_AS(td_train_opts, output.final_state, "final_state", NULL, false,
               "include momentum buffers in --final-weights"),
    TD_TEXT_AS(td_train_opts, output.train_logits, "train_logits", NULL, NULL, "FILE",
               "write the logits of the first step of the run"),
    TD_TEXT_AS(td_train_opts, profile.amp_stats, "amp_stats", NULL, NULL, "FILE",
               "write value statistics of all tensors for mixed precision, one JSON line per "
               "observed step"),
    TD_LONG_AS(td_train_opts, profile.amp_stats_every, "amp_stats_every", NULL, AMP_STATS_EVERY,
               1, TD_MANY, NULL,
               "steps between observed steps; the first step is observed"),
    TD_TEXT_AS(td_train_opts, profile.trace, "trace", NULL, NULL, "FILE",
               "write a trace of the kernels of the last steps, JSON for Perfetto or "
               "chrome://tracing"),
    TD_TEXT_AS(td_train_opts, validation.require, "require", NULL, NULL, "METRIC>=X",
               "exit with code 4 if the last validation does not satisfy this, for example "
               "'top1>=95'"),
    TD_TITLE("Machine"),
    TD_DEVICE_ROWS(td_train_opts),
    TD_INT_AS (td_train_opts, n_ranks, "ranks", NULL, 0, 0, 1024, NULL,
               "start so many ranks, which share each batch of --batch-size images; 0: on device "
               "cpu with several NUMA nodes one on each, otherwise one, as with --threads or "
               "--reproducible; no effect under a launcher"),
    TD_ALLREDUCE_ROWS(td_train_opts),
    TD_LONG_AS(td_train_opts, allreduce.check_every, "allreduce_check", NULL, 100, 0, TD_MANY, NULL,
               "optimizer steps between comparisons of the ranks' weights with --allreduce fast; "
               "0: none"),
    TD_TITLE("Compiler"),
    TD_PASS_ROWS(td_train_opts),
    TD_TEXT_AS(td_train_opts, device.dump_dir, "dump_dir", NULL, NULL, "FOLDER",
               "write the output of --dump-after to this folder, one file per pass, instead of "
               "the log"),
    TD_TITLE("Outputs"),
    TD_LOG_ROW(td_train_opts),
    TD_TITLE_SECONDARY("Learning rate schedules"),
    TD_ENUM_AS(td_train_opts, lr.warmup_form, "warmup_method", "lr-warmup-method",
               TD_WARMUP_LINEAR, warmups,
               "linear: from --warmup-lr to --lr; constant: --warmup-lr until the warm-up ends"),
    TD_REAL_AS(td_train_opts, lr.warmup_start, "warmup_lr", NULL, -1, -1, 1e6, NULL,
               "initial learning rate of the warm-up; -1: --lr divided by --warmup, and with "
               "--lr-rule ssd320 0.43332 of --lr, torchvision 0.001 of it"),
    TD_BOOL_NOT(td_train_opts, lr.decays_after_warmup, "no-warmup-prefix", NULL, false,
               "linear, cosine, polynomial: count epochs from the beginning of the training, as "
               "timm does, not from the end of the warm-up"),
    TD_TEXT_AS(td_train_opts, lr.multistep, "multistep", NULL, NULL, TD_META_NUMBERS,
               "step: epochs at which the learning rate falls; without: 30,60,80, and with "
               "--lr-rule ssd300 43,54"),
    TD_REAL_AS(td_train_opts, lr.power, "lr_power", NULL, 1, 1e-6, 100, NULL,
               "polynomial: power of the share of the training that is left"),
    TD_REAL_AS(td_train_opts, lr.cycle_start, "pct_start", NULL, 0.3, 0, 1, NULL,
               "one_cycle: share of the steps in which the learning rate rises"),
    TD_REAL_AS(td_train_opts, lr.cycle_div, "div_factor", NULL, 25, 1, 1e12, NULL,
               "one_cycle: the first learning rate is --lr divided by this"),
    TD_REAL_AS(td_train_opts, lr.cycle_end_div, "final_div_factor", NULL, 1e4, 1e-6, 1e12, NULL,
               "one_cycle: the last learning rate is the first one divided by this"),
    TD_ENUM_AS(td_train_opts, lr.cycle_form, "anneal_strategy", NULL, TD_ANNEAL_COS, anneals,
               "one_cycle: form of the rise and of the fall"),
    TD_BOOL_NOT(td_train_opts, lr.cycles_momentum, "no-cycle-momentum", NULL, false,
               "one_cycle: --momentum (--adam-beta1) stays as it is; without, it falls from "
               "--max-momentum to --base-momentum while the learning rate rises, and then rises "
               "again, as PyTorch's"),
    TD_REAL_AS(td_train_opts, lr.base_momentum, "base_momentum", NULL, 0.85, 0, 1, NULL,
               "one_cycle: momentum at the peak of the learning rate; adam, adamw, lamb: beta1"),
    TD_REAL_AS(td_train_opts, lr.max_momentum, "max_momentum", NULL, 0.95, 0, 1, NULL,
               "one_cycle: momentum at the beginning and at the end"),
    TD_TITLE_SECONDARY("Detectors"),
    TD_LONG_AS(td_train_opts, length.num_steps, "num_train_steps", NULL, -1, -1, TD_MANY, NULL,
               "total number of optimizer steps, replaces --epochs; -1: use --epochs"),
    TD_LONG_AS(td_train_opts, lr.total_steps, "lr_total_steps", NULL, -1, -1, TD_MANY, NULL,
               "length of the ssd320 learning rate schedule in steps; -1: the whole training"),
    TD_INT_AS (td_train_opts, validation.count, "eval_count", NULL, 0, 0, 1000000, NULL,
               "number of validations, spread evenly over the training; 0: one after every epoch"),
    TD_TEXT_AS(td_train_opts, validation.epochs, "evaluation", NULL, NULL, TD_META_NUMBERS,
               "validate only after these epochs, counted from 0, and at the end"),
    TD_INT_AS (td_train_opts, validation.batch_size, "eval_batch_size", NULL, 0, 0, 1 << 20, NULL,
               "validation batch size; 0: --batch-size"),
    TD_END,
};

/* clang-format on */

const td_field *td_train_fields(void)
{
    return train_fields;
}

void td_train_defaults(td_train_opts *opts)
{
    *opts = (td_train_opts){ 0 };
    td_model_defaults(&opts->model);
    td_fields_default(td_input_fields(), &opts->input);
    td_amp_defaults(&opts->amp);
    td_fields_default(td_launch_fields(), &opts->launch);
    td_fields_default(td_boxes_fields(), &opts->boxes);
    td_fields_default(train_fields, opts);
}

void td_train_groups(td_train_opts *o, td_field_group *out)
{
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Training", td_train_fields(), o };
    out[4] = (td_field_group){ "Detection", td_boxes_fields(), &o->boxes };
    out[5] = (td_field_group){ "Presets", td_launch_fields(), &o->launch };
    out[6] = (td_field_group){ NULL, NULL, NULL };
}

td_status td_train_config_yaml(const td_train_opts *opts, char **yaml)
{
    td_train_opts copy = *opts;
    td_field_group groups[7];
    td_text out = { 0 };
    td_train_groups(&copy, groups);
    groups[5].fields = NULL; /* already converted to options of the other groups */
    if (!copy.validation.evaluate_only)
        copy.start.resume = NULL; /* the same configuration as without an interruption */
    td_options_yaml(groups, &out);
    return td_text_take(&out, TD_OK, yaml);
}

double td_train_step_images(const td_train_opts *o)
{
    td_rank_place here;
    td_restart restart;
    if (o->batch.step_size > 0)
        return o->batch.step_size;
    if (td_ranks_here(&here) != TD_OK || td_restart_here(&restart) != TD_OK) {
        td_error_clear(); /* the job reports this */
        return (double)o->batch.size;
    }
    return (double)o->batch.size * (restart.ranks ? restart.ranks : here.size) / td_ranks_sharing();
}

td_amp_opts td_train_amp(const td_train_opts *opts)
{
    td_amp_opts amp = opts->amp;
    if (opts->compat.fp16)
        amp.precision = TD_PRECISION_FP16;
    return amp;
}

bool td_train_cycles_momentum(const td_train_opts *o)
{
    return o->lr.schedule == TD_LR_ONE_CYCLE && o->lr.rule == TD_LR_RULE_PYTORCH &&
           o->lr.cycles_momentum;
}

/* --- conflicts and unsupported options -------------------------------------------------------- */

/* Weight decay of kinds of weights. */
static td_status check_decays(const td_train_opts *o)
{
    const td_optimizer_opts *p = &o->optimizer;
    const struct {
        double value;
        const char *option;
    } rows[] = { { p->norm_decay, "--norm-weight-decay" },
                 { p->bias_decay, "--bias-weight-decay" },
                 { p->embedding_decay, "--transformer-embedding-decay" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value < 0 && rows[i].value != -1)
            return td_error(TD_EUSAGE, "%s: '%g' is out of range, wanted 0 to 1, or -1",
                            rows[i].option, rows[i].value);
        if (rows[i].value >= 0 && o->loss.reports_l2)
            return td_error(TD_EUSAGE,
                            "--l2-loss and %s exclude each other: --l2-loss knows one weight decay",
                            rows[i].option);
    }
    if (p->norm_decay >= 0 && p->decays_bn)
        return td_error(TD_EUSAGE, "--norm-weight-decay and --bn-weight-decay exclude each other");
    if (o->loss.reports_l2 && (p->type == TD_OPTIMIZER_ADAMW || p->type == TD_OPTIMIZER_LAMB))
        return td_error(TD_EUSAGE,
                        "--l2-loss and --optimizer %s exclude each other: its weight decay is no "
                        "part of the loss",
                        optimizers[p->type]);
    return TD_OK;
}

/* The momentum of one cycle, which is beta1 of some optimizers. */
static td_status check_cycle(const td_train_opts *o)
{
    const td_lr_opts *lr = &o->lr;
    const td_optimizer type = o->optimizer.type;
    if (!td_train_cycles_momentum(o))
        return TD_OK;
    if (lr->base_momentum > lr->max_momentum)
        return td_error(TD_EUSAGE, "--base-momentum %g is more than --max-momentum %g",
                        lr->base_momentum, lr->max_momentum);
    if (lr->max_momentum >= 1 && type != TD_OPTIMIZER_SGD && type != TD_OPTIMIZER_RMSPROP)
        return td_error(TD_EUSAGE,
                        "--max-momentum: 1 is out of range for --optimizer %s, wanted "
                        "0 or more, and less than 1",
                        optimizers[type]);
    return TD_OK;
}

/* A mean that keeps everything has no bias correction. */
static td_status check_betas(const td_optimizer_opts *o)
{
    if (o->adam_beta1 >= 1 || o->adam_beta2 >= 1)
        return td_error(TD_EUSAGE, "%s: 1 is out of range, wanted 0 or more, and less than 1",
                        o->adam_beta1 >= 1 ? "--adam-beta1" : "--adam-beta2");
    return TD_OK;
}

static td_status check_warmup_form(const td_lr_opts *o)
{
    if (o->warmup_start < 0 && o->warmup_start != -1)
        return td_error(TD_EUSAGE, "--warmup-lr: '%g' is out of range, wanted 0 to 1e+06, or -1",
                        o->warmup_start);
    if (o->warmup_form == TD_WARMUP_CONSTANT && o->warmup_start < 0)
        return td_error(TD_EUSAGE, "--warmup-method constant requires --warmup-lr");
    if (o->schedule == TD_LR_ONE_CYCLE && o->warmup > 0)
        return td_error(TD_EUSAGE, "--lr-schedule one_cycle and --warmup exclude each other: "
                                   "--pct-start sets how long the learning rate rises");
    return TD_OK;
}

static td_status check_averages(const td_train_opts *o)
{
    if (o->optimizer.ema < 0 && o->optimizer.ema != -1)
        return td_error(TD_EUSAGE, "--use-ema: '%g' is out of range, wanted 0 to 1, or -1",
                        o->optimizer.ema);
    if (o->optimizer.ema >= 0 && o->optimizer.ema_rule == TD_EMA_TORCHVISION &&
        (o->lr.rule == TD_LR_RULE_SSD320 || o->lr.rule == TD_LR_RULE_SSD300))
        return td_error(TD_EUSAGE,
                        "--ema-rule torchvision and --lr-rule %s exclude each other: it requires "
                        "a warm-up in epochs",
                        lr_rules[o->lr.rule]);
    return TD_OK;
}

static td_status check_recipe(const td_train_opts *o)
{
    TD_TRY(check_averages(o));
    if (o->batch.step_size >= 0 && o->batch.step_size < o->batch.size)
        return td_error(TD_EUSAGE, "--optimizer-batch-size: %d is less than a batch of %d",
                        o->batch.step_size, o->batch.size);
    if (o->loss.class_weights && o->loss.type == TD_LOSS_BCE)
        return td_error(TD_EUSAGE, "--class-weights and --loss bce exclude each other");
    if (o->loss.positive_weights && o->loss.type != TD_LOSS_BCE)
        return td_error(TD_EUSAGE, "--pos-weight requires --loss bce");
    if (o->loss.mixup_file && o->loss.mixup <= 0)
        return td_error(TD_EUSAGE, "--mixup-file requires --mixup");
    if (o->loss.mixup_file && o->loss.cutmix > 0)
        return td_error(TD_EUSAGE, "--mixup-file and --cutmix exclude each other: the file has no "
                                   "boxes");
    if (o->lr.rule == TD_LR_RULE_TF && o->lr.schedule != TD_LR_STEP &&
        o->lr.schedule != TD_LR_COSINE)
        return td_error(TD_EUSAGE, "--lr-rule tf requires --lr-schedule step or cosine, found %s",
                        schedules[o->lr.schedule]);
    if (o->lr.rule == TD_LR_RULE_TF && o->lr.end > 0)
        return td_error(
            TD_EUSAGE,
            "--lr-rule tf and --end-lr %g exclude each other: that rule ends at a rate of 0",
            o->lr.end);
    if (o->lr.rule == TD_LR_RULE_SSD320 && o->lr.schedule != TD_LR_COSINE)
        return td_error(TD_EUSAGE, "--lr-rule ssd320 requires --lr-schedule cosine, found %s",
                        schedules[o->lr.schedule]);
    if (o->lr.rule == TD_LR_RULE_SSD300 && o->lr.schedule != TD_LR_STEP)
        return td_error(TD_EUSAGE, "--lr-rule ssd300 requires --lr-schedule step, found %s",
                        schedules[o->lr.schedule]);
    if (o->lr.rule == TD_LR_RULE_TORCHVISION && o->lr.schedule == TD_LR_ONE_CYCLE)
        return td_error(TD_EUSAGE, "--lr-rule torchvision and --lr-schedule one_cycle exclude each "
                                   "other: the cycle is by step");
    TD_TRY(check_warmup_form(&o->lr));
    if ((o->lr.rule == TD_LR_RULE_SSD320 || o->lr.rule == TD_LR_RULE_SSD300) && o->lr.end > 0)
        return td_error(TD_EUSAGE, "--lr-rule %s and --end-lr exclude each other",
                        lr_rules[o->lr.rule]);
    if (o->allreduce.mode == TD_ALLREDUCE_FAST && o->batch.is_reproducible)
        return td_error(TD_EUSAGE, "--allreduce fast and --reproducible exclude each other");
    if (o->allreduce.mode != TD_ALLREDUCE_FAST && o->allreduce.dtype != TD_WIRE_FLOAT32)
        return td_error(TD_EUSAGE, "--allreduce-dtype requires --allreduce fast");
    if (o->validation.epochs && o->validation.count)
        return td_error(TD_EUSAGE, "--evaluation and --eval-count exclude each other");
    if (o->optimizer.freezes_bn && !(o->optimizer.freeze && *o->optimizer.freeze))
        return td_error(TD_EUSAGE, "--freeze-bn requires --freeze");
    TD_TRY(check_decays(o));
    TD_TRY(check_betas(&o->optimizer));
    TD_TRY(check_cycle(o));
    if (o->optimizer.clip_norm > 0 && o->optimizer.clip_value > 0)
        return td_error(TD_EUSAGE, "--clip-grad-norm and --clip-grad-value exclude each other");
    if (o->optimizer.decay_rule == TD_DECAY_README && o->optimizer.decays_bn)
        return td_error(TD_EUSAGE, "--decay-rule readme and --bn-weight-decay exclude each other");
    return TD_OK;
}

/* Check numbers that must be -1 or at least 1. */
static td_status check_lengths(const td_train_opts *o)
{
    const struct {
        int64_t value;
        const char *option;
    } rows[] = { { o->length.num_steps, "--num-train-steps" },
                 { o->lr.total_steps, "--lr-total-steps" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value == 0)
            return td_error(TD_EUSAGE, "%s: 0 is out of range, wanted 1 or more, or -1",
                            rows[i].option);
    return TD_OK;
}

/* Options that observe one program do not work with several image sizes. */
static td_status check_sizes(const td_train_opts *o)
{
    const struct {
        bool is_set;
        const char *what;
    } rows[] = { { o->profile.iterations > 0, "--prof" },
                 { o->profile.trace != NULL, "--trace" },
                 { o->profile.amp_stats != NULL, "--amp-stats" } };
    td_sizes sizes;
    TD_TRY_MSG(td_sizes_parse(o->batch.image_size_schedule, &sizes), "--image-size-schedule");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && sizes.n; i++)
        if (rows[i].is_set)
            return td_error(TD_EUSAGE, "%s and --image-size-schedule exclude each other",
                            rows[i].what);
    return TD_OK;
}

td_status td_train_check(const td_train_opts *o)
{
    const struct {
        bool is_set;
        const char *what;
    } rows[] = {
        { o->compat.pretrained,
          "--pretrained (downloading weights; use --pretrained-weights FILE)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_set)
            return td_error(TD_EUSAGE, "%s is not supported yet", rows[i].what);
    if (o->loss_scaling.scale != -1 && o->loss_scaling.scale < 1)
        return td_error(TD_EUSAGE,
                        "--static-loss-scale: '%g' is out of range, wanted 1 or more, or -1",
                        o->loss_scaling.scale);
    if (o->start.resume && !o->input.data && o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(
            TD_EUSAGE, "--resume '%s' requires DATA too: a checkpoint does not select the data set",
            o->start.resume);
    TD_TRY(check_sizes(o));
    TD_TRY(td_model_check_resize(&o->model));
    TD_TRY(check_lengths(o));
    return check_recipe(o);
}

static td_status check_warmup(const td_train_opts *o)
{
    if (o->lr.rule >= TD_LR_RULE_SSD320)
        return TD_OK; /* in steps; the job checks it when the data are open */
    if (o->lr.warmup < 0)
        return td_error(TD_EUSAGE, "--warmup -1 requires --lr-rule ssd320, ssd300 or torchvision");
    const bool is_given =
        td_options_given(train_fields, o, "warmup") && td_options_given(train_fields, o, "epochs");
    if (o->lr.warmup > o->length.epochs && (is_given || !*o->launch.name)) /* a preset's may be */
        return td_error(TD_EUSAGE, "--warmup: %d epochs of warm-up do not fit into --epochs %d",
                        o->lr.warmup, o->length.epochs);
    return TD_OK;
}

td_status td_train_check_training(const td_train_opts *o)
{
    TD_TRY(td_train_check(o));
    if (!o->input.data && o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE, "train needs DATA, a folder of train/ and val/");
    if (o->start.resume && o->start.pretrained_weights)
        return td_error(TD_EUSAGE, "--resume and --pretrained-weights exclude each other");
    TD_TRY(check_warmup(o));
    if (o->validation.require &&
        (!o->validation.is_enabled || o->input.data_backend == TD_DATA_TENSORS))
        return td_error(TD_EUSAGE, "--require needs a validation");
    return TD_OK;
}

td_status td_train_check_line(const td_train_opts *o)
{
    if (o->compat.fp16 && o->amp.amp)
        return td_error(TD_EUSAGE, "--fp16 and --amp exclude each other: please use only one");
    if (o->compat.fp16 && o->amp.precision != TD_PRECISION_DEFAULT &&
        o->amp.precision != TD_PRECISION_FP16)
        return td_error(TD_EUSAGE, "--fp16 and another --precision exclude each other");
    if (o->loss_scaling.is_dynamic && !o->loss_scaling.allow_dynamic)
        return td_error(TD_EUSAGE, "--dynamic-loss-scale and --no-dynamic-loss-scale exclude "
                                   "each other");
    if (!o->loss_scaling.allow_dynamic && o->loss_scaling.scaler != TD_LOSS_SCALER_AUTO)
        return td_error(TD_EUSAGE, "--loss-scaler and --no-dynamic-loss-scale exclude each other: "
                                   "every --loss-scaler is a dynamic loss scale");
    if (o->profile.amp_stats_every != AMP_STATS_EVERY && !o->profile.amp_stats)
        return td_error(TD_EUSAGE, "--amp-stats-every requires --amp-stats");
    if (o->batch.shuffle != TD_SHUFFLE_PERMUTATION && o->batch.sampler != TD_SAMPLER_DEALT)
        return td_error(TD_EUSAGE, "--shuffle buffer and --sampler padded exclude each other");
    if (o->batch.repeats > 1 &&
        (o->batch.shuffle != TD_SHUFFLE_PERMUTATION || o->batch.sampler != TD_SAMPLER_DEALT))
        return td_error(TD_EUSAGE, "--aug-repeats requires --shuffle permutation and --sampler "
                                   "dealt");
    if (o->batch.balanced && (o->batch.shuffle != TD_SHUFFLE_PERMUTATION || o->batch.repeats > 1))
        return td_error(TD_EUSAGE, "--balanced-sampling excludes --shuffle buffer and "
                                   "--aug-repeats");
    if (o->profile.trace && o->validation.evaluate_only)
        return td_error(
            TD_EUSAGE, "--trace and --evaluate exclude each other: --trace records training steps");
    if (!o->output.save_checkpoints && o->output.checkpoint_every)
        return td_error(TD_EUSAGE, "--no-checkpoints and --checkpoint-every exclude each other");
    if (!o->validation.is_enabled && o->validation.patience >= 0)
        return td_error(TD_EUSAGE, "--early-stopping-patience and --training-only exclude each "
                                   "other: early stopping requires a validation");
    if (o->output.final_weights)
        TD_TRY(td_weight_file_name_check("--final-weights", o->output.final_weights));
    td_amp_opts amp = td_train_amp(o);
    return td_amp_check(&amp);
}
