/*
 * train_options.c -- the options of `tandem train`: names, defaults, ranges, one line of help each
 *
 * Names and defaults are those of NVIDIA's DeepLearningExamples (classification, main.py of 2024;
 * the spellings of 2019 are aliases), so that a script written for it keeps working.
 */
#include "recipes/train_options.h"

#include "amp/amp_opts.h"
#include "base/status.h"
#include "comm/rank_env.h"
#include "data/sizes.h"
#include "evaluation/evaluator.h"
#include "loggers/run_logger.h"
#include "options/field.h"
#include "options/rows.h"

static const char *const shuffles[] = { "permutation", "buffer", NULL };
static const char *const samplers[] = { "dealt", "padded", NULL };
static const char *const schedules[] = { "step", "linear", "cosine", "exponential", NULL };
static const char *const lr_rules[] = { "pytorch", "tf", "ssd320", "ssd300", NULL };
static const char *const mixup_modes[] = { "batch", "sample", NULL };
static const char *const decay_rules[] = { "code", "readme", NULL };
static const char *const optimizers[] = { "sgd", "rmsprop", NULL };
static const char *const memory_formats[] = { "nchw|channels_first", "nhwc|channels_last", NULL };
static const char *const jits[] = { "no", "script", NULL };
static const char *const scalers[] = { "auto", "tf", "pytorch", "apex", "nvidia", NULL };

enum { AMP_STATS_EVERY = 100 };

/* clang-format off */

static const td_field train_fields[] = {
    TD_TITLE("Recipe"),
    TD_INT_AS (td_train_opts, batch_size, "batch_size", "b", 256, 1, 1 << 20, NULL,
               "batch size of each rank"),
    TD_INT    (td_train_opts, optimizer_batch_size, -1, -1, 1 << 24,
               "images per optimizer step, reached by gradient accumulation; -1: one batch"),
    TD_BOOL   (td_train_opts, reproducible, false,
               "sum gradients batch by batch in a fixed order: same bits for any number of ranks"),
    TD_INT    (td_train_opts, epochs, 90, 1, 1000000,
               "total number of epochs; the learning rate schedule spans them"),
    TD_INT    (td_train_opts, run_epochs, -1, -1, 1000000,
               "stop this run after N epochs; -1: run to the end"),
    TD_LONG   (td_train_opts, run_iters, -1, -1, TD_MANY,
               "stop this run after N optimizer steps; -1: no limit"),
    TD_INT    (td_train_opts, early_stopping_patience, -1, -1, 1000000,
               "stop after N epochs without a new best result; -1: never"),
    TD_REAL_AS(td_train_opts, lr, "lr", "learning-rate", 0.1, 0, 1e6, NULL, "peak learning rate"),
    TD_REAL   (td_train_opts, end_lr, 0, 0, 1e6, "final learning rate of the cosine schedule"),
    TD_ENUM   (td_train_opts, lr_schedule, 0, schedules, "learning rate schedule"),
    TD_ENUM   (td_train_opts, lr_rule, 0, lr_rules,
               "when the learning rate changes and what --lr refers to: pytorch: every epoch; "
               "tf: every step, --lr is for 256 images; ssd320: every step; ssd300: every step, "
               "--lr is for 32 images"),
    TD_REAL   (td_train_opts, lr_decay, 0, 0, 1,
               "exponential schedule: factor of each decay; 0: reach 0.001 of --lr at the end"),
    TD_INT    (td_train_opts, lr_decay_epochs, 1, 1, 1000000,
               "exponential schedule: epochs between decays"),
    TD_INT    (td_train_opts, warmup, 0, -1, 100000000,
               "epochs of linear warm-up; with --lr-rule ssd320 or ssd300: steps, -1: the "
               "recipe's number"),
    TD_REAL   (td_train_opts, label_smoothing, 0, 0, 1,
               "label smoothing: fraction of the target distributed over all classes"),
    TD_REAL   (td_train_opts, mixup, 0, 0, 100,
               "mixup alpha: mixing coefficients are drawn from Beta(alpha, alpha); 0: no mixup"),
    TD_ENUM   (td_train_opts, mixup_mode, 0, mixup_modes,
               "batch: one coefficient per batch, random partners; sample: one per sample, "
               "reversed batch as partners"),
    TD_TEXT   (td_train_opts, mixup_file, NULL, "FILE",
               "read the mixup coefficients and permutations from a .safetensors file; for tests"),
    TD_ENUM   (td_train_opts, optimizer, 0, optimizers, "optimizer"),
    TD_REAL   (td_train_opts, momentum, 0.9, 0, 1, "momentum coefficient"),
    TD_REAL_AS(td_train_opts, weight_decay, "weight_decay", "wd", 1e-4, 0, 1, NULL,
               "weight decay of all parameters except those of batch norms"),
    TD_BOOL   (td_train_opts, bn_weight_decay, false,
               "apply weight decay to batch norm parameters too"),
    TD_ENUM   (td_train_opts, decay_rule, 0, decay_rules,
               "batch norm parameters exempt from weight decay; code: those with 'bn' in their "
               "name, so not those of shortcuts; readme: all"),
    TD_BOOL   (td_train_opts, l2_loss, false,
               "add the weight decay term to the reported loss, as the TensorFlow programs do"),
    TD_BOOL   (td_train_opts, nesterov, false, "use Nesterov momentum"),
    TD_REAL   (td_train_opts, rmsprop_alpha, 0.9, 0, 1,
               "rmsprop: smoothing constant of the mean square"),
    TD_REAL   (td_train_opts, rmsprop_eps, 1e-3, 1e-30, 1,
               "rmsprop: epsilon added to the denominator"),
    TD_REAL   (td_train_opts, use_ema, -1, -1, 1,
               "decay of an exponential moving average of the weights, also validated and "
               "saved; -1: none"),
    TD_TEXT   (td_train_opts, freeze, NULL, "PATTERN,...",
               "do not train weights whose names match, for example 'conv1*,bn1*,layer1.*'"),
    TD_BOOL   (td_train_opts, freeze_bn, false,
               "keep frozen batch norms in evaluation mode: they use and keep their running "
               "statistics"),
    TD_ENUM   (td_train_opts, shuffle, 0, shuffles,
               "shuffling of training samples; permutation: of the whole epoch; buffer: as "
               "DALI, through a buffer of 1024 samples over each rank's range"),
    TD_ENUM   (td_train_opts, sampler, 0, samplers,
               "how samples are divided among ranks; dealt: each sample once; padded: as "
               "PyTorch, some samples twice"),
    TD_TEXT   (td_train_opts, image_size_schedule, NULL, "EPOCH:SIZE,...",
               "training image size by epoch, for example '0:128,30:160'"),
    TD_TITLE("Outputs"),
    TD_INT_AS (td_train_opts, print_freq, "print_freq", "p", 10, 1, 1000000000, NULL,
               "iterations between progress lines; during validation at most one line in 10 s"),
    TD_TITLE("Start"),
    TD_TEXT   (td_train_opts, resume, NULL, "FILE", "resume training from this checkpoint"),
    TD_TEXT_AS(td_train_opts, pretrained_weights, "pretrained_weights", "pretrained-from-file",
               NULL, "FILE",
               "initial weights: a Tandem or PyTorch file; sets the network too unless --arch "
               "is given"),
    TD_BOOL   (td_train_opts, pretrained, false, NULL),
    TD_TITLE("Precision"),
    TD_BOOL   (td_train_opts, fp16, false, "same as --precision fp16"),
    TD_REAL   (td_train_opts, static_loss_scale, -1, -1, 1e30,
               "constant loss scale; 1: no scaling; -1: dynamic for fp16, none for other types"),
    TD_BOOL   (td_train_opts, dynamic_loss_scale, false,
               "use dynamic loss scaling; --static-loss-scale sets the initial scale"),
    TD_BOOL_AS(td_train_opts, no_dynamic_loss_scale, "no-dynamic-loss-scale", NULL, false,
               "use the constant --static-loss-scale, or no loss scaling if it is not given"),
    TD_ENUM   (td_train_opts, loss_scaler, 0, scalers,
               "constants of dynamic loss scaling: initial scale, growth, backoff; auto: tf"),
    TD_LONG   (td_train_opts, loss_scale_interval, 0, 0, TD_MANY,
               "steps without overflow after which the loss scale doubles; 0: as --loss-scaler, "
               "2000 or 100"),
    TD_LONG   (td_train_opts, max_skips, 50, 0, TD_MANY,
               "fail after N consecutive skipped steps; 0: no limit"),
    TD_TITLE("Machine"),
    TD_LONG   (td_train_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "memory limit of the process in bytes, '4G' = '4GB' (10^9) or '4GiB' (2^30); "
               "activations are recomputed to stay below it; 0: no limit"),
    TD_TITLE("Outputs"),
    TD_INT    (td_train_opts, prof, -1, -1, 1000000000,
               "stop each training and validation loop after N iterations and print a profile; "
               "-1: off"),
    TD_TITLE("Recipe"),
    TD_LONG   (td_train_opts, seed, -1, -1, 9e15,
               "random seed; -1: taken from the clock and logged"),
    TD_TITLE("Outputs"),
    TD_INT_OR_SWITCH(td_train_opts, gather_checkpoints, 0, -2, 1000000, "-2",
               "number of epoch checkpoints to keep in addition to the latest and the best; -1: "
               "all; -2, or no number: the first ten epochs and every tenth"),
    TD_TEXT   (td_train_opts, raport_file, NULL, "FILE",
               "report of the run in JSON lines, relative to the workspace; default: "
               TD_REPORT_NAME ", none with --no-checkpoints"),
    TD_REPORT_ROWS(td_train_opts),
    TD_TEXT   (td_train_opts, tensorboard, NULL, "FOLDER", "write event files for TensorBoard"),
    TD_TEXT   (td_train_opts, csv, NULL, "FILE", "write the metrics of every epoch as CSV"),
    TD_TEXT   (td_train_opts, csv_iterations, NULL, "FILE",
               "write the metrics of every --print-freq iterations as CSV"),
    TD_TITLE("Start"),
    TD_BOOL   (td_train_opts, evaluate, false,
               "evaluate the weights of --resume or --pretrained-weights once and exit"),
    TD_BOOL   (td_train_opts, training_only, false, "skip validation"),
    TD_TITLE("Outputs"),
    TD_BOOL_AS(td_train_opts, no_checkpoints, "no-checkpoints", NULL, false,
               "do not save checkpoints"),
    TD_TEXT_AS(td_train_opts, checkpoint_filename, "checkpoint_filename", "checkpoint",
               "checkpoint.safetensors", "FILE",
               "file of the latest checkpoint, relative to the workspace"),
    TD_LONG   (td_train_opts, checkpoint_every, 0, 0, TD_MANY,
               "optimizer steps between checkpoints; 0: only at the end of each epoch"),
    TD_TEXT   (td_train_opts, workspace, NULL, "FOLDER",
               "folder for the files of the run; default: a new folder runs/ARCH-N, or the "
               "folder of the resumed checkpoint"),
    TD_BOOL   (td_train_opts, overwrite, false,
               "overwrite the files of another run in --workspace"),
    TD_TITLE("Machine"),
    TD_ENUM   (td_train_opts, memory_format, 0, memory_formats,
               "accepted but ignored; the compiler chooses layouts"),
    TD_ENUM   (td_train_opts, jit, 0, jits, NULL),
    TD_TEXT   (td_train_opts, gpu_affinity, NULL, "NAME", NULL),
    TD_TEXT   (td_train_opts, trt, NULL, "FLAG", NULL),
    TD_TEXT   (td_train_opts, fused_se, NULL, "FLAG", NULL),
    TD_BOOL_AS(td_train_opts, use_xla, "use-xla", "xla", false, NULL),
    TD_TITLE("Outputs"),
    TD_INT    (td_train_opts, topk, TD_EVALUATOR_TOPK, 1, 1000000,
               "k of the top-k accuracy that is reported next to top-1"),
    TD_TEXT   (td_train_opts, final_weights, NULL, "FILE",
               "write the weights after the last step"),
    TD_BOOL   (td_train_opts, final_state, false, "include momentum buffers in --final-weights"),
    TD_TEXT   (td_train_opts, train_logits, NULL, "FILE",
               "write the logits of the first step of the run"),
    TD_TEXT   (td_train_opts, amp_stats, NULL, "FILE",
               "write value statistics of all tensors for mixed precision, one JSON line per "
               "observed step"),
    TD_LONG   (td_train_opts, amp_stats_every, AMP_STATS_EVERY, 1, TD_MANY,
               "steps between observed steps; the first step is observed"),
    TD_TEXT   (td_train_opts, trace, NULL, "FILE",
               "write a trace of the kernels of the last steps, JSON for Perfetto or "
               "chrome://tracing"),
    TD_TEXT   (td_train_opts, require, NULL, "METRIC>=X",
               "exit with code 4 if the last validation does not satisfy this, for example "
               "'top1>=95'"),
    TD_TITLE("Machine"),
    TD_DEVICE_ROWS(td_train_opts),
    TD_TITLE("Compiler"),
    TD_PASS_ROWS(td_train_opts),
    TD_TEXT_AS(td_train_opts, device.dump_dir, "dump_dir", NULL, NULL, "FOLDER",
               "write the output of --dump-after to this folder, one file per pass, instead of "
               "the log"),
    TD_TITLE("Outputs"),
    TD_LOG_ROW(td_train_opts),
    TD_TITLE_BEHIND("Detectors"),
    TD_LONG   (td_train_opts, num_train_steps, -1, -1, TD_MANY,
               "total number of optimizer steps, replaces --epochs; -1: use --epochs"),
    TD_LONG   (td_train_opts, lr_total_steps, -1, -1, TD_MANY,
               "length of the ssd320 learning rate schedule in steps; -1: the whole training"),
    TD_REAL   (td_train_opts, warmup_lr, -1, -1, 1e6,
               "initial learning rate of the ssd320 warm-up; -1: 0.43332 of --lr"),
    TD_TEXT   (td_train_opts, multistep, NULL, TD_META_NUMBERS,
               "epochs at which the ssd300 learning rate is divided by 10"),
    TD_INT    (td_train_opts, eval_count, 0, 0, 1000000,
               "number of validations, spread evenly over the training; 0: one after every epoch"),
    TD_TEXT   (td_train_opts, evaluation, NULL, TD_META_NUMBERS,
               "validate only after these epochs, counted from 0, and at the end"),
    TD_INT    (td_train_opts, eval_batch_size, 0, 0, 1 << 20,
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
    groups[5].fields = NULL; /* what they stood for is in the others */
    if (!copy.evaluate)
        copy.resume = NULL; /* a run that was interrupted ends as one that was not */
    td_options_yaml(groups, &out);
    return td_text_take(&out, TD_OK, yaml);
}

double td_train_step_images(const td_train_opts *o)
{
    td_rank_place here;
    if (o->optimizer_batch_size > 0)
        return o->optimizer_batch_size;
    if (td_ranks_here(&here) != TD_OK) { /* the job itself will complain */
        td_error_clear();
        here.size = 1;
    }
    return (double)o->batch_size * here.size;
}

td_amp_opts td_train_amp(const td_train_opts *opts)
{
    td_amp_opts amp = opts->amp;
    if (opts->fp16)
        amp.precision = TD_PRECISION_FP16;
    return amp;
}

/* --- what does not go together, or is not there yet ------------------------------------------- */

static td_status check_recipe(const td_train_opts *o)
{
    if (o->use_ema < 0 && o->use_ema != -1)
        return td_error(TD_EUSAGE, "--use-ema: '%g' is not between 0 and 1, nor -1", o->use_ema);
    if (o->optimizer_batch_size >= 0 && o->optimizer_batch_size < o->batch_size)
        return td_error(TD_EUSAGE, "--optimizer-batch-size: %d is less than a batch of %d",
                        o->optimizer_batch_size, o->batch_size);
    if (o->mixup_file && o->mixup <= 0)
        return td_error(TD_EUSAGE, "--mixup-file belongs to --mixup");
    if (o->lr_rule == 1 && (o->lr_schedule == 1 || o->lr_schedule == 3))
        return td_error(TD_EUSAGE, "--lr-rule tf knows the schedules step and cosine, not %s",
                        schedules[o->lr_schedule]);
    if (o->lr_rule == 1 && o->end_lr > 0)
        return td_error(TD_EUSAGE, "--lr-rule tf ends at 0, --end-lr %g contradicts it", o->end_lr);
    if (o->lr_rule == 2 && o->lr_schedule != 2)
        return td_error(TD_EUSAGE, "--lr-rule ssd320 is a cosine, --lr-schedule %s contradicts it",
                        schedules[o->lr_schedule]);
    if (o->lr_rule == 3 && o->lr_schedule != 0)
        return td_error(TD_EUSAGE,
                        "--lr-rule ssd300 falls in steps, --lr-schedule %s contradicts "
                        "it",
                        schedules[o->lr_schedule]);
    if (o->lr_rule >= 2 && o->end_lr > 0)
        return td_error(TD_EUSAGE, "--lr-rule %s has no --end-lr", lr_rules[o->lr_rule]);
    if (o->num_train_steps == 0)
        return td_error(TD_EUSAGE, "--num-train-steps: 0 is out of range, wanted 1 or more, or -1");
    if (o->lr_total_steps == 0)
        return td_error(TD_EUSAGE, "--lr-total-steps: 0 is out of range, wanted 1 or more, or -1");
    if (o->evaluation && o->eval_count)
        return td_error(TD_EUSAGE, "--evaluation and --eval-count exclude each other");
    if (o->freeze_bn && !(o->freeze && *o->freeze))
        return td_error(TD_EUSAGE, "--freeze-bn belongs to --freeze");
    if (o->decay_rule == 1 && o->bn_weight_decay)
        return td_error(TD_EUSAGE,
                        "--decay-rule readme and --bn-weight-decay contradict each other");
    return TD_OK;
}

/* what is said about one program, where there are several */
static td_status check_sizes(const td_train_opts *o)
{
    const struct {
        bool is_set;
        const char *what;
    } rows[] = { { o->prof > 0, "--prof" },
                 { o->trace != NULL, "--trace" },
                 { o->amp_stats != NULL, "--amp-stats" } };
    td_sizes sizes;
    TD_TRY_MSG(td_sizes_parse(o->image_size_schedule, &sizes), "--image-size-schedule");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && sizes.n; i++)
        if (rows[i].is_set)
            return td_error(TD_EUSAGE,
                            "%s looks at one program, --image-size-schedule makes one for every "
                            "size",
                            rows[i].what);
    return TD_OK;
}

td_status td_train_check(const td_train_opts *o)
{
    const struct {
        bool is_set;
        const char *what;
    } rows[] = {
        { o->pretrained, "--pretrained (downloading weights; --pretrained-weights takes a file)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_set)
            return td_error(TD_EUSAGE, "%s is not supported yet", rows[i].what);
    if (o->static_loss_scale != -1 && o->static_loss_scale < 1)
        return td_error(TD_EUSAGE, "--static-loss-scale: '%g' is not at least 1, nor -1",
                        o->static_loss_scale);
    if (o->resume && !o->input.data && o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE,
                        "--resume '%s' needs DATA too: a checkpoint does not choose which files "
                        "are read",
                        o->resume);
    TD_TRY(check_sizes(o));
    return check_recipe(o);
}

td_status td_train_check_line(const td_train_opts *o)
{
    if (o->fp16 && o->amp.amp) /* with the reference's exit code, which is not that of usage */
        return td_error(TD_EARG, "--fp16 and --amp exclude each other: please use only one");
    if (o->fp16 && o->amp.precision != TD_PRECISION_DEFAULT &&
        o->amp.precision != TD_PRECISION_FP16)
        return td_error(TD_EUSAGE, "--fp16 and another --precision contradict each other");
    if (o->dynamic_loss_scale && o->no_dynamic_loss_scale)
        return td_error(TD_EUSAGE, "--dynamic-loss-scale and --no-dynamic-loss-scale contradict "
                                   "each other");
    if (o->no_dynamic_loss_scale && o->loss_scaler)
        return td_error(TD_EUSAGE, "--loss-scaler selects a dynamic loss scale, "
                                   "--no-dynamic-loss-scale turns it off");
    if (o->amp_stats_every != AMP_STATS_EVERY && !o->amp_stats)
        return td_error(TD_EUSAGE, "--amp-stats-every belongs to --amp-stats");
    if (o->shuffle && o->sampler)
        return td_error(TD_EUSAGE,
                        "--shuffle buffer has shares of its own, --sampler padded others");
    if (o->trace && o->evaluate)
        return td_error(TD_EUSAGE, "--trace shows training steps, --evaluate makes none");
    if (o->no_checkpoints && o->checkpoint_every)
        return td_error(TD_EUSAGE, "--no-checkpoints and --checkpoint-every exclude each other");
    if (o->training_only && o->early_stopping_patience >= 0)
        return td_error(TD_EUSAGE, "--early-stopping-patience needs a validation, --training-only "
                                   "leaves it out");
    td_amp_opts amp = td_train_amp(o);
    return td_amp_check(&amp);
}
