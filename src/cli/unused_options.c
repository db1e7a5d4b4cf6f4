/*
 * unused_options.c -- tables of the options that a job of a verb does not read
 *
 *   never[]   options without effect in any verb, with the reason (rows of kind ACCEPTED have it)
 *   jobs[]    a verb's other jobs (train --evaluate, inspect memory ...) with the options they read
 *   unread[]  options that no job of a verb reads
 *   needs[]   options that require another option
 */
#include "cli/unused_options.h"

#include <stdio.h>
#include <string.h>

#include "tandem/launch.h"
#include "tandem/model.h"

typedef struct {
    const char *option, *why;
} never_row;

static const never_row never[] = {
    { "use-xla", "every graph is fused and compiled" },
    { "jit", "every graph is fused and compiled" },
    { "memory_format", "the layout pass decides" },
    { "trt", "there is no TensorRT" },
    { "fused_se", "the passes decide" },
};

/* `reads` lists the names of options, with a blank before and after each. */
typedef struct {
    const char *verb, *job, *what, *reads;
} job_row;

#define MODEL                                                                                      \
    " arch model model_output num_classes image_size channels val_resize multi_label mean std "    \
    "se_form variant backbone bn_epsilon "
#define TRAINED " last_bn_0_init conv_init bn_decay bn_momentum dropout stochastic_depth "
#define AMP                                                                                        \
    " amp no-amp precision amp_rule amp_level amp_allow_add amp_allow_remove amp_infer_add "       \
    "amp_infer_remove amp_deny_add amp_deny_remove amp_clear_add amp_clear_remove amp_log_path "
#define RUN    " device threads tune tune_cache winograd log "
#define LAUNCH " preset cfg_file platform mode pipeline_config_path hparams_overrides "
#define SOURCE                                                                                     \
    " data data_backend list_outside list_delimiter label_offset interpolation crop antialias "    \
    "no-antialias "                                                                                \
    "normalization workers prefetch "                                                              \
    "max_bad ignore_orientation "
#define CHANGES                                                                                    \
    "augmentation auto_augment aa train_interpolation ra_ops ra_magnitude augment_bins "           \
    "color_jitter jitter_strength random_erase "
#define BOXES                                                                                      \
    " min_score nms_iou max_per_class max_boxes box_areas sample_1_of_n_eval_examples label_ids "  \
    "strict "
#define REPORT " raport_file log_format raport_compat raport_names raport_warmup "
#define COMMON " help print_config config json "

static const job_row jobs[] = {
    { "train", "evaluate", "train --evaluate",
      COMMON MODEL AMP RUN LAUNCH SOURCE BOXES REPORT
      " evaluate val_list val_split batch_size eval_batch_size val_annotations resume "
      "pretrained_weights "
      "topk label_smoothing mixup cutmix seed skip_passes dump_after require print_freq prof "
      "use_ema "
      "workspace "
      "model_dir fp16 " },
    { "train", "predict", "train --mode predict",
      COMMON MODEL AMP RUN LAUNCH " to_predict resume pretrained_weights interpolation "
                                  "ignore_orientation workers fp16 " },
    { "train", "benchmark", "a benchmark mode of train",
      COMMON MODEL AMP RUN LAUNCH SOURCE REPORT TRAINED CHANGES
      "decode exact_decode annotations label_ids "
      "strict batch_size num_iter iter_unit warmup_steps benchmark_iterations prof "
      "skip_passes fp16 workspace model_dir resume pretrained_weights eval_batch_size "
      "print_freq memory_limit trace training_only no-checkpoints " },
    { "train", "presets", "train --preset list", COMMON " preset cfg_file log " },
    { "evaluate", "files", "evaluate --detections without --weights",
      COMMON " annotations detections box_areas per_class require log logits confusion raport_file "
             "draw draw_limit draw_min_score use-ema prof sample_1_of_n_eval_examples " },
    { "benchmark", "data", "benchmark --mode data",
      COMMON SOURCE " arch model model_output image_size channels mean std num_classes " CHANGES
                    "decode exact_decode mode "
                    "batch_size iters threads iter_unit log " },
    { "benchmark", "op", "benchmark --mode op",
      COMMON
      " mode lines filter iters warmup iter_unit device threads tune tune_cache winograd log " },
    { "benchmark", "allreduce", "benchmark --mode allreduce",
      COMMON " mode iters warmup iter_unit device threads allreduce allreduce_dtype log " },
    { "benchmark", "scaling", "benchmark --mode scaling",
      COMMON MODEL AMP RUN
      " mode batch_size iters warmup iter_unit ranks ranks_per_machine bandwidth latency "
      "compute_speedup skip_passes allreduce allreduce_dtype " },
    { "inspect", "amp-stats", "inspect amp-stats", COMMON " svg log " },
    { "inspect", "checkpoint", "inspect checkpoint", COMMON " log weights " },
    { "inspect", "quantization", "inspect quantization", COMMON " log weights " },
    { "inspect", "dataset", "inspect dataset", COMMON " log weights " },
    { "inspect", "ops", "inspect ops", COMMON " log weights " },
    { "inspect", "gpu", "inspect gpu", COMMON " log weights " },
    { "inspect", "backends", "inspect backends", COMMON " log weights " },
    { "dataset", "draw", "dataset draw",
      COMMON " boxes classes train val size seed quality threads " },
    { "dataset", "check", "dataset check",
      COMMON
      " dump_tensors channels image_size interpolation ignore_orientation split annotations strict "
      "list_outside list_delimiter label_offset max_bad threads " },
    { "dataset", "stats", "dataset stats",
      COMMON
      " channels image_size interpolation ignore_orientation split annotations strict list_outside "
      "list_delimiter label_offset max_bad threads " },
    { "dataset", "pack", "dataset pack",
      COMMON " short_side overwrite split annotations quality threads list_outside list_delimiter "
             "label_offset " },
    { "dataset", "unpack", "dataset unpack",
      COMMON " split annotations list_outside list_delimiter label_offset " },
    { "convert", "weights", "convert to weights",
      COMMON
      " to checkpoint_path weight_path overwrite ema log classes image_size model_output opset "
      "batch-size export-preprocessing se_layers probabilities half_weights qdq verify nms "
      "min_score "
      "nms_iou max_per_class max_boxes " }, /* options of ONNX are refused */
};

/* Options in tables that several verbs share. */
static const struct {
    const char *verb, *options, *why;
} unread[] = {
    { "evaluate", TRAINED, "weights come from a file" },
    { "classify", TRAINED, "weights come from a file" },
    { "detect", TRAINED, "weights come from a file" },
    { "serve", TRAINED, "weights come from a file" },
    { "convert", TRAINED, "weights come from a file" },
    { "quantize", TRAINED, "weights come from a file" },
    { "quantize", " " CHANGES "decode exact_decode ", "it applies to training" },
    { "quantize", " val_annotations ", "--annotations names the boxes to be found" },
    { "quantize", " val_list ", "DATA names the list" },
    { "quantize", " val_split ", "--calibrate-on-val names the images" },
    { "benchmark", " val_list val_split ", "no validation is run" },
    { "evaluate", " val_list ", "DATA names the list" },
    { "quantize", " winograd ", "activations are observed in direct convolutions" },
    { "benchmark", " last_bn_0_init conv_init bn_decay bn_momentum bn_epsilon ",
      "speed does not depend on it" },
    { "evaluate", " " CHANGES "decode exact_decode ", "it applies to training" },
    { "evaluate", " val_annotations ", "--annotations names the boxes to be found" },
    { "inspect", " last_bn_0_init conv_init ", "no weights are made" },
    { "inspect", " val_resize mean std ", "no images are read" },
    { "convert", " val_resize ", "the file has no resize of its images" },
    { "init", " dropout stochastic_depth bn_momentum ", "initial weights do not depend on it" },
};

/*
 * `options` have an effect only if `other` has one of `values` (separated by '|'; "*": any but the
 * default).  In a list "*" is for options that are real numbers.
 */
typedef struct {
    const char *options, *other, *values, *verb; /* verb NULL: any verb */
} need_row;

#define SE_NETWORKS "se-resnet50|se-resnext101-32x4d|seresnet50|seresnext101_32x4d"
#define IMAGES                                                                                     \
    "interpolation|train_interpolation|crop|antialias|no-antialias|normalization|augmentation|"    \
    "auto_augment|aa|ra_ops|"                                                                      \
    "ra_magnitude|augment_bins|color_jitter|jitter_strength|random_erase|ignore_orientation|"      \
    "decode|exact_decode|max_bad|val_resize"
#define FOLDERS "folder|dali-cpu|dali-gpu|list|webdataset|tfrecord"

static const need_row needs[] = {
    { "rmsprop_alpha|rmsprop_eps", "optimizer", "rmsprop", NULL },
    { "adam_beta1|adam_beta2|adam_eps", "optimizer", "adam|adamw|lamb", NULL },
    { "lamb_max_grad_norm", "optimizer", "lamb", NULL },
    { "momentum", "optimizer", "sgd|rmsprop", NULL },
    { "momentum|adam_beta1", "lr_schedule|no-cycle-momentum",
      "step|linear|cosine|exponential|polynomial|true", NULL },
    { "no-cycle-momentum|base_momentum|max_momentum", "lr_schedule", "one_cycle", NULL },
    { "base_momentum|max_momentum", "no-cycle-momentum", "false", NULL },
    { "nesterov", "optimizer", "sgd", NULL },
    { "lr_decay", "lr_schedule", "exponential|step", NULL },
    { "lr_decay", "lr_rule", "pytorch|torchvision", NULL },
    { "lr_decay_epochs", "lr_schedule", "exponential", NULL },
    { "end_lr", "lr_schedule", "cosine|polynomial", NULL },
    { "lr_total_steps", "lr_rule", "ssd320", NULL },
    { "warmup_lr", "lr_rule", "pytorch|ssd320|torchvision", NULL },
    { "warmup_method", "lr_rule", "pytorch", NULL },
    { "warmup_method|warmup_lr", "warmup", "*", NULL },
    { "no-warmup-prefix", "lr_rule", "pytorch", NULL },
    { "no-warmup-prefix", "lr_schedule", "cosine|linear|polynomial", NULL },
    { "no-warmup-prefix", "warmup", "*", NULL },
    { "multistep", "lr_rule", "pytorch|ssd300|torchvision", NULL },
    { "multistep", "lr_schedule", "step", NULL },
    { "lr_power", "lr_schedule", "polynomial", NULL },
    { "pct_start|div_factor|final_div_factor|anneal_strategy", "lr_schedule", "one_cycle", NULL },
    { "ema_rule", "use_ema", "*", NULL },
    { "ema_steps", "ema_rule", "torchvision", NULL },
    { "bce_target_thresh", "loss", "bce", NULL },
    { "ra_ops|ra_magnitude", "auto_augment", "ra", NULL },
    { "augment_bins", "auto_augment", "ra|ta_wide", NULL },
    { "jitter_strength", "color_jitter", "*", NULL },
    { "se_form", "arch", SE_NETWORKS, "train" },
    { "epochs", "num_train_steps", "-1", NULL },
    { "mixup_mode", "mixup|cutmix", "*", NULL },
    { "mixup_switch_prob", "mixup", "*", NULL },
    { "mixup_switch_prob", "cutmix", "*", NULL },
    { "final_state", "final_weights", "*", NULL },
    { "amp_stats_every", "amp_stats", "*", NULL }, /* other values than the default are refused */
    { "dump_dir", "dump_after", "*", NULL },
    { "tune_cache", "tune", "cached|quick|full", NULL },
    { "raport_warmup", "raport_names", "tf", NULL },
    { "data", "data_backend", FOLDERS "|tensors", NULL },
    { "aug_repeats|balanced_sampling", "data_backend", FOLDERS, "train" },
    { IMAGES, "data_backend", FOLDERS, NULL },
    { IMAGES "|mean|std|workers|prefetch|label_ids|strict", "data", "*", "benchmark" },
    { "seed", "data_backend|val_split", "synthetic|*", "evaluate" },
    { "percentile", "method", "percentile", "quantize" },
    { "eval_count|evaluation|eval_batch_size|topk|val_annotations|val_list", "training_only",
      "false", NULL },
    { "checkpoint_filename|gather_checkpoints", "no-checkpoints", "false", NULL },
    { "poll_seconds", "checkpoint_dir", "*", NULL },
    { "iter_unit", "num_iter|run_iter", "*", "train" },
    { "ssh|remote_program", "hosts|hostfile", "*", NULL },
    { "lines|filter", "mode", "op", "benchmark" },
    { "ranks|ranks_per_machine|bandwidth|latency|compute_speedup", "mode", "scaling", "benchmark" },
};

enum { N_NEVER = sizeof never / sizeof *never, N_JOBS = sizeof jobs / sizeof *jobs };
enum { N_NEEDS = sizeof needs / sizeof *needs };
enum { N_UNREAD = sizeof unread / sizeof *unread };

/* --- values ----------------------------------------------------------------------------------- */

static const td_field *find(const td_field_group *groups, const char *name, size_t n, void **base)
{
    for (; groups->fields; groups++)
        for (const td_field *f = groups->fields; f->kind != TD_KIND_END; f++)
            if (strlen(f->name) == n && strncmp(f->name, name, n) == 0 && f->kind < TD_KIND_TITLE) {
                *base = groups->base;
                return f;
            }
    return NULL;
}

/* Is `word` in the list "a|b|c"? */
static bool is_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *s = list;; s++) {
        const size_t m = strcspn(s, "|");
        if (m == n && strncmp(s, word, n) == 0)
            return true;
        s += m;
        if (!*s)
            return false;
    }
}

static bool has_value(const td_field *f, const void *base, const char *values)
{
    td_text now = { 0 };
    if (strcmp(values, "*") == 0)
        return !td_field_is_default(f, base);
    td_field_get(f, base, &now);
    const bool is_any = f->kind == TD_KIND_REAL && is_listed(values, "*");
    const bool is = is_any ? !td_field_is_default(f, base) : is_listed(values, td_text_get(&now));
    td_text_release(&now);
    return is;
}

/* Does `other` have one of the values?  True for a verb without that option. */
static bool is_met(const need_row *r, const td_field_group *groups)
{
    bool is_any = false;
    for (const char *s = r->other; *s; s += *s == '|') {
        void *base;
        const size_t n = strcspn(s, "|");
        const td_field *f = find(groups, s, n, &base);
        if (f && has_value(f, base, r->values))
            return true;
        is_any |= f != NULL;
        s += n;
    }
    return !is_any;
}

/* --- the log lines ---------------------------------------------------------------------------- */

typedef struct {
    const td_verb *verb;
    const job_row *job; /* NULL: all options are read */
    const td_field_group *groups;
    td_text unread; /* "--lr, --epochs" */
    td_text lines;
} report;

/* The list ends in ", ", which the log line omits. */
static void add_once(td_text *list, const char *subject)
{
    td_text item = { 0 };
    td_text_add(&item, "%s, ", subject);
    const char *at = strstr(td_text_get(list), td_text_get(&item));
    if (!at)
        td_text_add(list, "%s", td_text_get(&item));
    td_text_release(&item);
}

static void add_line(report *r, const char *subject, const char *why, bool is_with)
{
    td_text line = { 0 };
    td_text_add(&line, "%s has no effect%s%s\n", subject, is_with ? " with " : ": ", why);
    if (!strstr(td_text_get(&r->lines), td_text_get(&line)))
        td_text_add(&r->lines, "%s", td_text_get(&line));
    td_text_release(&line);
}

static bool is_word(const char *words, const char *name)
{
    const size_t n = strlen(name);
    for (const char *s = strstr(words, name); s; s = strstr(s + 1, name))
        if (s > words && s[-1] == ' ' && s[n] == ' ')
            return true;
    return false;
}

/* Add a line such as "it requires --optimizer rmsprop", or "with --training-only". */
static void add_need(report *r, const char *subject, const need_row *need)
{
    td_text why = { 0 };
    char other[64];
    snprintf(other, sizeof other, "%.*s", (int)strcspn(need->other, "|"), need->other);
    for (char *p = other; *p; p++)
        *p = *p == '_' ? '-' : *p;
    const bool is_with = strcmp(need->values, "false") == 0 || strcmp(need->values, "-1") == 0;
    if (is_with)
        td_text_add(&why, "--%s", other);
    else if (strcmp(need->values, "*") == 0)
        td_text_add(&why, "it requires --%s", other);
    else
        td_text_add(&why, "it requires --%s %.*s", other, (int)strcspn(need->values, "|"),
                    need->values);
    add_line(r, subject, td_text_get(&why), is_with);
    td_text_release(&why);
}

/* Does the network that --arch names not read this option?  Adds a line such as "with vgg16". */
static bool add_lacking(report *r, const td_field *f, const char *subject)
{
    void *base;
    const td_field *arch = find(r->groups, "arch", 4, &base), *model = td_model_fields();
    while (model != f && model->kind != TD_KIND_END)
        model++;
    const bool is_survival = strcmp(f->name, "survival_prob") == 0;
    if (!arch || (model != f && !is_survival))
        return false;
    const td_model_opts *o = base;
    const bool is_refused = strcmp(f->name, "variant") == 0;
    if (is_refused || !td_model_lacks(o, is_survival ? "stochastic_depth" : f->name))
        return false;
    td_text with = { 0 };
    if (o->model)
        td_text_add(&with, "--model");
    else
        td_text_add(&with, "--arch %s", o->arch);
    add_line(r, subject, td_text_get(&with), true);
    td_text_release(&with);
    return true;
}

bool td_unused_options_has(const td_verb *verb, const char *option)
{
    for (int i = 0; i < N_UNREAD; i++)
        if (strcmp(unread[i].verb, verb->name) == 0 && is_word(unread[i].options, option))
            return true;
    return false;
}

static bool is_of_verb(const need_row *r, const char *verb)
{
    return !r->verb || strcmp(r->verb, verb) == 0;
}

static void visit(void *ctx, const td_field *f, const char *subject)
{
    report *r = ctx;
    if (f->kind == TD_KIND_ACCEPTED) {
        add_line(r, subject, f->def_text, false);
        return;
    }
    for (int i = 0; i < N_NEVER; i++)
        if (strcmp(never[i].option, f->name) == 0) {
            add_line(r, subject, never[i].why, false);
            return;
        }
    if (r->job && !is_word(r->job->reads, f->name)) {
        add_once(&r->unread, subject);
        return;
    }
    for (int i = 0; i < N_UNREAD && !r->job; i++)
        if (strcmp(unread[i].verb, r->verb->name) == 0 && is_word(unread[i].options, f->name)) {
            add_line(r, subject, unread[i].why, false);
            return;
        }
    if (add_lacking(r, f, subject))
        return;
    for (int i = 0; i < N_NEEDS; i++)
        if (is_listed(needs[i].options, f->name) && is_of_verb(&needs[i], r->verb->name) &&
            !is_met(&needs[i], r->groups))
            add_need(r, subject, &needs[i]);
}

static const char *log_of(const td_field_group *groups)
{
    void *base;
    const td_field *f = find(groups, "log", 3, &base);
    return f ? *(const char **)(void *)((char *)base + f->offset) : NULL;
}

/* Log each of the lines. */
static td_status write(report *r)
{
    if (r->unread.len)
        td_text_add(&r->lines, "no effect on %s: %.*s\n", r->job->what, (int)r->unread.len - 2,
                    td_text_get(&r->unread));
    TD_TRY(td_text_status(&r->unread));
    TD_TRY(td_text_status(&r->lines));
    return r->lines.len ? td_command_warn(log_of(r->groups), r->verb->name, td_text_get(&r->lines))
                        : TD_OK;
}

td_status td_unused_options_report(const td_verb *verb, const char *job,
                                   const td_field_group *groups, int argc, char **argv,
                                   td_arena *arena)
{
    report r = { .verb = verb, .groups = groups };
    for (int i = 0; job && i < N_JOBS; i++)
        if (strcmp(jobs[i].verb, verb->name) == 0 && strcmp(jobs[i].job, job) == 0)
            r.job = &jobs[i];
    td_status st = td_options_visit(groups, argc, argv, verb->passes_arguments, visit, &r, arena);
    if (st == TD_OK)
        st = write(&r);
    td_text_release(&r.unread);
    td_text_release(&r.lines);
    return st;
}
